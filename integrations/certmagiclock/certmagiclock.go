// Package certmagiclock lets certmagic, and with it Caddy, lock on any backend of
// distlock, whatever storage keeps the certificates.
//
//	certmagic.Default.Storage = certmagiclock.Graft(storage, locker)
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/patterns"
)

const (
	unlockTime = 10 * time.Second // bounds an Unlock: certmagic calls it with contexts that have ended
	outage     = time.Minute      // of the backend, that Lock outlives
)

// Prefix begins the names of all locks, so that they never conflict with those of other programs.
const Prefix = "certmagic/"

// Locker implements certmagic.Locker, TryLocker and LockLeaseRenewer. It is safe for
// concurrent use. The caller closes the distlock.Locker when certmagic is done.
//
// certmagic names no owner when it unlocks. A process may have two locks of one name in
// its hands: the first was lost, and another goroutine has the second. They count as one,
// which the process has until the last Unlock.
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

// Lock waits for the lock on name. It is renewed until Unlock. If the backend cannot be
// reached, Lock asks again for a minute: certmagic would give up a new certificate until
// its next start.
func (l *Locker) Lock(ctx context.Context, name string) error {
	retry := driver.Retry{First: time.Second, Most: 5 * time.Second}
	for began := time.Now(); ; {
		lock, err := l.locker.Lock(ctx, name)
		if err == nil {
			l.keep(name, lock)
			return nil
		}
		final := errors.Is(err, distlock.ErrInvalid) || errors.Is(err, distlock.ErrClosed)
		if final || time.Since(began) > outage || retry.Pause(ctx) != nil {
			return err
		}
	}
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

// Unlock frees a lock on name, also if ctx has ended: one that was lost, if there is one, else
// the oldest. A lock that was lost is no error: certmagic asks for one only if the name could
// not be freed.
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
	i := max(slices.IndexFunc(locks, func(lock distlock.Lock) bool { return lock.Err() != nil }), 0)
	taken := locks[i]
	if l.held[name] = slices.Delete(locks, i, i+1); len(locks) == 1 {
		delete(l.held, name)
	}
	return taken
}

// RenewLockLease answers whether this process has the lock on name. If it was lost, it is
// taken again, unless another has it by now: certmagic asks before each attempt, for up to
// 30 days, and locks only before the first one. RenewLockLease does not extend the lock by
// d: it renews itself, and a name that stayed taken for d after a crash would keep a
// certificate from being renewed.
func (l *Locker) RenewLockLease(ctx context.Context, name string, d time.Duration) error {
	if err := l.retake(ctx, name); err != nil {
		return fmt.Errorf("certmagiclock: renew the lease of %q by %v: %w", name, d, err)
	}
	return nil
}

// retake takes the name again if all locks on it are lost.
func (l *Locker) retake(ctx context.Context, name string) error {
	lost, err := l.lost(name)
	if err != nil || lost == nil {
		return err
	}
	fresh, err := l.locker.TryLock(ctx, name)
	if err != nil {
		return fmt.Errorf("%w, and cannot be taken again: %w", lost.Err(), err)
	}
	l.mu.Lock()
	i := slices.Index(l.held[name], lost)
	if i >= 0 {
		l.held[name][i] = fresh
	}
	l.mu.Unlock()
	if i < 0 { // it was unlocked meanwhile
		_ = fresh.Unlock(context.WithoutCancel(ctx)) // if this fails, it goes on in the background
		return lost.Err()
	}
	return nil
}

// lost returns the oldest lock on name if none is held any more, and nil if one is. It fails if there is none at all.
func (l *Locker) lost(name string) (distlock.Lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	locks := l.held[name]
	if len(locks) == 0 {
		return nil, errors.New("not locked here")
	}
	if slices.ContainsFunc(locks, func(lock distlock.Lock) bool { return lock.Err() == nil }) {
		return nil, nil
	}
	return locks[0], nil
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
