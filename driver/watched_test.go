package driver_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// watched runs f with a Locker that reports to o, and a rival.
func watched(t *testing.T, o distlock.Observer, f func(t *testing.T, n *network, l, rival *memlock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, l, rival := faulty(t, &memlock.Options{Options: distlock.Options{Observer: &o}})
		f(t, n, l, rival)
		_ = l.Close()
		time.Sleep(2 * time.Hour) // until the observer is through
	})
}

// Every lock of a batch that was confirmed is held, also while the observer is
// still being told of the others.
func TestSlowObserverLosesNoLock(t *testing.T) {
	renewed := func(distlock.Renewed) { time.Sleep(100 * time.Millisecond) }
	watched(t, distlock.Observer{Renewed: renewed}, func(t *testing.T, _ *network, l, _ *memlock.Locker) {
		var locks []distlock.Lock
		for i := range 300 {
			locks = append(locks, mustLock(t, bg, l, fmt.Sprint(i), distlock.TTL(6*time.Second)))
		}
		time.Sleep(time.Minute)
		for _, lock := range locks {
			testkit.Must(t, lock.Err())
		}
	})
}

// An observer that hangs must not keep an entry in the store, nor its name from
// other callers.
func TestHangingObserverKeepsNothing(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		lost := func(distlock.Lost) { time.Sleep(time.Hour) }
		watched(t, distlock.Observer{Lost: lost}, func(t *testing.T, n *network, l, _ *memlock.Locker) {
			mustLock(t, bg, l, "x", distlock.TTL(time.Second))
			n.use(on("renew", requestLost))
			time.Sleep(3 * time.Second)
			if n.count("release") != 1 {
				t.Errorf("%d releases of a lost lock, want 1", n.count("release"))
			}
		})
	})
	t.Run("cleaned up", func(t *testing.T) {
		cleaned := func(distlock.CleanedUp) { time.Sleep(time.Hour) }
		watched(t, distlock.Observer{CleanedUp: cleaned}, func(t *testing.T, n *network, l, _ *memlock.Locker) {
			n.use(on("try", requestLost))
			for range 10 {
				if _, err := l.TryLock(bg, "x"); !errors.Is(err, errBroken) {
					t.Fatalf("TryLock: %v", err)
				}
			}
			n.use()
			mustLock(t, bg, l, "x")
		})
	})
	t.Run("contended, first of a queue", func(t *testing.T) {
		var first atomic.Bool
		contended := func(distlock.Contended) {
			if first.CompareAndSwap(false, true) {
				time.Sleep(time.Hour)
			}
		}
		watched(t, distlock.Observer{Contended: contended}, func(t *testing.T, _ *network, l, rival *memlock.Locker) {
			held := mustLock(t, bg, rival, "x")
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			began := time.Now()
			stopped := make(chan error)
			go func() { _, err := l.Lock(ctx, "x"); stopped <- err }()
			synctest.Wait()
			wantErr(t, "the first", <-stopped, context.DeadlineExceeded)
			if took := time.Since(began); took > time.Minute+50*time.Millisecond {
				t.Errorf("its context ended after a minute, and it after %v", took)
			}
			mustUnlock(t, bg, held)
			mustLock(t, bg, l, "x")
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("the next had the name after %v", took)
			}
		})
	})
	t.Run("contended", func(t *testing.T) {
		contended := func(distlock.Contended) { time.Sleep(time.Hour) }
		watched(t, distlock.Observer{Contended: contended}, func(t *testing.T, _ *network, l, rival *memlock.Locker) {
			held := mustLock(t, bg, rival, "x")
			for range 10 {
				go func() { _, _ = l.TryLock(bg, "x") }()
			}
			synctest.Wait()
			mustUnlock(t, bg, held)
			mustLock(t, bg, l, "x")
		})
	})
}

