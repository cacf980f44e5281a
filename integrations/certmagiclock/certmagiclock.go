// Package certmagiclock lets certmagic, and with it Caddy, lock on any backend of
// distlock, whatever storage keeps the certificates.
//
//	certmagic.Default.Storage = certmagiclock.Graft(storage, locker)
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/patterns"
)

// unlockTime bounds an Unlock: certmagic calls it with contexts that have ended.
const unlockTime = 10 * time.Second

// Prefix begins the names of all locks, so that those of other programs never meet them.
const Prefix = "certmagic/"

// Locker implements certmagic.Locker, TryLocker and LockLeaseRenewer. It is safe for
// concurrent use. The caller closes the distlock.Locker when certmagic is done.
//
// certmagic unlocks by name. A process may have two locks of one name in its hands:
// the first was lost, and another goroutine has the second. They are kept in their
// order, since the goroutine that locked first unlocks first or never.
type Locker struct {
	locker distlock.Locker

	mu   sync.Mutex
	held map[string][]distlock.Lock // oldest first
}

var (
	_ certmagic.Locker           = (*Locker)(nil)
	_ certmagic.TryLocker        = (*Locker)(nil)
	_ certmagic.LockLeaseRenewer = (*Locker)(nil)
)

// New returns a Locker over l.
func New(l distlock.Locker) *Locker {
	return &Locker{locker: patterns.Prefix(l, Prefix), held: make(map[string][]distlock.Lock)}
}

// Lock waits for the lock on name. It is renewed until Unlock.
func (l *Locker) Lock(ctx context.Context, name string) error {
	lock, err := l.locker.Lock(ctx, name)
	if err != nil {
		return err
	}
	l.keep(name, lock)
	return nil
}

// TryLock reports false, and no error, if somebody else has the lock.
func (l *Locker) TryLock(ctx context.Context, name string) (bool, error) {
	lock, err := l.locker.TryLock(ctx, name)
	if errors.Is(err, distlock.ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.keep(name, lock)
	return true, nil
}

func (l *Locker) keep(name string, lock distlock.Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[name] = append(l.held[name], lock)
}

// Unlock frees the oldest lock on name, also if ctx has ended. A lock that was lost
// is no error: certmagic asks for one only if the name could not be freed.
func (l *Locker) Unlock(ctx context.Context, name string) error {
	lock := l.take(name)
	if lock == nil {
		return fmt.Errorf("certmagiclock: unlock %q: not locked here", name)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
	defer cancel()
	if err := lock.Unlock(ctx); err != nil && !errors.Is(err, distlock.ErrLost) {
		return err
	}
	return nil
}

func (l *Locker) take(name string) distlock.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	locks := l.held[name]
	if len(locks) == 0 {
		return nil
	}
	if len(locks) == 1 {
		delete(l.held, name)
	} else {
		l.held[name] = locks[1:]
	}
	return locks[0]
}

// RenewLockLease answers whether the lock on name is still held. It does not extend it
// by d: the lock renews itself, and d is up to 30 days. A name that stayed taken for d
// after a crash would keep a certificate from being renewed. Of two locks the oldest is
// asked, so that a goroutine is told if it has lost the name. The other one, if it asks
// meanwhile, is told so too and tries again.
func (l *Locker) RenewLockLease(_ context.Context, name string, d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held[name]) == 0 {
		return fmt.Errorf("certmagiclock: renew the lease of %q by %v: not locked here", name, d)
	}
	return l.held[name][0].Err()
}

// storage has the files of one and the locks of the other.
type storage struct {
	certmagic.Storage
	locks *Locker
}

var (
	_ certmagic.TryLocker        = (*storage)(nil)
	_ certmagic.LockLeaseRenewer = (*storage)(nil)
)

// Graft returns a Storage with the certificates in s and the locks on l. All processes
// that share s must lock on the same backend.
func Graft(s certmagic.Storage, l distlock.Locker) certmagic.Storage {
	return &storage{s, New(l)}
}

// Lock implements certmagic.Locker.
func (s *storage) Lock(ctx context.Context, name string) error { return s.locks.Lock(ctx, name) }

// Unlock implements certmagic.Locker.
func (s *storage) Unlock(ctx context.Context, name string) error { return s.locks.Unlock(ctx, name) }

// TryLock implements certmagic.TryLocker.
func (s *storage) TryLock(ctx context.Context, name string) (bool, error) {
	return s.locks.TryLock(ctx, name)
}

// RenewLockLease implements certmagic.LockLeaseRenewer.
func (s *storage) RenewLockLease(ctx context.Context, name string, d time.Duration) error {
	return s.locks.RenewLockLease(ctx, name, d)
}
