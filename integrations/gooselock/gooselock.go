// Package gooselock lets goose migrate a database under a lock of distlock, so that
// one of many starting processes migrates and the others wait for it.
//
//	provider, err := goose.NewProvider(dialect, db, migrations,
//		goose.WithLocker(gooselock.New(locker, "goose/orders")))
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/distlock-go/distlock"
)

// unlockTime bounds an Unlock: goose calls it with a context that never ends, and its
// tests with one that has ended.
const unlockTime = 10 * time.Second

// Locker implements goose's lock.Locker. It is for one provider, of which one call waits for
// the other, as in two processes. The caller closes the distlock.Locker.
type Locker struct {
	locker distlock.Locker
	name   string

	mu   sync.Mutex
	held []distlock.Lock // oldest first: goose begins a second call before it unlocks for one that has lost its lock
}

var _ lock.Locker = (*Locker)(nil)

// New returns a Locker that takes name. All processes that migrate one database share
// the name; those of others use another.
func New(l distlock.Locker, name string) *Locker {
	return &Locker{locker: l, name: name}
}

// Lock waits for the lock as long as ctx allows. It is renewed until Unlock.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	held, err := l.locker.Lock(ctx, l.name)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, held)
	return nil
}

// Unlock frees the name, also if ctx has ended. An error that matches distlock.ErrLost
// says that the lock ended before. Two processes may have migrated side by side: look
// at the schema before you go on.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	held := l.oldest()
	if held == nil {
		return fmt.Errorf("gooselock: unlock %q: not locked here", l.name)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
	defer cancel()
	err := held.Unlock(ctx)
	if errors.Is(err, distlock.ErrLost) {
		return fmt.Errorf("gooselock: the lock was lost while the database was migrated; another process may have migrated it, too: %w", err)
	}
	return err
}

// oldest takes the oldest lock; nil if none is held.
func (l *Locker) oldest() distlock.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 {
		return nil
	}
	held := l.held[0]
	l.held = l.held[1:]
	return held
}