// A panic of the observer that the caller survives, as a handler of net/http does,
// leaves neither a waiter nor a lock that is renewed for ever.
func TestPanicOfTheObserverLeavesNothing(t *testing.T) {
	var on bool
	fail := func() {
		if on {
			panic("in the observer")
		}
	}
	o := distlock.Observer{
		Acquired:  func(distlock.Acquired) { fail() },
		Contended: func(distlock.Contended) { fail() },
	}
	watched(t, o, func(t *testing.T, _ *network, l, rival *memlock.Locker) {
		survive := func(f func(context.Context, string, ...distlock.Option) (distlock.Lock, error)) {
			mustPanic(t, "in the observer", func() { _, _ = f(bg, "x") })
		}
		empty := func(what string) {
			t.Helper()
			synctest.Wait()
			if st, err := distlock.Inspect(bg, rival, "x"); err != nil || st.Held || st.Waiters != 0 {
				t.Errorf("%s: left %+v, %v", what, st, err)
			}
		}
		on = true
		for range 10 {
			survive(l.Lock)
			empty("Acquired of Lock")
			survive(l.TryLock)
			empty("Acquired of TryLock")
			held := mustLock(t, bg, rival, "x")
			survive(l.Lock)
			survive(l.TryLock)
			mustUnlock(t, bg, held)
			empty("Contended")
		}
		on = false
		mustUnlock(t, bg, mustLock(t, bg, l, "x"))
	})
}

// However many goroutines try a name, and however short their leases, a store that
// answers them answers all.
func TestHealthyNameIsNeverRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		n.use(slow(15 * time.Millisecond))
		held := mustLock(t, healthy(), rival, "x", distlock.TTL(time.Hour))
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				_, err := l.TryLock(bg, "x", distlock.TTL(20*time.Millisecond))
				if !errors.Is(err, distlock.ErrHeld) {
					t.Errorf("TryLock: %v", err)
				}
			})
		}
		wg.Go(func() {
			time.Sleep(time.Millisecond)
			lock, err := l.Lock(bg, "x", distlock.TTL(20*time.Millisecond))
			if err != nil {
				t.Errorf("Lock: %v", err)
				return
			}
			_ = lock.Unlock(bg)
		})
		time.Sleep(time.Minute)
		mustUnlock(t, healthy(), held)
		wg.Wait()
	})
}

// What hangs must not keep Close from releasing the rest.
func TestCloseReleasesWhatItCan(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		for i := range 400 {
			mustLock(t, bg, l, fmt.Sprint("stuck", i), distlock.TTL(time.Hour))
		}
		for i := range 100 {
			mustLock(t, bg, l, fmt.Sprint("x", i), distlock.TTL(time.Hour))
		}
		n.use(on("release", stuckNames))
		start := time.Now()
		if err := l.Close(); err == nil || !strings.Contains(err.Error(), "400 of its locks could not be released") {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(start); took > 12*time.Second {
			t.Errorf("Close took %v", took)
		}
		left, err := distlock.List(healthy(), rival, "x")
		if err != nil || len(left) != 0 {
			t.Errorf("%d locks that could be released are held, %v", len(left), err)
		}
	})
}

// A store that goes on answering is waited for, however long it takes.
func TestCloseWaitsForAStoreThatAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		for i := range 3000 {
			mustLock(t, bg, l, fmt.Sprint("x", i), distlock.TTL(time.Hour))
		}
		n.use(on("release", late(300*time.Millisecond)))
		start := time.Now()
		if err := l.Close(); err != nil || time.Since(start) > 15*time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		left, err := distlock.List(healthy(), rival, "x")
		if err != nil || len(left) != 0 {
			t.Errorf("%d locks are held, %v", len(left), err)
		}
	})
}

// A lock that could not be released is told of by Close only if it may still block others.
func TestCloseForgetsWhatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(2*time.Second))
		n.use(on("release", func(context.Context, memlock.Call, func()) (bool, error) {
			return true, errors.New("no connection")
		}))
		done, cancel := context.WithCancel(bg)
		cancel()
		_ = lock.Unlock(done) // goes on in the background
		time.Sleep(1800 * time.Millisecond)
		if err := l.Close(); err != nil {
			t.Errorf("Close after the end of the lease: %v", err)
		}
		mustLock(t, healthy(), rival, "x")
	})
}

// A store that has no idea how long the lease runs is not asked all the time, nor is one that says again
// and again that it is about to end.
func TestLooksOfAWaiter(t *testing.T) {
	for remaining, most := range map[time.Duration]int32{math.MaxInt64: 10, time.Microsecond: 1300} {
		d := &oddDriver{try: func() (driver.Grant, error) {
			return driver.Grant{}, &distlock.HeldError{Remaining: remaining}
		}}
		odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			_, err := l.Lock(ctx, "x")
			wantErr(t, "Lock", err, context.DeadlineExceeded)
			if n := d.tries.Load(); n > most {
				t.Errorf("%d tries in a minute where %v are left, want %d at the most", n, remaining, most)
			}
		})
	}
}
