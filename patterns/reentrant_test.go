package patterns_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// An Unlock of a share waits by its own context, and tells what has become of the release
// of an earlier one.
func TestReentrantUnlockAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		l := hanging(t, &hang)
		lock := mustLock(t, patterns.WithOwner(bg), patterns.Reentrant(l), "x")
		hang.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() { _ = lock.Unlock(bg) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		start := time.Now()
		wantErr(t, "Unlock beside another", lock.Unlock(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took > 1050*time.Millisecond {
			t.Errorf("Unlock returned after %v, with a context of 1s", took)
		}
		wg.Wait()
		hang.Store(false)
		if err := lock.Unlock(bg); err != nil {
			t.Errorf("Unlock when the store answers again: %v", err)
		}
	})
}

func TestReentrant(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		r := patterns.Reentrant(l)
		_, err := r.Lock(bg, "x")
		wantErr(t, "a context without an owner", err, distlock.ErrInvalid)

		alice, bob := patterns.WithOwner(bg), patterns.WithOwner(bg)
		first := mustLock(t, alice, r, "x")
		second := mustLock(t, alice, r, "x")
		if first.Token() != second.Token() {
			t.Errorf("tokens %d and %d", first.Token(), second.Token())
		}
		_, err = r.TryLock(bob, "x")
		wantErr(t, "another owner", err, distlock.ErrHeld)
		for range 2 { // a second Unlock of one share must not count
			mustUnlock(t, bg, second)
		}
		wantErr(t, "Err of the share", second.Err(), distlock.ErrUnlocked)
		if first.Err() != nil {
			t.Errorf("the other share ended: %v", first.Err())
		}
		_, err = rival.TryLock(bg, "x")
		wantErr(t, "one share left", err, distlock.ErrHeld)
		mustUnlock(t, bg, first)
		if lock, err := r.TryLock(bob, "x"); err != nil {
			t.Errorf("all shares unlocked: %v", err)
		} else {
			_ = lock.Unlock(bg)
		}
	})
}

func TestReentrantLoss(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		r := patterns.Reentrant(l)
		alice := patterns.WithOwner(bg)
		lost := mustLock(t, alice, r, "x")
		testkit.Must(t, distlock.Break(bg, rival, "x", 0))
		<-lost.Done()
		anew := mustLock(t, alice, r, "x")
		wantErr(t, "Unlock of the lost share", lost.Unlock(bg), distlock.ErrLost)
		synctest.Wait()
		if anew.Err() != nil || anew.Token() <= lost.Token() {
			t.Errorf("the new hold: %v, token %d after %d", anew.Err(), anew.Token(), lost.Token())
		}
		mustUnlock(t, bg, anew)
	})
}

// A share whose own context ends must not end what the others wait for.
func TestReentrantSharedWait(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		r := patterns.Reentrant(l)
		alice := patterns.WithOwner(bg)
		busy := mustLock(t, bg, rival, "x")
		short, cancel := context.WithTimeout(alice, time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := r.Lock(short, "x")
			if err == nil {
				t.Error("got a held name")
			}
		})
		synctest.Wait()
		wg.Go(func() { mustLock(t, alice, r, "x") })
		time.Sleep(2 * time.Second)
		mustUnlock(t, bg, busy)
		wg.Wait()
	})
}

func TestReentrantFailureKeepsErrHeld(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		r := patterns.Reentrant(l)
		mustLock(t, bg, rival, "x")
		for range 50 {
			ctx, cancel := context.WithTimeout(patterns.WithOwner(bg), time.Second)
			_, err := r.Lock(ctx, "x")
			cancel()
			wantErr(t, "Lock", err, context.DeadlineExceeded)
			wantErr(t, "Lock", err, distlock.ErrHeld)
		}
	})
}

func TestReentrantUnlockAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		r := patterns.Reentrant(l)
		alice := patterns.WithOwner(bg)
		first, second := mustLock(t, alice, r, "x"), mustLock(t, alice, r, "x")
		testkit.Must(t, r.Close())
		for _, share := range []distlock.Lock{first, second} {
			if err := share.Unlock(bg); err != nil {
				t.Errorf("Unlock after Close: %v", err)
			}
		}
	})
}

func TestReentrantSurvivesPanic(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		r := patterns.Reentrant(l)
		alice := patterns.WithOwner(bg)
		func() {
			defer func() { _ = recover() }()
			_, _ = r.Lock(alice, "x", func(*distlock.CallOptions) { panic("in an option") })
		}()
		ctx, cancel := context.WithTimeout(alice, time.Second)
		defer cancel()
		mustLock(t, ctx, r, "x")
	})
}
