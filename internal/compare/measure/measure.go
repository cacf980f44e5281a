// Package measure does the same workloads on lock backends side by side: on each in
// turn, in one run. The machine is never quiet and never the same twice, so only
// figures taken in alternation can be compared. The report has the median of each and
// its spread over the rounds.
package measure

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/sandbox"
)

// Step tells the progress of a run: what is about to be done, and how far it is.
type Step struct {
	Done, Total int
	Doing       string
	Left        time.Duration // estimate for the rest
}

// Run measures the targets and returns what it found, also if ctx ends early: then
// with what was measured until then. A workload that fails on a backend is recorded
// there and does not stop the others. What it makes on the servers is removed by
// Clean, so that more can be measured before.
func Run(ctx context.Context, targets []Target, p report.Params, progress func(Step)) (*report.Report, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	r := report.New(p)
	var benches []*bench
	for _, t := range targets {
		b := newBench(t)
		b.connect(ctx)
		benches = append(benches, b)
		r.Backends = append(r.Backends, b.result)
	}
	defer closeAll(benches)
	for _, b := range benches {
		b.tellServerCPU()
	}
	steps := plan(benches, p)
	clock := newEstimate(steps, p)
	for i, s := range steps {
		if ctx.Err() != nil {
			break
		}
		progress(Step{Done: i, Total: len(steps), Doing: s.bench.target.Name + ": " + report.WorkloadTitle(s.id), Left: clock.left(i)})
		start := time.Now()
		s.run(ctx, p)
		clock.took(i, time.Since(start))
	}
	r.Interrupted = ctx.Err() != nil
	for _, b := range benches {
		b.conclude()
	}
	progress(Step{Done: len(steps), Total: len(steps), Doing: "done"})
	r.Finished = time.Now()
	return r, nil
}

// step is one workload on one backend in one round.
type step struct {
	bench *bench
	id    string
	work  workload
	round int
}

// plan puts the steps in order: all backends do the first workload, then all do the
// second, and so on; then the next round. Neighbours in time are the same workload on
// different backends: those are compared. Round 0 is a warm-up and is not recorded.
func plan(benches []*bench, p report.Params) []step {
	var steps []step
	for round := range p.Rounds + 1 {
		for _, id := range report.WorkloadIDs() {
			w := workloads[id]
			if !slices.Contains(p.Workloads, id) || !w.inRound(round) {
				continue
			}
			for _, b := range benches {
				if !b.refused && (!w.bare || b.bare != nil) {
					steps = append(steps, step{b, id, w, round})
				}
			}
		}
	}
	return steps
}

// inRound reports whether the workload is part of a round.
func (w workload) inRound(round int) bool {
	if round == 0 {
		return w.warm
	}
	return round == 1 || !w.once
}

// expect returns how long the step takes if all goes well.
func (s step) expect(p report.Params) time.Duration {
	if s.work.routed && s.bench.target.Addr == "" {
		return 0
	}
	return s.work.takes(s.adapt(p))
}

// adapt shortens the warm-up.
func (s step) adapt(p report.Params) report.Params {
	if s.round == 0 {
		p.Duration = min(p.Duration/4, 250*time.Millisecond)
	}
	return p
}

func (s step) run(ctx context.Context, p report.Params) {
	result := s.bench.result
	if result.Failed[s.id] != "" {
		return // a backend that cannot do it says so once
	}
	if s.work.routed && s.bench.target.Addr == "" {
		result.Unmeasured[s.id] = s.bench.target.NoRoute.Error()
		return
	}
	p = s.adapt(p)
	s.bench.recording = s.round > 0
	// A workload that hangs is a finding, not a reason to hang.
	bounded, cancel := context.WithTimeout(ctx, 4*s.work.takes(p)+30*time.Second)
	defer cancel()
	cost := s.bench.meter()
	figures, err := s.work.run(bounded, s.bench, p)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		result.Failed[s.id] = err.Error()
	case s.round > 0:
		cost(s.id, figures)
		for id, v := range figures {
			result.Figures[id] = append(result.Figures[id], v)
		}
	}
}

