package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// A Figure is one thing that is measured, one value a round.
type Figure string

// The figures, with their units.
const (
	BareRate     Figure = "bare_per_s"        // pairs of bare commands a second, one after the other
	SoloRate     Figure = "solo_per_s"        // lock+unlock a second, one after the other
	ParallelRate Figure = "parallel_per_s"    // lock+unlock a second, on many names at once
	HotRate      Figure = "hot_per_s"         // lock+unlock a second, many clients on one name
	HotJain      Figure = "hot_jain"          // Jain's index of how they shared it: 1/n to 1
	HotWorst     Figure = "hot_worst_wait_ms" // the longest wait of any
	HandOff50    Figure = "handoff_p50_ms"    // from the call of Unlock to the waiter's return
	HandOff99    Figure = "handoff_p99_ms"    // the same, 99th percentile
)

type workload struct {
	id    string
	title string
	run   func(ctx context.Context, b *bench, p Params) (map[Figure]float64, error)
}

// workloads in the order in which they run.
var workloads = []workload{
	{"bare", "bare commands", bareCommands},
	{"solo", "one after the other", solo},
	{"parallel", "many names in parallel", parallel},
	{"hot", "many clients, one name", hot},
	{"handoff", "hand-off", handOff},
}

// bareCommands sends what any lock on the store must send at the least.
func bareCommands(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	if b.bare == nil {
		bare, err := b.target.Bare(ctx)
		if err != nil || bare == nil {
			return nil, err
		}
		b.bare, b.result.BareCommands = bare, bare.Commands()
	}
	rate, err := repeat(ctx, p.Duration, func(int) error { return b.bare.Pair(ctx, b.run+"bare") })
	return map[Figure]float64{BareRate: rate}, err
}

// solo takes and frees one name over and over: the cost when nobody else is there.
func solo(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	ls, err := b.clients(ctx, 1)
	if err != nil {
		return nil, err
	}
	rate, err := repeat(ctx, p.Duration, func(int) error { return lockUnlock(ctx, ls[0], b.run+"solo", p.TTL) })
	return map[Figure]float64{SoloRate: rate}, err
}

// parallel does so on many names at once through one Locker.
func parallel(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	ls, err := b.clients(ctx, 1)
	if err != nil {
		return nil, err
	}
	rates := make([]float64, p.Names)
	err = each(p.Names, func(i int) error {
		name := fmt.Sprintf("%sparallel/%d", b.run, i)
		var err error
		rates[i], err = repeat(ctx, p.Duration, func(int) error { return lockUnlock(ctx, ls[0], name, p.TTL) })
		return err
	})
	total := 0.0
	for _, r := range rates {
		total += r
	}
	return map[Figure]float64{ParallelRate: total}, err
}

// hot lets many clients fight for one name. Throughput alone says little: a client
// that retakes its own lock is fast and starves the others, which Jain's index and
// the longest wait show (Jain, Chiu, Hawe: DEC-TR-301, 1984).
func hot(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	ls, err := b.clients(ctx, p.Clients)
	if err != nil {
		return nil, err
	}
	rates := make([]float64, len(ls))
	waits := make([]time.Duration, len(ls))
	err = each(len(ls), func(i int) error {
		var err error
		rates[i], err = repeat(ctx, p.Duration, func(int) error {
			start := time.Now()
			lock, err := ls[i].Lock(ctx, b.run+"hot", distlock.TTL(p.TTL))
			if err != nil {
				return err
			}
			waits[i] = max(waits[i], time.Since(start))
			return lock.Unlock(ctx)
		})
		return err
	})
	total, squares := 0.0, 0.0
	for _, r := range rates {
		total += r
		squares += r * r
	}
	if err == nil && squares == 0 {
		err = errors.New("no client got the name")
	}
	return map[Figure]float64{
		HotRate:  total,
		HotJain:  total * total / (float64(len(rates)) * squares),
		HotWorst: ms(slices.Max(waits)),
	}, err
}

// handOff measures from the call of Unlock to the return of a waiting Lock in
// another client. The wait before is random: a fixed one would lock onto the phase
// of a poller's interval and measure anything but the mean.
func handOff(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	ls, err := b.clients(ctx, 2)
	if err != nil {
		return nil, err
	}
	name := b.run + "handoff"
	var took []time.Duration
	for end := time.Now().Add(p.Duration); time.Now().Before(end) || len(took) < 5; {
		d, err := handOffOnce(ctx, ls[len(took)%2], ls[(len(took)+1)%2], name, p.TTL)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return map[Figure]float64{
		HandOff50: ms(took[len(took)/2]),
		HandOff99: ms(took[(len(took)*99)/100]),
	}, nil
}

func handOffOnce(ctx context.Context, from, to distlock.Locker, name string, ttl time.Duration) (time.Duration, error) {
	held, err := from.Lock(ctx, name, distlock.TTL(ttl))
	if err != nil {
		return 0, err
	}
	type outcome struct {
		lock distlock.Lock
		at   time.Time
		err  error
	}
	got := make(chan outcome, 1)
	go func() {
		lock, err := to.Lock(ctx, name, distlock.TTL(ttl))
		got <- outcome{lock, time.Now(), err}
	}()
	time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
	start := time.Now()
	if err := held.Unlock(ctx); err != nil {
		return 0, err
	}
	o := <-got
	if o.err != nil {
		return 0, o.err
	}
	return o.at.Sub(start), o.lock.Unlock(ctx)
}

func lockUnlock(ctx context.Context, l distlock.Locker, name string, ttl time.Duration) error {
	lock, err := l.Lock(ctx, name, distlock.TTL(ttl))
	if err != nil {
		return err
	}
	return lock.Unlock(ctx)
}

// repeat calls f until d has passed and returns how often a second it ended.
func repeat(ctx context.Context, d time.Duration, f func(i int) error) (float64, error) {
	start := time.Now()
	n := 0
	for time.Since(start) < d {
		if err := f(n); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds(), ctx.Err()
}

// each runs f for 0 to n-1 at the same time and returns the first error.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
