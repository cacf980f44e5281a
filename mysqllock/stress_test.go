package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestStress has workers of as many Lockers contend for two names of a table that
// has just been made. DISTLOCK_STRESS=10s makes it longer.
func TestStress(t *testing.T) {
	t.Parallel()
	duration := 2 * time.Second
	if text := os.Getenv("DISTLOCK_STRESS"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	db := pool(t, nil)
	db.SetMaxOpenConns(80)
	table := freshTable(t)
	if _, err := New(db, &Options{Table: table, Create: true}); err != nil {
		t.Fatal(err)
	}
	const workers = 64
	var counters [2]struct{ plain, exact atomic.Int64 }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for w := range workers {
		l, err := New(db, &Options{Table: table})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}()
			for i := w; ctx.Err() == nil; i++ {
				lock, err := l.Lock(ctx, fmt.Sprint("name", i%2))
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("Lock: %v", err)
					}
					return
				}
				c := &counters[i%2]
				n := c.plain.Load()
				runtime.Gosched()
				c.plain.Store(n + 1)
				c.exact.Add(1)
				if err := lock.Unlock(context.WithoutCancel(ctx)); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	// However slow the machine is, there must be something to count.
	time.Sleep(duration)
	for i := range counters {
		testkit.Until(t, "a name has been taken", func() bool { return counters[i].exact.Load() > 0 })
	}
	cancel()
	wg.Wait()
	l, err := New(db, &Options{Table: table})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range counters {
		c := &counters[i]
		if c.plain.Load() != c.exact.Load() || c.exact.Load() == 0 {
			t.Errorf("name%d: %d of %d increments survived", i, c.plain.Load(), c.exact.Load())
		}
		if st, err := l.Inspect(t.Context(), fmt.Sprint("name", i)); err != nil || st.Held {
			t.Errorf("name%d after all releases: %+v, %v", i, st, err)
		}
	}
	t.Logf("%d and %d turns", counters[0].exact.Load(), counters[1].exact.Load())
}

// TestOneConnection has 50 waiters of two Lockers share a single connection with
// the holder, which must still be able to release.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	db := pool(t, nil)
	db.SetMaxOpenConns(1)
	table := freshTable(t)
	var lockers [2]*Locker
	for i := range lockers {
		l, err := New(db, &Options{Table: table, Create: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}()
		lockers[i] = l
	}
	ctx := t.Context()
	holder, err := lockers[0].Lock(ctx, "n")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			lock, err := lockers[i%2].Lock(ctx, "n")
			if err != nil {
				t.Error(err)
				return
			}
			if err := lock.Unlock(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	if err := holder.Extend(ctx, time.Minute); err != nil {
		t.Error(err)
	}
	if err := holder.Unlock(ctx); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// TestHeldLocksAreCheap holds many locks and counts what they cost the client: no
// goroutine each, and less than a KiB. TestRoundTrips has what they cost the server.
func TestHeldLocksAreCheap(t *testing.T) {
	const n = 2000
	l := openLockers(t, 1, Options{})[0]
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("name", i)
	}
	held := make([]distlock.Lock, n)
	heap := func() int {
		runtime.GC()
		runtime.GC() // what the first one only finalizes
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	goroutines := testkit.Settled(t, runtime.NumGoroutine)
	before := heap()
	for i, name := range names {
		var err error
		if held[i], err = l.Lock(t.Context(), name, distlock.TTL(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.AtMost(t, "goroutines for locks held", goroutines+n/20, runtime.NumGoroutine)
	t.Logf("%d goroutines for all", runtime.NumGoroutine()-goroutines)
	testkit.AtMost(t, "bytes for a lock held", 1024, func() int { return (heap() - before) / n })
	runtime.KeepAlive(held)
}
