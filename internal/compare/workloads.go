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

	HeldBytes      Figure = "held_bytes"          // memory of this process for each lock held
	HeldGoroutines Figure = "held_goroutines"     // goroutines of this process for each lock held
	HeldRequests   Figure = "held_requests_per_s" // renewal requests a second for all locks together, at a TTL of 6 s at the most
	HeldLost       Figure = "held_lost"           // locks lost while they should have been held

	WaitRequests Figure = "waiting_requests_per_s" // requests a second while all wait
	WaitAll      Figure = "waiting_drain_ms"       // from the holder's Unlock until all have had their turn
	WaitDisorder Figure = "waiting_out_of_order"   // share of the turns that came before an earlier caller's: 0 to 1

	ArrivalRate Figure = "arrivals_per_s"     // calls served a second
	Arrival50   Figure = "arrivals_p50_ms"    // from the intended start to the grant
	Arrival99   Figure = "arrivals_p99_ms"    // the same, 99th percentile
	TryWin50    Figure = "try_won_p50_ms"     // TryLock that got the name
	TryBusy50   Figure = "try_busy_p50_ms"    // TryLock that was told that it is held
	TryNobody   Figure = "try_nobody"         // share of the free names that none of the clients got: 0 to 1
	FailOver    Figure = "failover_ms"        // from the cut to the grant to a waiter
	FailOverTTL Figure = "failover_after_ttl" // the same, as a multiple of the TTL
)

// workload is something to do on a backend for a while.
type workload struct {
	id     string
	title  string
	run    func(ctx context.Context, b *bench, p Params) (map[Figure]float64, error)
	takes  func(p Params) time.Duration // about, for the progress and for the bound
	warm   bool                         // also done once before the first round
	once   bool                         // done in the first round only
	routed bool                         // needs a proxy in front of the server
}

// workloads in the order in which they run.
var workloads = []workload{
	{id: "bare", title: "bare commands", run: bareCommands, takes: plain, warm: true},
	{id: "solo", title: "one after the other", run: solo, takes: plain, warm: true},
	{id: "parallel", title: "many names in parallel", run: parallel, takes: plain, warm: true},
	{id: "hot", title: "many clients, one name", run: hot, takes: queued, warm: true},
	{id: "handoff", title: "hand-off", run: handOff, takes: plain, warm: true},
	{id: "waiting", title: "many waiting", run: waiting, takes: waitingTakes},
	{id: "try", title: "many try at once", run: try, takes: plain},
	{id: "arrivals", title: "arrivals at a rate", run: arrivals, takes: plain, warm: true},
	{id: "hot_by_clients", title: "one name by clients", run: hotByClients, takes: hotByClientsTakes},
	{id: "parallel_by_names", title: "parallel by names", run: parallelByNames, takes: parallelByNamesTakes},
	{id: "failover", title: "holder cut off", run: failOver, takes: failOverTakes, routed: true},
	{id: "held", title: "many held", run: held, takes: heldTakes, once: true},
	{id: "traffic", title: "traffic", run: traffic, takes: trafficTakes, once: true, routed: true},
}

func plain(p Params) time.Duration { return p.Duration + p.Hold }

// queued: when the time is up, each client still has its turn.
func queued(p Params) time.Duration { return p.Duration + time.Duration(p.Clients)*p.Hold }

// bareCommands sends what any lock on the store must send at the least.
func bareCommands(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	rate, err := repeat(ctx, p.Duration, func(int) error { return b.bare.Pair(ctx, "bare") })
	return map[Figure]float64{BareRate: rate}, err
}

// solo takes and frees one name over and over: the cost when nobody else is there.
func solo(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	ls, err := b.clients(ctx, 1)
	if err != nil {
		return nil, err
	}
	took := b.record("solo")
	rate, err := repeat(ctx, p.Duration, func(int) error {
		start := time.Now()
		err := lockUnlock(ctx, ls[0], b.run+"solo", p.TTL, 0)
		took(time.Since(start))
		return err
	})
	return map[Figure]float64{SoloRate: rate}, err
}

