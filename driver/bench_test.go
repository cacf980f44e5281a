package driver_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// BenchmarkLockUnlock is the engine alone: the reference driver costs next
// to nothing. Run it with -benchmem.
func BenchmarkLockUnlock(b *testing.B) {
	l, err := memlock.New(memlock.NewStore(nil), nil)
	testkit.Must(b, err)
	defer l.Close()
	b.ReportAllocs()
	for b.Loop() {
		lock, err := l.Lock(bg, "x")
		testkit.Must(b, err)
		testkit.Must(b, lock.Unlock(bg))
	}
}

// Many goroutines of one Locker, each with a name of its own.
func BenchmarkParallel(b *testing.B) {
	l, err := memlock.New(memlock.NewStore(nil), nil)
	testkit.Must(b, err)
	defer l.Close()
	b.ReportAllocs()
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	var names atomic.Int32
	b.RunParallel(func(pb *testing.PB) {
		name := fmt.Sprint("x", names.Add(1))
		for pb.Next() {
			lock, err := l.Lock(b.Context(), name)
			if err == nil {
				err = lock.Unlock(b.Context())
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}
