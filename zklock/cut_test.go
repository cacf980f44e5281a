package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestOneCutCostsNothing breaks the connection once, at each request of each operation,
// before and after the server has got it. No operation fails by that.
func TestOneCutCostsNothing(t *testing.T) {
	t.Parallel()
	w, prefix, conn := newProxy(t), freshPrefix(), connect(t)
	var l *Locker
	other := open(t, nil, prefix, 30*time.Second)
	lock(t, other, "held")
	ttl := 3 * time.Second
	for what, f := range map[string]func(context.Context) error{
		"TryLock and Unlock": func(ctx context.Context) error {
			held, err := l.TryLock(ctx, "x")
			if err != nil {
				return err
			}
			return held.Unlock(ctx)
		},
		"TryLock of a new name": func(ctx context.Context) error {
			held, err := l.TryLock(ctx, testkit.Owner())
			if err != nil {
				return err
			}
			return held.Unlock(ctx)
		},
		"TryLock in a new session": func(ctx context.Context) error {
			ttl += ttl / classStep
			held, err := l.TryLock(ctx, "x", distlock.TTL(ttl))
			if err != nil {
				return err
			}
			return held.Unlock(ctx)
		},
		"TryLock of a held name": func(ctx context.Context) error {
			if _, err := l.TryLock(ctx, "held"); !errors.Is(err, distlock.ErrHeld) {
				return fmt.Errorf("not ErrHeld: %w", err)
			}
			return nil
		},
		"Extend": func(ctx context.Context) error {
			held, err := l.TryLock(ctx, "x")
			if err != nil {
				return err
			}
			return errors.Join(held.Extend(ctx, 10*time.Second), held.Unlock(ctx))
		},
		"waiting": func(ctx context.Context) error {
			first, err := other.Lock(ctx, "x")
			if err != nil {
				return err
			}
			time.AfterFunc(100*time.Millisecond, func() { _ = first.Unlock(ctx) })
			second, err := l.Lock(ctx, "x")
			if err != nil {
				return err
			}
			return second.Unlock(ctx)
		},
		"List": func(ctx context.Context) error {
			held, err := l.List(ctx, "")
			if err == nil && len(held) != 1 {
				err = fmt.Errorf("%d names", len(held))
			}
			return err
		},
		"Inspect": func(ctx context.Context) error {
			status, err := l.Inspect(ctx, "held")
			if err == nil && !status.Held {
				err = errors.New("not held")
			}
			return err
		},
	} {
		for _, how := range []fault{loseRequest, loseReply} {
			t.Run(fmt.Sprintf("%s/%d", what, how), func(t *testing.T) {
				for k, cut := 1, true; cut; k++ {
					l = open(t, w, prefix, 120*time.Second) // after eleven short connections, the library waits before the next
					var struck atomic.Bool
					judge := once(0, k, how)
					w.on(func(op int32) fault {
						verdict := judge(op)
						if verdict != pass {
							struck.Store(true)
						}
						return verdict
					})
					if err := f(t.Context()); err != nil {
						testkit.Should(t, fmt.Errorf("at request %d: %w", k, err))
					}
					w.on(nil)
					cut = struck.Load()
				}
			})
		}
	}
	if n := len(claimsOf(t, conn, prefix, "x")) + len(claimsOf(t, conn, prefix, "held")); n != 1 {
		t.Errorf("%d claims are left", n)
	}
}

// TestCutAgainAndAgain: while the connections of all break again and again, all that
// wait for a name get it, one after the other, and nothing is left.
func TestCutAgainAndAgain(t *testing.T) {
	t.Parallel()
	w, prefix, conn := newProxy(t), freshPrefix(), connect(t)
	lockers := []*Locker{open(t, w, prefix, 60*time.Second), open(t, w, prefix, 60*time.Second), open(t, w, prefix, 60*time.Second)}
	quit := make(chan struct{})
	var cutting, waiting sync.WaitGroup
	cutting.Go(func() {
		for requests := 0; ; {
			select {
			case <-quit:
				return
			case <-time.After(30 * time.Millisecond):
			}
			for _, n := range w.count() { // a machine that is late gets something through, too
				requests += n
			}
			if requests >= 20 {
				w.cut()
				requests = 0
			}
		}
	})
	var holders, latest atomic.Int64
	for i := range 150 {
		waiting.Go(func() {
			held, err := lockers[i%len(lockers)].Lock(context.WithoutCancel(t.Context()), "x")
			for err != nil && unanswered(err) { // before it was in the queue for certain
				held, err = lockers[i%len(lockers)].Lock(context.WithoutCancel(t.Context()), "x")
			}
			if err != nil {
				t.Error(err)
				return
			}
			if n := holders.Add(1); n != 1 {
				t.Errorf("%d holders", n)
			}
			if before := latest.Swap(held.Token()); held.Token() <= before {
				t.Errorf("token %d after %d", held.Token(), before)
			}
			time.Sleep(5 * time.Millisecond) // not to wait for something: the name is held meanwhile
			holders.Add(-1)
			testkit.Should(t, held.Unlock(context.WithoutCancel(t.Context())))
		})
	}
	waiting.Wait()
	close(quit)
	cutting.Wait()
	if n := len(claimsOf(t, conn, prefix, "x")); n != 0 {
		t.Errorf("%d claims are left", n)
	}
}
