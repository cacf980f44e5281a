package work

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/bench/result"
)

// heldParallel is how many locks are taken or freed at the same time.
const heldParallel = 64

// held holds n locks on one client, or as many as the contender can, and sees what
// that costs while they are renewed.
func held(n int) func(context.Context, *session) (Figures, error) {
	return func(ctx context.Context, s *session) (Figures, error) {
		if most := s.contender.Most; most > 0 {
			n = min(n, most)
		}
		c, err := s.openAt(ctx, s.Metered, true)
		if err != nil {
			return nil, err
		}
		if err := lockUnlock(ctx, c, s.Prefix+"warm"); err != nil {
			return nil, err
		}
		locks := make([]peers.Held, n)
		before := weigh()
		start := time.Now()
		if err := s.takeAll(ctx, c, locks); err != nil {
			return nil, err
		}
		taken := time.Since(start)
		f, err := s.watch(locks, before)
		if err != nil {
			return nil, err
		}
		f[result.Held] = time.Since(start).Seconds()
		f[result.Took] = taken.Seconds()
		f[result.Lost] = float64(release(ctx, locks))
		return f, nil
	}
}

func (s *session) takeAll(ctx context.Context, c peers.Client, locks []peers.Held) error {
	var next atomic.Int64
	return each(heldParallel, func(int) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(locks) {
				return nil
			}
			var err error
			if locks[i], err = c.Lock(ctx, fmt.Sprintf("%sheld-%d", s.Prefix, i)); err != nil {
				return err
			}
		}
	})
}

// watch measures while the locks are held. It begins when every lock has been due
// once: renewals have found together then, as far as they do.
func (s *session) watch(locks []peers.Held, before weight) (Figures, error) {
	time.Sleep(s.TTL / 3)
	used, _ := processorTime()
	sent, err := s.requests()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	time.Sleep(s.Duration)
	more, err := s.requests()
	if err != nil {
		return nil, err
	}
	took := time.Since(start).Seconds()
	now, known := processorTime()
	after := weigh()
	n := float64(len(locks))
	f := Figures{
		result.Count: n,
		result.All:   float64(more-sent) / took,
		result.Bytes: float64(after.bytes-before.bytes) / n,
		result.Gos:   float64(after.goroutines-before.goroutines) / n,
	}
	if known {
		f[result.CPU] = (now - used).Seconds() / took
	}
	return f, s.heapProfile()
}

// release frees the locks and returns how many were lost: by what the library said
// before, or by what it says now.
func release(ctx context.Context, locks []peers.Held) int64 {
	var lost, next atomic.Int64
	_ = each(heldParallel, func(int) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(locks) {
				return nil
			}
			gone := locks[i].Lost()
			if err := locks[i].Unlock(ctx); err != nil || gone {
				lost.Add(1)
			}
		}
	})
	return lost.Load()
}

// weight is what the process has at the moment.
type weight struct {
	bytes      int64 // live heap, and stacks
	goroutines int
}

func weigh() weight {
	// Twice: what has a finalizer goes with the second.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return weight{int64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()}
}
