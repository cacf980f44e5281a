package work

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/bench/result"
)

// warmUp is what runs before the clock does: scripts are loaded, statements
// prepared, connections made.
func warmUp(d time.Duration) time.Duration { return min(d/4, 300*time.Millisecond) }

func lockUnlock(ctx context.Context, c peers.Client, name string) error {
	h, err := c.Lock(ctx, name)
	if err != nil {
		return err
	}
	return h.Unlock(ctx)
}

// repeat calls f until the end and returns how often a second it returned.
func repeat(d time.Duration, f func() error) (float64, error) {
	start := time.Now()
	n := 0
	for time.Since(start) < d {
		if err := f(); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// solo takes and frees one name over and over: the cost when nobody else is there.
func solo(ctx context.Context, s *session) (Figures, error) {
	c, err := s.open(ctx, false)
	if err != nil {
		return nil, err
	}
	pair := func() error { return lockUnlock(ctx, c, s.Prefix+"solo") }
	if _, err := repeat(warmUp(s.Duration), pair); err != nil {
		return nil, err
	}
	return s.throughput(func() (float64, error) { return repeat(s.Duration, pair) })
}

// throughput returns the rate that run does, and what it costs.
func (s *session) throughput(run func() (perSecond float64, err error)) (Figures, error) {
	var rate float64
	f, err := s.measure(func() (pairs float64, err error) {
		start := time.Now()
		rate, err = run()
		return rate * time.Since(start).Seconds(), err
	})
	if err != nil {
		return nil, err
	}
	f[result.Rate] = rate
	return f, nil
}

// parallel does so with n names at once, on one client.
func parallel(n int) func(context.Context, *session) (Figures, error) {
	return func(ctx context.Context, s *session) (Figures, error) {
		c, err := s.open(ctx, false)
		if err != nil {
			return nil, err
		}
		run := func(d time.Duration) (float64, error) {
			rates := make([]float64, n)
			err := each(n, func(i int) error {
				name := fmt.Sprintf("%sparallel-%d", s.Prefix, i)
				var err error
				rates[i], err = repeat(d, func() error { return lockUnlock(ctx, c, name) })
				return err
			})
			total := 0.0
			for _, r := range rates {
				total += r
			}
			return total, err
		}
		if _, err := run(warmUp(s.Duration)); err != nil {
			return nil, err
		}
		return s.throughput(func() (float64, error) { return run(s.Duration) })
	}
}

// hot lets n clients fight for one name. Throughput alone says little: a client
// that retakes its own lock is fast and starves the others, which Jain's index and
// the waits show. A wait that began in time is measured to its end.
func hot(n int) func(context.Context, *session) (Figures, error) {
	return func(ctx context.Context, s *session) (Figures, error) {
		clients, err := s.several(ctx, n)
		if err != nil {
			return nil, err
		}
		// Everybody is connected and has had a lock before it begins.
		err = each(n, func(i int) error { return lockUnlock(ctx, clients[i], fmt.Sprintf("%swarm-%d", s.Prefix, i)) })
		if err != nil {
			return nil, err
		}
		shares := make([]float64, n)
		waits := make([][]float64, n)
		costs, err := s.measure(func() (pairs float64, err error) {
			start := time.Now()
			err = each(n, func(i int) (err error) {
				waits[i], shares[i], err = s.fight(ctx, clients[i], start)
				return err
			})
			return float64(len(slices.Concat(waits...))), err
		})
		if err != nil {
			return nil, err
		}
		total := 0.0
		for _, share := range shares {
			total += share
		}
		if total == 0 {
			return nil, errStarved
		}
		f := percentiles(slices.Concat(waits...))
		f[result.Rate], f[result.Jain] = total/s.Duration.Seconds(), result.JainIndex(shares)
		maps.Copy(f, costs)
		return f, nil
	}
}

// fight is one of the clients: it takes and frees the name until the time is over.
// It returns its waits, and how often it had the name in time.
func (s *session) fight(ctx context.Context, c peers.Client, start time.Time) (waits []float64, share float64, err error) {
	for time.Since(start) < s.Duration {
		asked := time.Now()
		h, err := c.Lock(ctx, s.Prefix+"hot")
		if err != nil {
			return nil, 0, err
		}
		waits = append(waits, ms(time.Since(asked)))
		if time.Since(start) < s.Duration {
			share++
		}
		if err := h.Unlock(ctx); err != nil {
			return nil, 0, err
		}
	}
	return waits, share, nil
}

func percentiles(samples []float64) Figures {
	slices.Sort(samples)
	return Figures{
		result.P50:   result.Percentile(samples, 50),
		result.P99:   result.Percentile(samples, 99),
		result.Worst: samples[len(samples)-1],
		result.Count: float64(len(samples)),
	}
}

// handOffPairs measure side by side, each on a name of its own, for more samples in
// the same time. They sleep nearly always and do not disturb each other.
const handOffPairs = 4

// handOffProfiled is how many there are for a profile, which has a sample for each
// hundredth of a second that a processor works.
const handOffProfiled = 32

// handOff measures from the call of Unlock to the return of a Lock that waits in
// another client. The wait before is random: a fixed one would lock onto the phase
// of a poller's interval and measure anything but the mean.
func handOff(ctx context.Context, s *session) (Figures, error) {
	pairs := handOffPairs
	if s.CPUProfile != "" {
		pairs = handOffProfiled
	}
	clients, err := s.several(ctx, 2*pairs)
	if err != nil {
		return nil, err
	}
	took := make([][]float64, pairs)
	between := func(i int, enough func(n int) bool) error {
		for n := 0; !enough(n); n++ {
			d, err := handOffOnce(ctx, clients[2*i+n%2], clients[2*i+(n+1)%2], fmt.Sprintf("%shandoff-%d", s.Prefix, i))
			if err != nil {
				return err
			}
			took[i] = append(took[i], ms(d))
		}
		return nil
	}
	// The first ones are to connect, and to open what only waiters need.
	if err := each(pairs, func(i int) error { return between(i, func(n int) bool { return n >= 2 }) }); err != nil {
		return nil, err
	}
	clear(took)
	costs, err := s.measure(func() (float64, error) {
		end := time.Now().Add(s.Duration)
		err := each(pairs, func(i int) error {
			return between(i, func(n int) bool { return n >= 2 && !time.Now().Before(end) })
		})
		return float64(len(slices.Concat(took...))), err
	})
	if err != nil {
		return nil, err
	}
	f := percentiles(slices.Concat(took...))
	maps.Copy(f, costs)
	return f, nil
}

func handOffOnce(ctx context.Context, from, to peers.Client, name string) (time.Duration, error) {
	held, err := from.Lock(ctx, name)
	if err != nil {
		return 0, err
	}
	type outcome struct {
		held peers.Held
		at   time.Time
		err  error
	}
	got := make(chan outcome, 1)
	go func() {
		h, err := to.Lock(ctx, name)
		got <- outcome{h, time.Now(), err}
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
	return o.at.Sub(start), o.held.Unlock(ctx)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
