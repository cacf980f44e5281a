package mysqllock

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

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
