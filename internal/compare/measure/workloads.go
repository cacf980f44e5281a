package measure

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// workload is what is done for one that report.Workloads has.
type workload struct {
	run    func(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error)
	takes  func(p report.Params) time.Duration // about, for the progress and for the bound
	warm   bool                                // also done once before the first round
	once   bool                                // done in the first round only
	routed bool                                // needs a proxy in front of the server
	bare   bool                                // needs the store's own client
}

// workloads by ID.
var workloads = map[string]workload{
	"bare":              {run: bareCommands, takes: plain, warm: true, bare: true},
	"bare_parallel":     {run: bareParallel, takes: plain, warm: true, bare: true},
	"solo":              {run: solo, takes: plain, warm: true},
	"parallel":          {run: parallel, takes: plain, warm: true},
	"hot":               {run: hot, takes: queued, warm: true},
	"handoff":           {run: handOff, takes: plain, warm: true},
	"waiting":           {run: waiting, takes: waitingTakes},
	"try":               {run: try, takes: plain},
	"arrivals":          {run: arrivals, takes: plain, warm: true},
	"hot_by_clients":    {run: hotByClients, takes: hotByClientsTakes},
	"parallel_by_names": {run: parallelByNames, takes: parallelByNamesTakes},
	"failover":          {run: failOver, takes: failOverTakes, routed: true},
	"held":              {run: held, takes: heldTakes, once: true},
	"traffic":           {run: traffic, takes: trafficTakes, once: true, routed: true},
}

func plain(p report.Params) time.Duration { return p.Duration + p.Hold }

// queued: when the time is up, each client still has its turn.
func queued(p report.Params) time.Duration { return p.Duration + time.Duration(p.Clients)*p.Hold }

// bareCommands sends what any lock on the store must send at the least.
func bareCommands(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	rate, err := b.repeat(ctx, p.Duration, func() error { return b.bare.Pair(ctx, "bare") })
	return map[report.Figure]float64{report.BareRate: rate}, err
}

// bareParallel sends them for many keys at once.
func bareParallel(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	rates, err := b.together(ctx, p.Names, p.Duration, func(i int) error { return b.bare.Pair(ctx, fmt.Sprintf("bare-%d", i)) })
	return map[report.Figure]float64{report.BareParallelRate: sum(rates)}, err
}

// solo takes and frees one name over and over: the cost when nobody else is there.
func solo(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	ls, err := b.clients(ctx, 1)
	if err != nil {
		return nil, err
	}
	took := b.record("solo")
	rate, err := b.repeat(ctx, p.Duration, func() error {
		start := time.Now()
		err := lockUnlock(ctx, ls[0], b.run+"solo", p.TTL, 0)
		took(time.Since(start))
		return err
	})
	return map[report.Figure]float64{report.SoloRate: rate}, err
}

// parallel does so on many names at once through one Locker.
func parallel(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	rate, err := parallelRate(ctx, b, p, p.Names)
	if err == nil {
		b.parallelPoint(p.Names, rate)
	}
	return map[report.Figure]float64{report.ParallelRate: rate}, err
}

func parallelRate(ctx context.Context, b *bench, p report.Params, names int) (float64, error) {
	ls, err := b.clients(ctx, 1)
	if err != nil {
		return 0, err
	}
	rates, err := b.together(ctx, names, p.Duration, func(i int) error {
		return lockUnlock(ctx, ls[0], fmt.Sprintf("%sparallel/%d", b.run, i), p.TTL, p.Hold)
	})
	return sum(rates), err
}

// hot lets many clients fight for one name. Throughput alone says little: a client that
// retakes its own lock is fast and starves the others. Jain's index and the longest
// wait show it (Jain, Chiu, Hawe: DEC-TR-301, 1984).
func hot(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	rates, worst, err := fight(ctx, b, p, p.Clients, b.record("hot"))
	if err != nil {
		return nil, err
	}
	total, squares := sum(rates), 0.0
	for _, r := range rates {
		squares += r * r
	}
	b.hotPoint(len(rates), total)
	return map[report.Figure]float64{
		report.HotRate:  total,
		report.HotJain:  total * total / (float64(len(rates)) * squares),
		report.HotWorst: ms(worst),
	}, nil
}

// fight returns the rate of each client and the longest wait of any.
func fight(ctx context.Context, b *bench, p report.Params, clients int, waited func(time.Duration)) ([]float64, time.Duration, error) {
	ls, err := b.clients(ctx, clients)
	if err != nil {
		return nil, 0, err
	}
	waits := make([]time.Duration, len(ls))
	rates, err := b.together(ctx, len(ls), p.Duration, func(i int) error {
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
	return rates, slices.Max(waits), err
}

// handOffPairs measure side by side, each on a name of its own: more samples in the
// same time. They sleep nearly always, and so do not disturb each other.
const handOffPairs = 4

// handOff measures from the call to Unlock to the return of a waiting Lock in
// another client. The wait before is random: a fixed one would lock onto the phase
// of a poller's interval and measure anything but the mean.
func handOff(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	ls, err := b.clients(ctx, 2*handOffPairs)
	if err != nil {
		return nil, err
	}
	record := b.record("handoff")
	var took durations
	end := time.Now().Add(p.Duration)
	err = each(handOffPairs, func(i int) error {
		name := fmt.Sprintf("%shandoff/%d", b.run, i)
		for n := 0; n < 2 || time.Now().Before(end); n++ {
			d, err := handOffOnce(ctx, ls[2*i+n%2], ls[2*i+(n+1)%2], name, p.TTL)
			if err != nil {
				return err
			}
			took.add(d)
			record(d)
			b.pairs.Add(1)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return map[report.Figure]float64{report.HandOff50: ms(took.percentile(50)), report.HandOff99: ms(took.percentile(99))}, nil
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
func (b *bench) repeat(ctx context.Context, d time.Duration, f func() error) (float64, error) {
	start := time.Now()
	n := 0
	for n == 0 || time.Since(start) < d {
		if err := f(); err != nil {
			return 0, err
		}
		n++
	}
	b.pairs.Add(int64(n))
	return float64(n) / time.Since(start).Seconds(), ctx.Err()
}

// together has n goroutines call f again and again, all at the same time, and returns how often a second each call has ended.
// It takes d, or longer until there were n calls. What is under way by then is waited for and does not count: those that are
// left have the store to themselves more and more, and the rate of many on one name would be too high.
func (b *bench) together(ctx context.Context, n int, d time.Duration, f func(i int) error) ([]float64, error) {
	rates := make([]float64, n)
	var mu sync.Mutex
	var took time.Duration // 0 until the end
	calls, start := 0, time.Now()
	goesOn := func(i int) bool {
		mu.Lock()
		defer mu.Unlock()
		b.pairs.Add(1)
		if took > 0 {
			return false
		}
		calls++
		rates[i]++
		if now := time.Since(start); now >= d && calls >= n {
			took = max(now, 1)
		}
		return took == 0
	}
	err := each(n, func(i int) error {
		for {
			if err := f(i); err != nil || !goesOn(i) {
				return cmp.Or(err, ctx.Err())
			}
		}
	})
	for i := range rates {
		rates[i] /= max(took, 1).Seconds()
	}
	return rates, err
}

func sum(rates []float64) (total float64) {
	for _, r := range rates {
		total += r
	}
	return total
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
