// Package compare measures lock backends side by side: the same workloads on each,
// in turn, in one run. The machine is never quiet and never the same twice, so
// only figures taken in alternation can be set against each other, and what is
// reported of each is its median and its spread over the rounds.
package compare

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// Target is one backend to measure.
type Target struct {
	Name    string // "redis"
	URL     string // redacted
	Origin  string // "local process redis-server"
	Version string

	// Open returns a new Locker with connections of its own.
	Open func(ctx context.Context) (distlock.Locker, error)

	// Bare returns the store's own two commands that a lock cannot do without,
	// as one function that sends both and waits for both, or nil if it has none.
	Bare func(ctx context.Context) (Bare, error)
}

// Bare is the lower limit of a lock and unlock on a store.
type Bare interface {
	// Pair sends the two commands for a key of its own, one after the other.
	Pair(ctx context.Context, key string) error
	// Commands names them for the report: "SET NX PX, EVALSHA".
	Commands() string
	Close() error
}

// Params are the knobs of a run.
type Params struct {
	Duration time.Duration // of one workload on one backend in one round
	Rounds   int           // how often the backends take turns
	Clients  int           // Lockers that fight for the one name
	Names    int           // names held in parallel by one Locker
	TTL      time.Duration
}

// Check returns an error that names the first parameter that makes no sense.
func (p Params) Check() error {
	switch {
	case p.Duration < 50*time.Millisecond || p.Duration > time.Hour:
		return fmt.Errorf("duration is %v, allowed are 50ms to 1h", p.Duration)
	case p.Rounds < 1 || p.Rounds > 100:
		return fmt.Errorf("rounds is %d, allowed are 1 to 100", p.Rounds)
	case p.Clients < 2 || p.Clients > 1000:
		return fmt.Errorf("clients is %d, allowed are 2 to 1000", p.Clients)
	case p.Names < 1 || p.Names > 10000:
		return fmt.Errorf("names is %d, allowed are 1 to 10000", p.Names)
	case p.TTL < 2*time.Second || p.TTL > time.Hour:
		return fmt.Errorf("ttl is %v, allowed are 2s to 1h", p.TTL)
	}
	return nil
}

// Step tells the progress of a run: what is about to be done, and how far it is.
type Step struct {
	Done, Total int
	Doing       string
	Left        time.Duration // estimate for the rest
}

// Run measures the targets and returns what it found, also if ctx ends early: then
// with what was measured until then. A workload that fails on a backend is recorded
// there and does not stop the others.
func Run(ctx context.Context, targets []Target, p Params, progress func(Step)) (*Report, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	r := newReport(p)
	var benches []*bench
	for _, t := range targets {
		b := newBench(t, p)
		benches = append(benches, b)
		r.Backends = append(r.Backends, b.result)
	}
	defer func() {
		for _, b := range benches {
			b.close()
		}
	}()
	steps := plan(benches, p)
	for i, s := range steps {
		if ctx.Err() != nil {
			r.Interrupted = true
			break
		}
		progress(Step{Done: i, Total: len(steps), Doing: s.bench.target.Name + ": " + s.work.title,
			Left: time.Duration(len(steps)-i) * p.Duration})
		s.run(ctx, p)
	}
	progress(Step{Done: len(steps), Total: len(steps), Doing: "done"})
	r.Finished = time.Now()
	return r, nil
}

// step is one workload on one backend in one round.
type step struct {
	bench *bench
	work  workload
	round int
}

// plan puts the steps in order: all backends do the first workload, then all do
// the second, and so on; then the next round. Neighbours in time are the same
// workload on different backends, which is what is to be compared. Round 0 is a
// warm-up and is not recorded.
func plan(benches []*bench, p Params) []step {
	var steps []step
	for round := range p.Rounds + 1 {
		for _, w := range workloads {
			for _, b := range benches {
				steps = append(steps, step{b, w, round})
			}
		}
	}
	return steps
}

func (s step) run(ctx context.Context, p Params) {
	if s.bench.result.Failed[s.work.id] != "" {
		return // a backend that cannot do it says so once
	}
	if s.round == 0 {
		p.Duration = min(p.Duration/4, 250*time.Millisecond)
	}
	// A workload that hangs is a finding, not a reason to hang.
	bounded, cancel := context.WithTimeout(ctx, 4*p.Duration+30*time.Second)
	defer cancel()
	figures, err := s.work.run(bounded, s.bench, p)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.bench.result.Failed[s.work.id] = err.Error()
	case s.round > 0:
		for id, v := range figures {
			s.bench.result.Figures[id] = append(s.bench.result.Figures[id], v)
		}
	}
}

// bench is a target with what is open on it. Lockers are opened once and kept, as
// a service keeps them.
type bench struct {
	target  Target
	result  *Backend
	run     string // random: names of this run meet nobody else's
	lockers []distlock.Locker
	bare    Bare
}

func newBench(t Target, p Params) *bench {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return &bench{target: t, run: "compare-" + hex.EncodeToString(b[:]) + "/", result: &Backend{
		Name: t.Name, URL: t.URL, Origin: t.Origin, Version: t.Version,
		Figures: make(map[Figure]Series), Failed: make(map[string]string),
	}}
}

// clients returns n Lockers, each with connections of its own.
func (b *bench) clients(ctx context.Context, n int) ([]distlock.Locker, error) {
	for len(b.lockers) < n {
		l, err := b.target.Open(ctx)
		if err != nil {
			return nil, err
		}
		b.lockers = append(b.lockers, l)
	}
	return b.lockers[:n], nil
}

func (b *bench) close() {
	var errs []error
	for _, l := range b.lockers {
		errs = append(errs, l.Close())
	}
	if b.bare != nil {
		errs = append(errs, b.bare.Close())
	}
	if err := errors.Join(errs...); err != nil {
		b.result.Failed["close"] = err.Error()
	}
}
