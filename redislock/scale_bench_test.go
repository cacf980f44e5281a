package redislock

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// BenchmarkHeld holds as many locks as -benchtime says, say 100000x, for a minute,
// and renews them. It fails if one is lost.
func BenchmarkHeld(b *testing.B) {
	hold := time.Minute
	if b.N == 1 {
		hold = 0 // package testing's first try
	}
	s := server(b)
	admin := client(b, s.URL())
	l := lockerOn(b, client(b, s.URL()), &Options{Prefix: freshPrefix()})
	before, goroutines := heap(), runtime.NumGoroutine()
	held := make([]distlock.Lock, b.N)
	began := time.Now()
	var callers sync.WaitGroup
	for first := range 64 {
		callers.Go(func() {
			for i := first; i < len(held); i += 64 {
				var err error
				if held[i], err = l.Lock(b.Context(), strconv.Itoa(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	if b.Failed() {
		return
	}
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "taken/s")
	time.Sleep(hold / 20) // goroutines without work go
	b.ReportMetric(float64(heap()-before)/float64(b.N), "bytes/lock")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/float64(b.N), "goroutines/lock")
	requests, start := scripts(b, admin), time.Now()
	time.Sleep(hold)
	if hold > 0 {
		b.ReportMetric(float64(scripts(b, admin)-requests)/time.Since(start).Seconds(), "requests/s")
	}
	for _, lock := range held {
		if err := lock.Err(); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkWaiters has as many goroutines of one process wait for one name as
// -benchtime says, and then serves them. TestManyWaiters of the root package has the order.
func BenchmarkWaiters(b *testing.B) {
	s, prefix := server(b), freshPrefix()
	admin := client(b, s.URL())
	holder := lockerOn(b, client(b, s.URL()), &Options{Prefix: prefix})
	l := lockerOn(b, client(b, s.URL()), &Options{Prefix: prefix})
	first, err := holder.Lock(b.Context(), "x")
	if err != nil {
		b.Fatal(err)
	}
	goroutines := runtime.NumGoroutine()
	var waiting sync.WaitGroup
	for range b.N {
		waiting.Go(func() {
			lock, err := l.Lock(b.Context(), "x")
			if err == nil {
				err = lock.Unlock(b.Context())
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	testkit.Until(b, "the first waits", func() bool {
		return admin.LLen(b.Context(), keyOf(prefix, "x").queue()).Val() == 1
	})
	requests, start := scripts(b, admin), time.Now()
	if b.N > 1 {
		time.Sleep(20 * time.Second)
		b.ReportMetric(float64(scripts(b, admin)-requests)/time.Since(start).Seconds(), "requests/s")
	}
	b.ReportMetric(float64(admin.LLen(b.Context(), keyOf(prefix, "x").queue()).Val()), "waiters")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines-b.N), "more-goroutines")
	start = time.Now()
	if err := first.Unlock(b.Context()); err != nil {
		b.Fatal(err)
	}
	waiting.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "served/s")
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// scripts returns how many scripts the server has run so far.
func scripts(b *testing.B, admin *redis.Client) int {
	info, err := admin.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	total := 0
	for line := range strings.Lines(info) {
		var n int
		if name, stats, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "cmdstat_eval") {
			if _, err := fmt.Sscanf(stats, "calls=%d", &n); err == nil {
				total += n
			}
		}
	}
	return total
}
