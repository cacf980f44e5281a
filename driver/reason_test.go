package driver_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// The observer is told why a lock was lost, whichever way it went, and which call it belongs to.
func TestLostReason(t *testing.T) {
	fixed, ttl := distlock.NoRenewal(), distlock.TTL(3*time.Second)
	for _, tc := range []struct {
		reason string
		opts   []distlock.Option
		lose   func(n *network, rival *memlock.Locker, lock distlock.Lock)
	}{
		{"expired", []distlock.Option{ttl}, func(n *network, _ *memlock.Locker, _ distlock.Lock) { n.use(on("renew", requestLost)) }},
		{"overrun", []distlock.Option{ttl, fixed}, func(*network, *memlock.Locker, distlock.Lock) {}},
		{"gone", []distlock.Option{ttl}, func(_ *network, rival *memlock.Locker, _ distlock.Lock) {
			_ = distlock.Break(healthy(), rival, "x", 0)
		}},
		{"gone", []distlock.Option{ttl, fixed}, func(_ *network, rival *memlock.Locker, lock distlock.Lock) {
			_ = distlock.Break(healthy(), rival, "x", 0)
			_ = lock.Unlock(call("unlock")) // finds it out
		}},
		{"closed", []distlock.Option{ttl}, func(n *network, _ *memlock.Locker, _ distlock.Lock) { n.use(clientClosed) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			var lost []distlock.Lost
			n, l, rival := faulty(t, &memlock.Options{Options: distlock.Options{Observer: &distlock.Observer{
				Lost: func(e distlock.Lost) { lost = append(lost, e) },
			}}})
			lock := mustLock(t, call("lock"), l, "x", tc.opts...)
			tc.lose(n, rival, lock)
			<-lock.Done()
			synctest.Wait()
			if len(lost) != 1 || lost[0].Reason != tc.reason {
				t.Fatalf("told of the losses %+v, want one: %s", lost, tc.reason)
			}
			want := "lock"
			if errors.Is(lock.Err(), distlock.ErrUnlocked) { // Unlock has found it out
				want = "unlock"
			}
			if got := lost[0].Ctx.Value(callKey{}); got != want {
				t.Errorf("%s: the context is that of %v, want %s", tc.reason, got, want)
			}
			n.use()
		})
	}
}

// A renewal in the background has the values of the call that has acquired the lock, an
// Extend its own, a clean-up those of the call that has failed.
func TestContextOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []any
		note := func(ctx context.Context) { seen = append(seen, ctx.Value(callKey{}), ctx.Err()) }
		n, l, _ := faulty(t, &memlock.Options{Options: distlock.Options{Observer: &distlock.Observer{
			Renewed:   func(e distlock.Renewed) { note(e.Ctx) },
			CleanedUp: func(e distlock.CleanedUp) { note(e.Ctx) },
		}}})
		ctx, cancel := context.WithCancel(call("lock"))
		lock := mustLock(t, ctx, l, "x", distlock.TTL(3*time.Second))
		cancel()
		time.Sleep(1100 * time.Millisecond)
		testkit.Must(t, lock.Extend(call("extend"), 3*time.Second))
		n.use(on("try", once(replyLost)))
		if _, err := l.Lock(call("failed"), "y"); err == nil {
			t.Error("a lock although the reply was lost")
		}
		synctest.Wait()
		want := []any{"lock", nil, "extend", nil, "failed", nil}
		if !slices.Equal(seen, want) {
			t.Errorf("seen %v, want %v", seen, want)
		}
	})
}

type callKey struct{}

// call is the context of a call with a value in it.
func call(name string) context.Context { return context.WithValue(bg, callKey{}, name) }
