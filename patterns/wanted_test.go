package patterns_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// closed reports whether a channel is, once everything else has come to rest.
func closed(ch <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func mustWant(t *testing.T, ctx context.Context, l distlock.Locker, lock distlock.Lock) <-chan struct{} {
	t.Helper()
	wanted, err := patterns.Wanted(ctx, l, lock, time.Second)
	testkit.Must(t, err)
	return wanted
}

func TestWanted(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		lock := mustLock(t, bg, l, "x")
		wanted := mustWant(t, bg, l, lock)
		_, err := rival.TryLock(bg, "x")
		wantErr(t, "TryLock", err, distlock.ErrHeld)
		mustLock(t, bg, rival, "y")
		time.Sleep(time.Minute)
		if closed(wanted) {
			t.Fatal("told although nobody waits")
		}
		ctx, cancel := context.WithCancel(bg)
		go func() { _, _ = rival.Lock(ctx, "x") }()
		time.Sleep(1001 * time.Millisecond)
		if !closed(wanted) {
			t.Error("not told, although somebody has waited for longer than the interval")
		}
		if !closed(mustWant(t, bg, l, lock)) {
			t.Error("not told at once, although somebody waited already")
		}
		cancel()
		synctest.Wait()
		if closed(mustWant(t, bg, l, lock)) {
			t.Error("told of a waiter that has given up before")
		}
		if err := lock.Unlock(bg); err != nil {
			t.Errorf("the lock was lost: %v", err)
		}
	})
}

// A wrapper, and the Locker inside it, know the locks that it has made.
func TestWantedThroughWrappers(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		limited := patterns.MaxHold(l, time.Hour)
		capped := mustLock(t, bg, limited, "capped")
		shared := mustLock(t, patterns.WithOwner(bg), patterns.Reentrant(l), "shared")
		tenant := patterns.Prefix(l, "tenant/")
		inside := mustLock(t, bg, tenant, "x")
		all := []<-chan struct{}{mustWant(t, bg, limited, capped), mustWant(t, bg, l, shared), mustWant(t, bg, tenant, inside)}
		ctx, cancel := context.WithTimeout(bg, 2*time.Second)
		defer cancel()
		for _, name := range []string{"capped", "shared", "tenant/x"} {
			go func() { _, _ = rival.Lock(ctx, name) }()
		}
		<-ctx.Done()
		for i, wanted := range all {
			if !closed(wanted) {
				t.Errorf("holder %d was not told", i)
			}
		}
	})
}

func TestWantedRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x")
		_, err := patterns.Wanted(bg, l, lock, 0)
		wantErr(t, "an interval of 0", err, distlock.ErrInvalid)
		_, err = patterns.Wanted(bg, struct{ distlock.Locker }{l}, lock, time.Second)
		wantErr(t, "a Locker that is no Operator", err, distlock.ErrUnsupported)
		read, write := patterns.ReadWrite(l, 2)
		for what, of := range map[string]distlock.Locker{"a permit": patterns.Semaphore(l, 1), "a reader": read, "a writer": patterns.Prefix(write, "w/")} {
			_, err = patterns.Wanted(bg, of, mustLock(t, bg, of, what), time.Second)
			wantErr(t, what, err, distlock.ErrUnsupported)
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		_, err = patterns.Wanted(ctx, l, lock, time.Second)
		wantErr(t, "a context that is done", err, context.Canceled)
	})
}

// The looks end with the lock, also one that hangs, and with the context. The bubble
// fails if a goroutine is left.
func TestWantedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, hang := 0, false
		store := memlock.NewStore(&memlock.StoreOptions{Intercept: func(ctx context.Context, c memlock.Call, apply func()) error {
			if c.Op == "inspect" {
				if looks++; hang {
					<-ctx.Done()
					return ctx.Err()
				}
			}
			apply()
			return nil
		}})
		l := open(t, store)
		lock := mustLock(t, bg, l, "x", distlock.TTL(30*time.Second), distlock.NoRenewal())
		ctx, cancel := context.WithCancel(bg)
		mustWant(t, ctx, l, lock)
		time.Sleep(5500 * time.Millisecond)
		cancel()
		time.Sleep(5 * time.Second)
		if synctest.Wait(); looks != 6 {
			t.Errorf("%d looks in 5.5 s, want one at once and one a second", looks)
		}
		wanted := mustWant(t, bg, l, lock)
		hang = true
		<-lock.Done()
		time.Sleep(5 * time.Second)
		if synctest.Wait(); looks != 7+18 || closed(wanted) {
			t.Errorf("%d looks, want those of before, one at once and one a second, though each hangs; told: %v", looks, closed(wanted))
		}
	})
}

// A lock that was lost before is the reason, whatever comes of the look.
func TestWantedOfALostLock(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(time.Second), distlock.NoRenewal())
		time.Sleep(2 * time.Second)
		_, err := patterns.Wanted(bg, l, lock, time.Second)
		if errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, distlock.ErrLost) {
			t.Error(err)
		}
	})
}