// estimate tells how long the rest of a run will take. It is the planned time of the
// rest, times the ratio of actual to planned time so far.
type estimate struct {
	expected []time.Duration
	planned  time.Duration // of the finished steps
	actual   time.Duration
}

func newEstimate(steps []step, p report.Params) *estimate {
	e := new(estimate)
	for _, s := range steps {
		e.expected = append(e.expected, s.expect(p))
	}
	return e
}

func (e *estimate) took(i int, d time.Duration) {
	e.planned += e.expected[i]
	e.actual += d
}

// left returns the estimate before step i.
func (e *estimate) left(i int) time.Duration {
	var rest time.Duration
	for _, d := range e.expected[i:] {
		rest += d
	}
	// The first steps open connections. A second of trust in the plan keeps them from
	// being taken for the rule.
	factor := float64(e.actual+time.Second) / float64(e.planned+time.Second)
	return time.Duration(float64(rest) * factor)
}

// bench is a target with what is open on it. Lockers are opened once and kept, as
// a service keeps them.
type bench struct {
	target    Target
	result    *report.Backend
	run       string // random: names of this run meet nobody else's, even without a sandbox
	lockers   []distlock.Locker
	bare      sandbox.Client // nil if there is none
	refused   bool           // no Locker could be opened
	recording bool           // this is not the warm-up
	pairs     atomic.Int64   // of lock and unlock that were done

	durations map[string]*durations // by workload
	curves    map[string]*curve
}

func newBench(t Target) *bench {
	return &bench{target: t, run: "compare-" + sandbox.RandomID() + "/", durations: make(map[string]*durations), curves: make(map[string]*curve),
		result: &report.Backend{
			Name: t.Name, URL: t.URL, Origin: t.Origin, Version: t.Version, Notes: slices.Clone(t.Notes),
			Figures: make(map[report.Figure]report.Series), Failed: make(map[string]string), Unmeasured: make(map[string]string),
			Distributions: make(map[string]report.Distribution), Curves: make(map[string]report.Curve), Traffic: make(map[string]report.Traffic),
		}}
}

// connectPatience is how long an address where nobody answers may hold up the run.
const connectPatience = 10 * time.Second

// connect opens the bare client before any Locker: it makes the sandbox of the run.
// Then it opens a Locker, so that an unreachable backend says so once, and not after
// the timeout of each workload.
func (b *bench) connect(ctx context.Context) {
	patience := cmp.Or(b.target.Patience, connectPatience)
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	failed := func(what string, err error) {
		if ctx.Err() == nil {
			b.result.Failed[what] = err.Error()
		}
	}
	if b.target.Bare != nil {
		bare, err := b.target.Bare(bounded)
		if err != nil {
			failed("bare", err)
		} else {
			b.bare, b.result.BareCommands = bare, bare.Commands()
		}
	}
	if _, err := b.clients(bounded, 1); err != nil {
		b.refused = true
		failed("open", err)
		return
	}
	if b.bare != nil { // and somebody is there to answer
		b.result.Version = cmp.Or(b.result.Version, versionOf(bounded, b.bare, patience/4))
	}
}

func versionOf(ctx context.Context, bare sandbox.Client, limit time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return bare.Version(ctx)
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

// conclude puts into the result what comes from all rounds together.
func (b *bench) conclude() {
	for id, d := range b.durations {
		if d.count > 0 {
			b.result.Distributions[id] = d.distribution()
		}
	}
	for id, c := range b.curves {
		if len(c.points) < 2 {
			continue // a point is no curve
		}
		b.result.Curves[id] = c.medians()
	}
}

// closeAll closes all Lockers at the same time: some need a second each.
func closeAll(benches []*bench) {
	var wg sync.WaitGroup
	for _, b := range benches {
		errs := make([]error, len(b.lockers))
		var own sync.WaitGroup
		for i, l := range b.lockers {
			own.Go(func() { errs[i] = l.Close() })
		}
		wg.Go(func() {
			own.Wait()
			if err := errors.Join(errs...); err != nil {
				b.result.Failed["close"] = err.Error()
			}
		})
	}
	wg.Wait()
}
