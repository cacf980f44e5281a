package redislock

import (
	"sync"
	"testing"

	"github.com/distlock-go/distlock/internal/testkit"
)

// The driver alone, without the engine.
func BenchmarkTryRelease(b *testing.B) {
	d := driverOn(b, client(b, server(b).URL()), freshPrefix())
	b.ReportAllocs()
	for b.Loop() {
		a := d.claim("x", long)
		if _, err := a.Try(b.Context()); err != nil {
			b.Fatal(err)
		}
		testkit.Must(b, a.Release(b.Context()))
	}
}

func BenchmarkLockUnlock(b *testing.B) {
	l := lockerOn(b, client(b, server(b).URL()), &Options{Prefix: freshPrefix()})
	b.ReportAllocs()
	for b.Loop() {
		lock, err := l.Lock(b.Context(), "x")
		testkit.Must(b, err)
		testkit.Must(b, lock.Unlock(b.Context()))
	}
}

func BenchmarkRenew500(b *testing.B) {
	d := driverOn(b, client(b, server(b).URL()), freshPrefix())
	batch := renewals(b, d, 500)
	b.ReportAllocs()
	for b.Loop() {
		d.Renew(b.Context(), batch)
		if batch[0].Err != nil {
			b.Fatal(batch[0].Err)
		}
	}
}

// The goroutines of one process hold one name, one after the other.
func BenchmarkHotNameInOneProcess(b *testing.B) {
	l := lockerOn(b, client(b, server(b).URL()), &Options{Prefix: freshPrefix()})
	left := make(chan struct{}, b.N)
	for range b.N {
		left <- struct{}{}
	}
	close(left)
	b.ResetTimer()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range left {
				lock, err := l.Lock(b.Context(), "x")
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
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
}
