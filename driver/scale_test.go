package driver_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// labelled runs f and passes it a function that counts the goroutines that f has
// started, directly or not, and that are left.
func labelled(t *testing.T, f func(count func() int)) {
	name := fmt.Sprintf("%s %p", t.Name(), t)
	pprof.Do(t.Context(), pprof.Labels("test", name), func(context.Context) {
		f(func() int {
			var profile strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // a Builder takes everything
			total := 0
			for _, group := range strings.Split(profile.String(), "\n\n") {
				var n int
				if _, err := fmt.Sscanf(group, "%d @", &n); err == nil && strings.Contains(group, name) {
					total += n
				}
			}
			return total - 1 // this one
		})
	})
}

// Locks that are held cost neither goroutines nor timers, and a request for 500 of
// them a period.
func TestHeldLocksCostNoGoroutine(t *testing.T) {
	const locks, callers = 2500, 100
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		labelled(t, func(count func() int) {
			held := make([]distlock.Lock, locks)
			var calls sync.WaitGroup
			for first := range callers {
				calls.Go(func() {
					for i := first; i < locks; i += callers {
						held[i] = mustLock(t, bg, l, fmt.Sprint("x", i))
					}
				})
			}
			calls.Wait()
			synctest.Wait()
			if n := count(); n > 1 {
				t.Errorf("%d goroutines for %d locks that have just been taken, want one", n, locks)
			}
			time.Sleep(5 * time.Minute)
			before := n.count("renew")
			time.Sleep(5 * time.Minute)
			// 30 periods; two more because locks that wait for the next full batch come apart.
			if perPeriod := (n.count("renew") - before) / 30; perPeriod > locks/500+2 {
				t.Errorf("%d requests a period renew %d locks", perPeriod, locks)
			}
			time.Sleep(3 * time.Second) // not a renewal: all are due together by now
			synctest.Wait()
			if n := count(); n > 1 {
				t.Errorf("%d goroutines for %d locks that are only held, want one", n, locks)
			}
			for _, lock := range held {
				testkit.Must(t, lock.Err())
			}
			testkit.Should(t, l.Close())
			synctest.Wait()
			if n := count(); n > 0 {
				t.Errorf("%d goroutines are left after Close", n)
			}
		})
	})
}

// Calls that hang leave no goroutine, and hold up no other name.
func TestHangingCallsLeaveNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		labelled(t, func(count func() int) {
			n.use(on("try", func(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
				if !strings.HasPrefix(c.Name, "hang") {
					return false, nil
				}
				return stuck(ctx, c, apply)
			}))
			for i := range 100 {
				ctx, cancel := context.WithTimeout(bg, time.Millisecond)
				_, err := l.Lock(ctx, fmt.Sprint("hang", i))
				wantErr(t, "Lock", err, context.DeadlineExceeded)
				cancel()
				lock := mustLock(t, bg, l, fmt.Sprint("x", i))
				mustUnlock(t, bg, lock)
			}
			synctest.Wait()
			if n := count(); n > 1 {
				t.Errorf("%d goroutines are left when all calls have returned, want the scheduler's", n)
			}
		})
	})
}

// A call ends at its own limit.
func TestCallsEndAtTheirOwnLimits(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		var took time.Duration
		n.use(on("try", func(ctx context.Context, c memlock.Call, _ func()) (bool, error) {
			if c.Name != "slow" {
				return false, nil
			}
			began := time.Now()
			<-ctx.Done()
			took = time.Since(began)
			return true, ctx.Err()
		}))
		for _, limit := range []time.Duration{7 * time.Second, time.Second, 3 * time.Second} {
			for _, shorter := range []time.Duration{limit / 2, limit / 4, 2 * limit} {
				lock := mustLock(t, bg, l, "x", distlock.TTL(shorter))
				mustUnlock(t, bg, lock)
			}
			if _, err := l.Lock(bg, "slow", distlock.TTL(limit)); err == nil {
				t.Error("Lock of a name whose backend does not answer returned no error")
			}
			synctest.Wait()
			if took != limit {
				t.Errorf("the call of a Lock with a TTL of %v was ended after %v", limit, took)
			}
		}
	})
}

// The deadline that a driver sees is that of the caller, a moment later: client libraries
// set the timeouts of their sockets by it.
func TestCallHasTheDeadlineOfItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		var seen time.Duration
		n.use(func(ctx context.Context, _ memlock.Call, _ func()) (bool, error) {
			end, _ := ctx.Deadline()
			seen = time.Until(end)
			return false, nil
		})
		for caller, want := range map[time.Duration]time.Duration{
			time.Second: time.Second + 20*time.Millisecond,
			time.Minute: 5 * time.Second,
		} {
			ctx, cancel := context.WithTimeout(bg, caller)
			lock := mustLock(t, ctx, l, "x", distlock.TTL(5*time.Second))
			if seen != want {
				t.Errorf("a Lock with %v left calls the driver with %v, want %v", caller, seen, want)
			}
			mustUnlock(t, ctx, lock)
			cancel()
		}
	})
}

// Thousands of goroutines wait for one name: one of them in the store, and all are
// served in the order in which they came.
func TestManyWaiters(t *testing.T) {
	const waiters = 3000
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		holder := mustLock(t, healthy(), rival, "x")
		served := make(chan int, waiters)
		var waiting sync.WaitGroup
		for i := range waiters {
			waiting.Go(func() {
				lock := mustLock(t, bg, l, "x")
				served <- i
				mustUnlock(t, bg, lock)
			})
			synctest.Wait() // it is in line
		}
		time.Sleep(time.Minute)
		st, err := distlock.Inspect(healthy(), rival, "x")
		if err != nil || st.Waiters != 1 {
			t.Errorf("%d waiters in the store, %v", st.Waiters, err)
		}
		// One look every ten seconds, or a little more often, and the first.
		if looks := n.count("try"); looks > 9 {
			t.Errorf("%d requests of the waiters in a minute", looks)
		}
		mustUnlock(t, healthy(), holder)
		waiting.Wait()
		for i := range waiters {
			if got := <-served; got != i {
				t.Fatalf("waiter %d was served as number %d", got, i)
			}
		}
		if tries := n.count("try"); tries > 2*waiters+10 {
			t.Errorf("%d requests for %d locks", tries, waiters)
		}
	})
}

// BenchmarkHeld is what a lock costs while it is held and renewed: bytes and
// goroutines each, once all are taken.
func BenchmarkHeld(b *testing.B) {
	l, err := memlock.New(memlock.NewStore(nil), nil)
	testkit.Must(b, err)
	defer l.Close()
	names := make([]string, b.N)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	held := make([]distlock.Lock, b.N)
	goroutines := runtime.NumGoroutine()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for i := range held {
		if held[i], err = l.Lock(bg, names[i]); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(b.N), "bytes/lock")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/float64(b.N), "goroutines/lock")
	runtime.KeepAlive(held)
}

// A Locker that has never had a lock leaves no goroutine, even if nobody closes it.
func TestAskingLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		labelled(t, func(count func() int) {
			l, err := memlock.New(memlock.NewStore(nil), nil)
			testkit.Must(t, err)
			if _, err := distlock.Inspect(bg, l, "x"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := count(); n > 0 {
				t.Errorf("%d goroutines are left", n)
			}
		})
	})
}
