package measure

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// maxHeldTTL is the TTL at which many locks are held: short enough that two renewals of
// each are seen within seconds. More than manyHeld locks have the TTL of the other
// workloads: otherwise the store would do nothing but renew them.
const (
	maxHeldTTL = 6 * time.Second
	manyHeld   = 10_000
)

// heldParts is in how many steps the locks are taken, with a look at the memory
// after each.
const heldParts = 4

// heldSettle is how long the locks are held before their renewals are counted: the
// first of each may cost more than those that follow.
func heldSettle(p report.Params) time.Duration { return heldPeriod(p) + 500*time.Millisecond }

// heldPeriod is the time from one renewal to the next.
func heldPeriod(p report.Params) time.Duration { return heldTTL(p) / 3 }

func heldTTL(p report.Params) time.Duration {
	if p.Held > manyHeld {
		return p.TTL
	}
	return min(p.TTL, maxHeldTTL)
}

func heldTakes(p report.Params) time.Duration {
	return heldSettle(p) + heldPeriod(p) + time.Duration(p.Held)*time.Millisecond // a guess at taking and freeing them
}

// held takes many locks through one Locker and keeps them: what each costs this
// process, what their renewals cost the store, and whether any is lost.
func held(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	l, via, err := b.tapped(ctx)
	if err != nil {
		return nil, err
	}
	defer via.Close()
	defer l.Close()
	// The connections that the first locks open are not the price of a lock.
	err = each(heldWorkers, func(i int) error {
		return lockUnlock(ctx, l, fmt.Sprintf("%sheld/warm-up/%d", b.run, i), p.TTL, 50*time.Millisecond)
	})
	if err != nil {
		return nil, err
	}
	locks := make([]distlock.Lock, p.Held)
	memory, goroutines := settled()
	grown := make(map[int]float64) // by how much, by locks held
	for part := range heldParts {
		from, to := part*p.Held/heldParts, (part+1)*p.Held/heldParts
		if err := lockAll(ctx, l, b.run, locks, from, to, heldTTL(p)); err != nil {
			return nil, err
		}
		now, _ := footprint()
		grown[to] = now - memory
	}
	sleep(ctx, heldSettle(p))
	full, running := footprint() // renewed once: a driver may keep more of a lock from then on
	requests, since, busy := via.Requests(), time.Now(), b.busy()
	sleep(ctx, heldPeriod(p))
	renewals, passed := via.Requests()-requests, time.Since(since)
	figures := map[report.Figure]float64{
		report.HeldCount:      float64(p.Held),
		report.HeldGoroutines: max(running-goroutines, 0) / float64(p.Held),
	}
	busy(figures) // before the locks are freed
	if via.counts() {
		figures[report.HeldRequests] = float64(renewals) / passed.Seconds()
	}
	figures[report.HeldLost] = float64(freeAll(ctx, locks))
	clear(locks)
	if after, _ := settled(); withinNoise(full-memory, memory-after) {
		b.result.Unmeasured["memory_of_a_held_lock"] = "the memory of this process fell meanwhile, by half as much as the locks took or more"
		return figures, ctx.Err()
	}
	for to, bytes := range grown {
		if to > 0 {
			b.point("held_memory", "locks held", "KiB of memory of the client", to, max(bytes, 0)/1024)
		}
	}
	figures[report.HeldBytes] = (full - memory) / float64(p.Held)
	return figures, ctx.Err()
}

// withinNoise reports whether the memory that the locks took says nothing of them: other
// memory of this process was freed meanwhile, so that less is in use after the locks
// than before them. What a driver keeps of freed locks is no noise: then more is in use.
func withinNoise(grown, fell float64) bool { return grown <= 0 || fell > grown/2 }

// freeAll unlocks the locks and returns how many were lost before.
func freeAll(ctx context.Context, locks []distlock.Lock) int64 {
	var lost atomic.Int64
	_ = each(heldWorkers, func(w int) error {
		for i := w; i < len(locks); i += heldWorkers {
			gone := locks[i].Err() != nil
			if err := locks[i].Unlock(ctx); err != nil || gone {
				lost.Add(1)
			}
		}
		return nil
	})
	return lost.Load()
}

// heldWorkers is how many locks are taken at the same time.
const heldWorkers = 32

