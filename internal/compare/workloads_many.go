package compare

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// maxHeldTTL is the TTL at which many locks are held: short enough that two renewals
// of each are seen within seconds.
const maxHeldTTL = 6 * time.Second

// heldParts is in how many steps the locks are taken, with a look at the memory
// after each.
const heldParts = 4

// heldSettle is how long the locks are held before their renewals are counted: the
// first of each may cost more than those that follow.
func heldSettle(p Params) time.Duration { return heldPeriod(p) + 500*time.Millisecond }

// heldPeriod is the time from one renewal to the next.
func heldPeriod(p Params) time.Duration { return heldTTL(p) / 3 }

func heldTTL(p Params) time.Duration { return min(p.TTL, maxHeldTTL) }

func heldTakes(p Params) time.Duration {
	return heldSettle(p) + heldPeriod(p) + time.Duration(p.Held)*time.Millisecond // a guess at taking and freeing them
}

// held takes many locks through one Locker and keeps them: what each costs this
// process, what their renewals cost the store, and whether any is lost.
func held(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	l, via, err := b.tapped(ctx)
	if err != nil {
		return nil, err
	}
	defer via.close() // after the Locker, whose Close frees the locks
	defer l.Close()
	// The connections that the first locks open are not the price of a lock.
	err = each(heldWorkers, func(i int) error {
		return lockUnlock(ctx, l, fmt.Sprintf("%sheld/warm-up/%d", b.run, i), p.TTL, 50*time.Millisecond)
	})
	if err != nil {
		return nil, err
	}
	locks := make([]distlock.Lock, p.Held)
	memory, goroutines := footprint()
	for part := range heldParts {
		from, to := part*p.Held/heldParts, (part+1)*p.Held/heldParts
		if err := lockAll(ctx, l, b.run, locks, from, to, heldTTL(p)); err != nil {
			return nil, err
		}
		if now, _ := footprint(); to > from {
			b.point("held_memory", "locks held", "KiB of memory of the client", to, max(now-memory, 0)/1024)
		}
	}
	full, running := footprint()
	sleep(ctx, heldSettle(p))
	requests, since := via.requests(), time.Now()
	sleep(ctx, heldPeriod(p))
	renewals, passed := via.requests()-requests, time.Since(since)
	figures := map[Figure]float64{
		HeldBytes:      max(full-memory, 0) / float64(p.Held),
		HeldGoroutines: max(running-goroutines, 0) / float64(p.Held),
	}
	if via.counts() {
		figures[HeldRequests] = float64(renewals) / passed.Seconds()
	}
	lost := 0.0
	for _, lock := range locks {
		if lock.Err() != nil {
			lost++
		}
	}
	figures[HeldLost] = lost
	return figures, ctx.Err()
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

// waitingHold is how long all wait for the one that holds the name.
func waitingHold(p Params) time.Duration { return max(p.Hold, p.Duration/2) }

// waitingGap keeps the calls apart, so that their order is known.
const waitingGap = 200 * time.Microsecond

func waitingTakes(p Params) time.Duration {
	return waitingHold(p) + time.Duration(p.Waiters)*(waitingGap+2*time.Millisecond)
}

// waiting lets many goroutines of one process wait for a name that another client
// holds: what they cost the store while they wait, how long it takes until each has
// had its turn, and whether the turns come in the order of the calls.
func waiting(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	ls, err := b.clients(ctx, 1)
	if err != nil {
		return nil, err
	}
	l, via, err := b.tapped(ctx)
	if err != nil {
		return nil, err
	}
	defer via.close()
	defer l.Close()
	name := b.run + "waiting"
	first, err := ls[0].Lock(ctx, name, distlock.TTL(p.TTL))
	if err != nil {
		return nil, err
	}
	line := &turns{}
	served := make(chan error, 1)
	go func() { served <- line.all(ctx, l, name, p) }()
	sleep(ctx, time.Duration(p.Waiters)*2*waitingGap+50*time.Millisecond)
	before, since := via.requests(), time.Now()
	sleep(ctx, waitingHold(p))
	asked, waited := via.requests()-before, time.Since(since)
	start := time.Now()
	if err := first.Unlock(ctx); err != nil {
		return nil, err
	}
	if err := <-served; err != nil {
		return nil, err
	}
	figures := map[Figure]float64{WaitAll: ms(time.Since(start)), WaitDisorder: line.disorder()}
	if via.counts() {
		figures[WaitRequests] = float64(asked) / waited.Seconds()
	}
	return figures, nil
}

// turns notes who is served in which order.
type turns struct {
	mu    sync.Mutex
	order []int
}

// all has p.Waiters goroutines lock and unlock the name once each, called one after
// the other, and returns when all have.
func (t *turns) all(ctx context.Context, l distlock.Locker, name string, p Params) error {
	errs := make(chan error, p.Waiters)
	for i := range p.Waiters {
		go func() { errs <- t.take(ctx, l, name, i, p.TTL) }()
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

func (t *turns) take(ctx context.Context, l distlock.Locker, name string, i int, ttl time.Duration) error {
	lock, err := l.Lock(ctx, name, distlock.TTL(ttl))
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.order = append(t.order, i)
	t.mu.Unlock()
	return lock.Unlock(ctx)
}

// disorder returns the share of the turns that came before one of an earlier caller.
func (t *turns) disorder() float64 {
	early, lowest := 0, len(t.order)
	for i := len(t.order) - 1; i >= 0; i-- {
		if t.order[i] > lowest {
			early++
		}
		lowest = min(lowest, t.order[i])
	}
	return float64(early) / float64(len(t.order))
}