// parallel does so on many names at once through one Locker.
func parallel(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	rate, err := parallelRate(ctx, b, p, p.Names)
	if err == nil {
		b.parallelPoint(p.Names, rate)
	}
	return map[Figure]float64{ParallelRate: rate}, err
}

func parallelRate(ctx context.Context, b *bench, p Params, names int) (float64, error) {
	ls, err := b.clients(ctx, 1)
	if err != nil {
		return 0, err
	}
	rates := make([]float64, names)
	err = each(names, func(i int) error {
		name := fmt.Sprintf("%sparallel/%d", b.run, i)
		var err error
		rates[i], err = repeat(ctx, p.Duration, func(int) error { return lockUnlock(ctx, ls[0], name, p.TTL, p.Hold) })
		return err
	})
	total := 0.0
	for _, r := range rates {
		total += r
	}
	return total, err
}

// hot lets many clients fight for one name. Throughput alone says little: a client
// that retakes its own lock is fast and starves the others, which Jain's index and
// the longest wait show (Jain, Chiu, Hawe: DEC-TR-301, 1984).
func hot(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	rates, worst, err := fight(ctx, b, p, p.Clients, b.record("hot"))
	if err != nil {
		return nil, err
	}
	total, squares := 0.0, 0.0
	for _, r := range rates {
		total += r
		squares += r * r
	}
	if squares == 0 {
		return nil, errors.New("no client got the name")
	}
	b.hotPoint(len(rates), total)
	return map[Figure]float64{
		HotRate:  total,
		HotJain:  total * total / (float64(len(rates)) * squares),
		HotWorst: ms(worst),
	}, nil
}

// fight returns the rate of each client and the longest wait of any.
func fight(ctx context.Context, b *bench, p Params, clients int, waited func(time.Duration)) ([]float64, time.Duration, error) {
	ls, err := b.clients(ctx, clients)
	if err != nil {
		return nil, 0, err
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
			wait := time.Since(start)
			waits[i] = max(waits[i], wait)
			waited(wait)
			sleep(ctx, p.Hold)
			return lock.Unlock(ctx)
		})
		return err
	})
	return rates, slices.Max(waits), err
}

// handOff measures from the call of Unlock to the return of a waiting Lock in
// another client. The wait before is random: a fixed one would lock onto the phase
// of a poller's interval and measure anything but the mean.
func handOff(ctx context.Context, b *bench, p Params) (map[Figure]float64, error) {
	ls, err := b.clients(ctx, 2)
	if err != nil {
		return nil, err
	}
	record := b.record("handoff")
	name := b.run + "handoff"
	var took durations
	for end := time.Now().Add(p.Duration); time.Now().Before(end) || took.count < 5; {
		d, err := handOffOnce(ctx, ls[took.count%2], ls[(took.count+1)%2], name, p.TTL)
		if err != nil {
			return nil, err
		}
		took.add(d)
		record(d)
	}
	return map[Figure]float64{HandOff50: ms(took.percentile(50)), HandOff99: ms(took.percentile(99))}, nil
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
	sleep(ctx, 20*time.Millisecond+rand.N(100*time.Millisecond))
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

func lockUnlock(ctx context.Context, l distlock.Locker, name string, ttl, hold time.Duration) error {
	lock, err := l.Lock(ctx, name, distlock.TTL(ttl))
	if err != nil {
		return err
	}
	sleep(ctx, hold)
	return lock.Unlock(ctx)
}

// sleep returns early if ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// repeat calls f until d has passed, but at least once, and returns how often a second
// it ended.
func repeat(ctx context.Context, d time.Duration, f func(i int) error) (float64, error) {
	start := time.Now()
	n := 0
	for n == 0 || time.Since(start) < d {
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