// lockAll takes the locks of a range.
func lockAll(ctx context.Context, l distlock.Locker, run string, locks []distlock.Lock, from, to int, ttl time.Duration) error {
	return each(heldWorkers, func(w int) error {
		for i := from + w; i < to; i += heldWorkers {
			lock, err := l.Lock(ctx, fmt.Sprintf("%sheld/%d", run, i), distlock.TTL(ttl))
			if err != nil {
				return err
			}
			locks[i] = lock
		}
		return nil
	})
}

// footprint returns the bytes and the goroutines that this process has in use.
func footprint() (memory, goroutines float64) {
	// Twice: what has a finalizer, or sits in a sync.Pool, survives the first.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())
}

// settled is footprint, after collecting garbage for as long as that still frees
// something. Each collection halves the stacks of goroutines that had more to do before:
// those of other workloads would become smaller while the locks are held.
func settled() (memory, goroutines float64) {
	memory, goroutines = footprint()
	for range maxCollections {
		now, running := footprint()
		if now >= memory {
			break
		}
		memory, goroutines = now, running
	}
	return memory, goroutines
}

// maxCollections bounds settled where other goroutines go on to free memory.
const maxCollections = 20

// waitingHold is how long all wait for the one that holds the name.
func waitingHold(p report.Params) time.Duration { return max(p.Hold, p.Duration/2) }

// waitingGap keeps the calls apart, so that their order is known.
const waitingGap = 200 * time.Microsecond

func waitingTakes(p report.Params) time.Duration {
	return waitingHold(p) + time.Duration(p.Waiters)*(waitingGap+2*time.Millisecond)
}

// waiting lets many goroutines of one process wait for a name that another client
// holds. It measures what they cost the store while they wait, how long it takes until
// all have been served, and whether they are served in the order of the calls.
func waiting(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	ls, err := b.clients(ctx, 1)
	if err != nil {
		return nil, err
	}
	l, via, err := b.tapped(ctx)
	if err != nil {
		return nil, err
	}
	defer via.Close()
	defer l.Close()
	name := b.run + "waiting"
	first, err := ls[0].Lock(ctx, name, distlock.TTL(p.TTL))
	if err != nil {
		return nil, err
	}
	grants := &grantOrder{}
	served := make(chan error, 1)
	go func() { served <- grants.all(ctx, l, name, p) }()
	sleep(ctx, time.Duration(p.Waiters)*2*waitingGap+50*time.Millisecond)
	before, since := via.Requests(), time.Now()
	sleep(ctx, waitingHold(p))
	asked, waited := via.Requests()-before, time.Since(since)
	start := time.Now()
	if err := first.Unlock(ctx); err != nil {
		return nil, err
	}
	if err := <-served; err != nil {
		return nil, err
	}
	figures := map[report.Figure]float64{report.WaitAll: ms(time.Since(start)), report.WaitDisorder: grants.disorder()}
	if via.counts() {
		figures[report.WaitRequests] = float64(asked) / waited.Seconds()
	}
	return figures, nil
}

// grantOrder records the order of the grants to waiters.
type grantOrder struct {
	mu    sync.Mutex
	order []int
}

// all has p.Waiters goroutines lock and unlock the name once each, called one after
// the other, and returns when all have.
func (g *grantOrder) all(ctx context.Context, l distlock.Locker, name string, p report.Params) error {
	errs := make(chan error, p.Waiters)
	for i := range p.Waiters {
		go func() { errs <- g.take(ctx, l, name, i, p.TTL) }()
		sleep(ctx, waitingGap)
	}
	var failed error
	for range p.Waiters {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

func (g *grantOrder) take(ctx context.Context, l distlock.Locker, name string, i int, ttl time.Duration) error {
	lock, err := l.Lock(ctx, name, distlock.TTL(ttl))
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.order = append(g.order, i)
	g.mu.Unlock()
	return lock.Unlock(ctx)
}

// disorder returns the share of the grants that came before that of an earlier caller.
func (g *grantOrder) disorder() float64 {
	early, lowest := 0, len(g.order)
	for i := len(g.order) - 1; i >= 0; i-- {
		if g.order[i] > lowest {
			early++
		}
		lowest = min(lowest, g.order[i])
	}
	return float64(early) / float64(len(g.order))
}
