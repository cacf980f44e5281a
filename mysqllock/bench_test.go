package mysqllock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkHot has many processes contend for one name without a pause, and reports
// how they share it: Jain's index (1 if all get the same), how many others were
// served between two turns of anyone, at the most, and the longest wait. An op is a
// turn; the first turns, for which everybody opens connections, count as well.
func BenchmarkHot(b *testing.B) {
	for _, n := range []int{2, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkHot(b, openLockers(b, n, Options{})) })
	}
}

func benchmarkHot(b *testing.B, lockers []*Locker) {
	const least = 50 // turns each, for the index says nothing about fewer
	n := max(b.N, least*len(lockers))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var mu sync.Mutex
	var order []int // who had the name
	waits := make([]time.Duration, len(lockers))
	var wg sync.WaitGroup
	b.ResetTimer()
	began := time.Now()
	for i, l := range lockers {
		wg.Go(func() {
			for {
				start := time.Now()
				lock, err := l.Lock(ctx, "n")
				if err != nil {
					return
				}
				waits[i] = max(waits[i], time.Since(start))
				mu.Lock()
				if order = append(order, i); len(order) == n {
					cancel()
				}
				mu.Unlock()
				if err := lock.Unlock(context.WithoutCancel(ctx)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(len(order))/time.Since(began).Seconds(), "turns/s")
	b.ReportMetric(jain(order, len(lockers)), "jain")
	b.ReportMetric(float64(passedOver(order, len(lockers))), "passed-over")
	b.ReportMetric(float64(slices.Max(waits).Milliseconds()), "worst-ms")
}

// jain returns Jain's index of the turns that n contenders had: 1/n to 1.
func jain(order []int, n int) float64 {
	turns := make([]float64, n)
	for _, who := range order {
		turns[who]++
	}
	total, squares := 0.0, 0.0
	for _, k := range turns {
		total += k
		squares += k * k
	}
	return total * total / (float64(n) * squares)
}

// passedOver returns how many turns of others lay between two of the same contender,
// at the most.
func passedOver(order []int, n int) (most int) {
	last := make([]int, n)
	for at, who := range order {
		if last[who] > 0 {
			most = max(most, at-last[who])
		}
		last[who] = at + 1
	}
	return most
}
