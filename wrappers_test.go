package distlock_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

func TestPrefix(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		a, b := distlock.Prefix(l, "a/"), distlock.Prefix(rival, "b/")
		lock := mustLock(t, bg, a, "x")
		if lock.Name() != "x" {
			t.Errorf("the lock is called %q", lock.Name())
		}
		mustLock(t, bg, b, "x")
		_, err := rival.TryLock(bg, "a/x")
		wantErr(t, "TryLock of the full name", err, distlock.ErrHeld)
		_, err = a.TryLock(bg, "")
		wantErr(t, "TryLock of the prefix alone", err, distlock.ErrInvalid)
		outside := mustLock(t, bg, rival, "a/")
		_, err = distlock.Inspect(bg, a, "")
		wantErr(t, "Inspect of the prefix alone", err, distlock.ErrInvalid)
		wantErr(t, "Break of the prefix alone", distlock.Break(bg, a, "", outside.Token()), distlock.ErrInvalid)
		if err := outside.Unlock(bg); err != nil {
			t.Error(err)
		}
		sts, err := distlock.List(bg, a, "")
		if err != nil || len(sts) != 1 || sts[0].Name != "x" {
			t.Errorf("List returned %v and %v", sts, err)
		}
		if _, ok := distlock.As[*driver.Handle](lock); !ok {
			t.Error("As does not see through Prefix")
		}
		if err := distlock.Break(bg, a, "x"); err != nil {
			t.Error(err)
		}
	})
}

func TestLockAll(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		_, err := distlock.LockAll(bg, l, []string{"a", "a"})
		wantErr(t, "a name given twice", err, distlock.ErrInvalid)
		_, err = distlock.LockAll(bg, l, nil)
		wantErr(t, "no names", err, distlock.ErrInvalid)

		// Opposite orders must not block each other.
		var wg sync.WaitGroup
		for i := range 20 {
			names := []string{"a", "b", "c"}
			locker := l
			if i%2 == 0 {
				slices.Reverse(names)
				locker = rival
			}
			wg.Go(func() {
				set, err := distlock.LockAll(bg, locker, names)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
				if err := set.Err(); err != nil {
					t.Error(err)
				}
				if err := set.Unlock(bg); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()

		busy := mustLock(t, bg, rival, "b")
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err = distlock.LockAll(ctx, l, []string{"c", "b", "a"})
		wantErr(t, "LockAll with one held", err, distlock.ErrHeld)
		mustLock(t, bg, rival, "a")
		if err := busy.Unlock(bg); err != nil {
			t.Error(err)
		}
	})
}

func TestLockAllTellsOfLoss(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		set, err := distlock.LockAll(bg, l, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		if err := distlock.Break(bg, rival, "b"); err != nil {
			t.Fatal(err)
		}
		<-set.Done()
		wantErr(t, "Err", set.Err(), distlock.ErrLost)
		wantErr(t, "Unlock", set.Unlock(bg), distlock.ErrLost)
		mustLock(t, bg, rival, "a")
	})
}

// hanging is a store that answers, until hang is set.
func hanging(t *testing.T, hang *atomic.Bool) *memlock.Locker {
	t.Helper()
	return open(t, memlock.NewStore(&memlock.StoreOptions{Intercept: func(ctx context.Context, _ memlock.Call, apply func()) error {
		if hang.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		apply()
		return nil
	}}))
}

// LockAll ends with its context, also if what it has taken cannot be freed at once.
func TestLockAllEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		l := hanging(t, &hang)
		busy := mustLock(t, bg, l, "b")
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		time.AfterFunc(time.Second/2, func() { hang.Store(true) })
		start := time.Now()
		_, err := distlock.LockAll(ctx, l, []string{"a", "b"})
		wantErr(t, "LockAll", err, context.DeadlineExceeded)
		if took := time.Since(start); took > 1050*time.Millisecond {
			t.Errorf("LockAll returned after %v, with a context of 1s", took)
		}
		hang.Store(false)
		if err := busy.Unlock(bg); err != nil {
			t.Error(err)
		}
		mustLock(t, bg, l, "a")
	})
}

// A panic in a function of the caller's leaves no lock that nobody has.
func TestLockAllSurvivesPanic(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		calls := 0
		func() {
			defer func() { _ = recover() }()
			_, _ = distlock.LockAll(bg, l, []string{"a", "b"}, func(*distlock.CallOptions) {
				if calls++; calls == 2 {
					panic("in an option")
				}
			})
		}()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		mustLock(t, ctx, rival, "a")
	})
}

