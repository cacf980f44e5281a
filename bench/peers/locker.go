package peers

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
)

// locker makes a Locker of a library. It adds a struct and two calls to each lock.
type locker struct {
	// lock waits until it holds the name. Not every library lets ctx end it.
	lock  func(ctx context.Context, name string) (*held, error)
	close func() error
}

// Lock implements distlock.Locker.
func (l *locker) Lock(ctx context.Context, name string, _ ...distlock.Option) (distlock.Lock, error) {
	// Slashes would make nodes below each other on ZooKeeper.
	h, err := l.lock(ctx, strings.ReplaceAll(name, "/", "-"))
	if err != nil {
		return nil, err
	}
	h.name = name
	return h, nil
}

// TryLock implements distlock.Locker.
func (l *locker) TryLock(context.Context, string, ...distlock.Option) (distlock.Lock, error) {
	return nil, distlock.ErrUnsupported
}

// closeBound is how long a library may take to close. One of them hangs there now and
// then, and what it has done before counts all the same.
const closeBound = 5 * time.Second

// Close implements distlock.Locker.
func (l *locker) Close() error {
	closed := make(chan error, 1)
	go func() { closed <- l.close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeBound):
		return nil
	}
}

// held is a lock of a library.
type held struct {
	name   string
	unlock func(ctx context.Context) error
	lost   func() bool // whether the library knows that the lock has ended; nil if it never tells
	renew  *renewal    // nil if the library renews, or nobody does
}

func (h *held) Name() string          { return h.name }
func (h *held) Token() int64          { return 0 }
func (h *held) Deadline() time.Time   { return time.Time{} }
func (h *held) Done() <-chan struct{} { return nil }

func (h *held) Err() error {
	if h.lost != nil && h.lost() || h.renew != nil && h.renew.lost.Load() {
		return distlock.ErrLost
	}
	return nil
}

func (h *held) Extend(context.Context, time.Duration) error { return distlock.ErrUnsupported }

func (h *held) Unlock(ctx context.Context) error {
	if h.renew != nil {
		h.renew.stop()
	}
	return h.unlock(ctx)
}

// renewal keeps a lock alive for a library that leaves it to its users: in a
// goroutine a lock, at a third of the TTL, as their documentation shows it.
type renewal struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	lost   atomic.Bool
}

// renewed starts the renewal, if the target wants one. The lock counts as lost once no
// extend has succeeded for a whole TTL.
func renewed(t Target, extend func(ctx context.Context) error) *renewal {
	if !t.Renew {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &renewal{cancel: cancel}
	r.done.Go(func() {
		tick := time.NewTicker(t.TTL / 3)
		defer tick.Stop()
		confirmed := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			sent := time.Now()
			if err := extend(ctx); err == nil {
				confirmed = sent
			}
			if time.Since(confirmed) >= t.TTL {
				r.lost.Store(true)
			}
		}
	})
	return r
}

func (r *renewal) stop() {
	r.cancel()
	r.done.Wait()
}

// refused makes an error of the answer "no".
func refused(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("the store says that the lock is not held")
	}
	return err
}
