package patterns_test

import (
	"context"
	"slices"
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

// Close ends what waits, and not the names that were taken before.
func TestLockAllClosed(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		held := mustLock(t, bg, rival, "b")
		time.AfterFunc(time.Minute, func() { testkit.Should(t, l.Close()) })
		_, err := patterns.LockAll(bg, l, []string{"a", "b"})
		wantErr(t, "LockAll", err, distlock.ErrClosed)
		mustUnlock(t, bg, held)
	})
}

// A panic in a goroutine of the package would end the process.
func TestNilContext(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		set, err := patterns.LockAll(bg, l, []string{"a"})
		testkit.Must(t, err)
		_, write := patterns.ReadWrite(l, 2)
		lock := mustLock(t, bg, write, "x")
		var none context.Context
		for what, f := range map[string]func(){
			"Elect": func() { patterns.Elect(none, l, "x", func(context.Context, int64) error { return nil }) },
			"Elect's option": func() {
				patterns.Elect(bg, l, "x", func(context.Context, int64) error { return nil }, func(*distlock.CallOptions) { panic(1) })
			},
			"LockSet.Unlock":    func() { _ = set.Unlock(none) },
			"a writer's Unlock": func() { _ = lock.Unlock(none) },
			"a writer's Extend": func() { _ = lock.Extend(none, time.Minute) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: the caller has not seen the panic", what)
					}
				}()
				f()
			}()
		}
		testkit.Should(t, set.Unlock(bg))
		mustUnlock(t, bg, lock)
	})
}

func TestLockAll(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		_, err := patterns.LockAll(bg, l, []string{"a", "a"})
		wantErr(t, "a name given twice", err, distlock.ErrInvalid)
		_, err = patterns.LockAll(bg, l, nil)
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
				set, err := patterns.LockAll(bg, locker, names)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
				testkit.Should(t, set.Err())
				mustUnlock(t, bg, set)
			})
		}
		wg.Wait()

		busy := mustLock(t, bg, rival, "b")
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err = patterns.LockAll(ctx, l, []string{"c", "b", "a"})
		wantErr(t, "LockAll with one held", err, distlock.ErrHeld)
		mustLock(t, bg, rival, "a")
		mustUnlock(t, bg, busy)
	})
}

func TestLockAllTellsOfLoss(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		set, err := patterns.LockAll(bg, l, []string{"a", "b"})
		testkit.Must(t, err)
		testkit.Must(t, distlock.Break(bg, rival, "b", 0))
		<-set.Done()
		wantErr(t, "Err", set.Err(), distlock.ErrLost)
		wantErr(t, "Unlock", set.Unlock(bg), distlock.ErrLost)
		mustLock(t, bg, rival, "a")
	})
}

// hanging is a store that answers, until hang is set.
func hanging(t *testing.T, hang *atomic.Bool) *memlock.Locker {
	t.Helper()
	return open(t, hangingStore(func(memlock.Call) bool { return hang.Load() }))
}

// hangingStore returns a store that does not answer some calls.
func hangingStore(hangs func(memlock.Call) bool) *memlock.Store {
	return memlock.NewStore(&memlock.StoreOptions{Intercept: func(ctx context.Context, c memlock.Call, apply func()) error {
		if hangs(c) {
			<-ctx.Done()
			return ctx.Err()
		}
		apply()
		return nil
	}})
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
		_, err := patterns.LockAll(ctx, l, []string{"a", "b"})
		wantErr(t, "LockAll", err, context.DeadlineExceeded)
		if took := time.Since(start); took > 1050*time.Millisecond {
			t.Errorf("LockAll returned after %v, with a context of 1s", took)
		}
		hang.Store(false)
		mustUnlock(t, bg, busy)
		mustLock(t, bg, l, "a")
	})
}

// A panic in a function of the caller's leaves no lock that nobody has.
func TestLockAllSurvivesPanic(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		calls := 0
		func() {
			defer func() { _ = recover() }()
			_, _ = patterns.LockAll(bg, l, []string{"a", "b"}, func(*distlock.CallOptions) {
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

// A lock that is lost while the others are waited for ends that, at once.
func TestLockAllLosesOne(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		b := mustLock(t, bg, rival, "b")
		time.AfterFunc(time.Second, func() { _ = distlock.Break(bg, rival, "a", 0) })
		time.AfterFunc(time.Hour, func() { _ = b.Unlock(bg) })
		start := time.Now()
		_, err := patterns.LockAll(bg, l, []string{"0", "a", "b"})
		wantErr(t, "LockAll", err, distlock.ErrLost)
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("told after %v, and kept 0 from others for so long", took)
		}
	})
}