// An Unlock of a share waits by its own context, and tells what has become of the release
// of an earlier one.
func TestReentrantUnlockAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		l := hanging(t, &hang)
		lock := mustLock(t, distlock.WithOwner(bg), distlock.Reentrant(l), "x")
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
		r := distlock.Reentrant(l)
		_, err := r.Lock(bg, "x")
		wantErr(t, "a context without an owner", err, distlock.ErrInvalid)

		alice, bob := distlock.WithOwner(bg), distlock.WithOwner(bg)
		first := mustLock(t, alice, r, "x")
		second := mustLock(t, alice, r, "x")
		if first.Token() != second.Token() {
			t.Errorf("tokens %d and %d", first.Token(), second.Token())
		}
		_, err = r.TryLock(bob, "x")
		wantErr(t, "another owner", err, distlock.ErrHeld)
		for range 2 { // a second Unlock of one share must not count
			if err := second.Unlock(bg); err != nil {
				t.Error(err)
			}
		}
		wantErr(t, "Err of the share", second.Err(), distlock.ErrUnlocked)
		if first.Err() != nil {
			t.Errorf("the other share ended: %v", first.Err())
		}
		_, err = rival.TryLock(bg, "x")
		wantErr(t, "one share left", err, distlock.ErrHeld)
		if err := first.Unlock(bg); err != nil {
			t.Error(err)
		}
		if lock, err := r.TryLock(bob, "x"); err != nil {
			t.Errorf("all shares unlocked: %v", err)
		} else {
			_ = lock.Unlock(bg)
		}
	})
}

func TestReentrantLoss(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		r := distlock.Reentrant(l)
		alice := distlock.WithOwner(bg)
		lost := mustLock(t, alice, r, "x")
		if err := distlock.Break(bg, rival, "x"); err != nil {
			t.Fatal(err)
		}
		<-lost.Done()
		anew := mustLock(t, alice, r, "x")
		wantErr(t, "Unlock of the lost share", lost.Unlock(bg), distlock.ErrLost)
		synctest.Wait()
		if anew.Err() != nil || anew.Token() <= lost.Token() {
			t.Errorf("the new hold: %v, token %d after %d", anew.Err(), anew.Token(), lost.Token())
		}
		if err := anew.Unlock(bg); err != nil {
			t.Error(err)
		}
	})
}

// A share whose own context ends must not end what the others wait for.
func TestReentrantSharedWait(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		r := distlock.Reentrant(l)
		alice := distlock.WithOwner(bg)
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
		if err := busy.Unlock(bg); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

func TestReentrantFailureKeepsErrHeld(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		r := distlock.Reentrant(l)
		mustLock(t, bg, rival, "x")
		for range 50 {
			ctx, cancel := context.WithTimeout(distlock.WithOwner(bg), time.Second)
			_, err := r.Lock(ctx, "x")
			cancel()
			wantErr(t, "Lock", err, context.DeadlineExceeded)
			wantErr(t, "Lock", err, distlock.ErrHeld)
		}
	})
}

func TestReentrantUnlockAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		r := distlock.Reentrant(l)
		alice := distlock.WithOwner(bg)
		first, second := mustLock(t, alice, r, "x"), mustLock(t, alice, r, "x")
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for _, share := range []distlock.Lock{first, second} {
			if err := share.Unlock(bg); err != nil {
				t.Errorf("Unlock after Close: %v", err)
			}
		}
	})
}

func TestReentrantSurvivesPanic(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		r := distlock.Reentrant(l)
		alice := distlock.WithOwner(bg)
		func() {
			defer func() { _ = recover() }()
			_, _ = r.Lock(alice, "x", func(*distlock.CallOptions) { panic("in an option") })
		}()
		ctx, cancel := context.WithTimeout(alice, time.Second)
		defer cancel()
		mustLock(t, ctx, r, "x")
	})
}

// An error names the lock, but a name that is no name is not repeated whole.
func TestErrorOfALongName(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		_, err := l.TryLock(bg, strings.Repeat("ü", 5000))
		wantErr(t, "a name of 10,000 bytes", err, distlock.ErrInvalid)
		if text := err.Error(); len(text) > 400 || !strings.Contains(text, "10000") {
			t.Errorf("the error is %q", text)
		}
	})
}
