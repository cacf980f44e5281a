// Package hazard makes go wrong on lock backends what goes wrong in production: it
// kills, stops and cuts off holders, and restarts servers. It tells when the next client
// held the name, and when the holder learned that it had lost it.
package hazard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/sandbox"
)

// Why a hazard was not measured.
const (
	noServer  = "not measured: no server"
	noControl = "not measured: no control of the server"
	noRoute   = "not measured: no proxy can stand before this URL"
	noChild   = "not measured: no second process to be had"
)

// patience bounds what takes a moment on a healthy machine.
const patience = 15 * time.Second

// params say how much of everything there is.
type params struct {
	ttl         time.Duration // of the holders that something happens to
	repeats     int
	longTTL     time.Duration
	restartTTL  time.Duration
	maxAttempts int           // with twice the TTL each time, if the machine was too slow
	patience    time.Duration // beyond every lease, before a name counts as stuck and a holder as never told
}

// fullParams takes less than two minutes for five backends. The TTL is within the limits
// of all of them, and a busy machine can keep up with it. The long one is what ZooKeeper
// takes with its default ticks.
func fullParams() params {
	return params{
		ttl: 2 * time.Second, repeats: 3,
		longTTL: 20 * time.Second, restartTTL: 10 * time.Second, maxAttempts: 3, patience: patience,
	}
}

// times are about how long a hazard takes, as measured on two processors with five stores
// at once. ZooKeeper is a case of its own: a name of it is free at the end of a session.
type times struct{ server, zk, inProcess time.Duration }

func seconds(server, zk, inProcess time.Duration) times {
	return times{server * time.Second, zk * time.Second, inProcess * time.Second}
}

func (t times) on(r Rig) time.Duration {
	switch {
	case r.InProcess:
		return t.inProcess
	case r.ZooKeeper:
		return t.zk
	}
	return t.server
}

// hazards in their running order. Those of a group run at the same time, for most of it
// is waiting. The restart disturbs all others and runs alone.
var hazards = []struct {
	id    report.Hazard
	group int
	title string
	takes times
	lacks func(r Rig) string // why it cannot be measured, or ""
	run   func(ctx context.Context, e *env) (report.Outcome, error)
}{
	{report.KilledHolder, 0, "killed holder", seconds(5, 10, 0), lacksChild, killedHolder},
	{report.StalledHolder, 0, "stalled holder", seconds(5, 10, 0), lacksChild, stalledHolder},
	{report.CutOffHolder, 0, "cut-off holder", seconds(5, 10, 0), lacksRoute, cutOffHolder},
	{report.CancelledWaiter, 1, "cancelled waiter", seconds(10, 10, 3), lacksNothing, cancelledWaiter},
	{report.Herd, 2, "herd", seconds(7, 13, 0), lacksRoute, herd},
	{report.Fairness, 3, "fairness", seconds(3, 3, 2), lacksNothing, fairness},
	{report.DoubleGrants, 4, "double grants", seconds(8, 12, 6), lacksNothing, doubleGrants},
	{report.ServerRestart, 5, "server restart", seconds(4, 6, 0), lacksControl, serverRestart},
}

func lacksNothing(Rig) string { return "" }

func lacksChild(r Rig) string { return r.lacks(r.Child != nil && r.URL != nil, noChild) }

func lacksRoute(r Rig) string { return r.lacks(r.Route != nil, noRoute) }

func lacksControl(r Rig) string { return r.lacks(r.Control != nil, noControl) }

func (r Rig) lacks(there bool, why string) string {
	switch {
	case there:
		return ""
	case r.InProcess:
		return noServer
	}
	return why
}

// Run exposes each backend to every hazard that its rig allows, and fills in Safety of
// the backend in the report. The rigs are those of the backends, in their order, and are
// used at the same time. If ctx ends early, what had not been measured says so.
// progress is not called concurrently.
func Run(ctx context.Context, r *report.Report, rigs []Rig, progress Progress) {
	run(ctx, r, rigs, fullParams(), progress)
}

// Progress is called after each hazard of each backend, but for those that its rig does
// not allow. left is about how long the rest takes.
type Progress func(done int, doing string, left time.Duration)

// Plan says how many hazards the rigs allow, and about how long they take: as long as on the slowest rig.
func Plan(rigs []Rig) (count int, takes time.Duration) {
	for _, rig := range rigs {
		for _, h := range hazards {
			if h.lacks(rig) == "" {
				count++
			}
		}
		takes = max(takes, rig.takes(0))
	}
	return count, takes
}

// takes is about how long the hazards take from a group on: in each group as long as the slowest that the rig allows.
func (r Rig) takes(from int) time.Duration {
	slowest := make(map[int]time.Duration)
	for _, h := range hazards {
		if h.group < from || h.lacks(r) != "" {
			continue
		}
		slowest[h.group] = max(slowest[h.group], h.takes.on(r))
	}
	var all time.Duration
	for _, d := range slowest {
		all += d
	}
	return all
}

func run(ctx context.Context, r *report.Report, rigs []Rig, p params, progress Progress) {
	told := newSteps(rigs, progress)
	var all sync.WaitGroup
	for i, rig := range rigs {
		all.Go(func() { runOne(ctx, r.Backends[i], rig, p, func(group int) { told.passed(i, group) }, told.over) })
	}
	all.Wait()
	r.Interrupted = r.Interrupted || ctx.Err() != nil
	r.Finished = time.Now()
}

// steps counts the finished hazards, on all backends.
type steps struct {
	mu    sync.Mutex
	done  int
	start time.Time
	rigs  []Rig
	ends  []time.Time // of each rig, about
	tell  Progress
}

func newSteps(rigs []Rig, tell Progress) *steps {
	s := &steps{start: time.Now(), rigs: rigs, tell: tell}
	for _, rig := range rigs {
		s.ends = append(s.ends, s.start.Add(rig.takes(0)))
	}
	return s
}

func (s *steps) over(doing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	var left time.Duration
	for _, end := range s.ends {
		left = max(left, time.Until(end))
	}
	s.tell(s.done, doing, left)
}

// passed corrects the end of a rig after a group: the rest will take as many times what was planned as the groups until
// then did. A second of trust in the plan keeps a short beginning from being taken for the rule.
func (s *steps) passed(rig, group int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.rigs[rig].takes(group + 1)
	planned := s.rigs[rig].takes(0) - rest
	factor := float64(time.Since(s.start)+time.Second) / float64(planned+time.Second)
	s.ends[rig] = time.Now().Add(time.Duration(float64(rest) * factor))
}

func runOne(ctx context.Context, b *report.Backend, rig Rig, p params, passed func(group int), over func(doing string)) {
	b.Safety = make(map[report.Hazard]report.Outcome)
	var e *env
	var err error
	if why := b.Failed["open"]; why != "" { // the workloads could not either
		err = errors.New(why)
	} else {
		e, err = newEnv(ctx, b, rig, p)
	}
	var mu sync.Mutex
	for from := 0; from < len(hazards); {
		to := from
		var group sync.WaitGroup
		for ; to < len(hazards) && hazards[to].group == hazards[from].group; to++ {
			h := hazards[to]
			group.Go(func() {
				o, why := unmeasured(err), h.lacks(rig)
				if why != "" {
					o = report.Outcome{Verdict: report.Unmeasured, Text: why}
				} else if err == nil {
					o = e.outcome(ctx, h.run)
				}
				mu.Lock()
				b.Safety[h.id] = o
				mu.Unlock()
				if why == "" {
					over(b.Name + ": " + h.title)
				}
			})
		}
		group.Wait()
		passed(hazards[from].group)
		from = to
	}
	if e != nil {
		e.close()
	}
}

func unmeasured(err error) report.Outcome {
	if err == nil {
		return report.Outcome{}
	}
	text := "not measured: failed"
	switch {
	case errors.Is(err, context.Canceled):
		text = "not measured: interrupted"
	case errors.Is(err, errStall):
		text = "not measured: machine too slow"
	case errors.Is(err, errors.ErrUnsupported):
		text = "not measured: not on this system"
	}
	return report.Outcome{Verdict: report.Unmeasured, Text: text, Detail: err.Error()}
}

// env is a backend with what the hazards need of it.
type env struct {
	params
	rig    Rig
	result *report.Backend
	caps   driver.Capabilities
	prefix string          // random: names of this run meet nobody else's
	admin  distlock.Locker // for looks into the store
}

// capable is implemented by every Locker that has a Client inside.
type capable interface{ Capabilities() driver.Capabilities }

func newEnv(ctx context.Context, b *report.Backend, rig Rig, p params) (*env, error) {
	e := &env{params: p, rig: rig, result: b, prefix: "safety-" + sandbox.RandomID() + "/"}
	var err error
	if e.admin, err = e.open(ctx, p.ttl); err != nil {
		return nil, err
	}
	c, ok := e.admin.(capable)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T does not tell its capabilities", e.admin), e.admin.Close())
	}
	e.caps = c.Capabilities()
	return e, nil
}

func (e *env) close() {
	if err := e.admin.Close(); err != nil {
		e.result.Fail("safety", err)
	}
}

// open returns a client for locks of this TTL.
func (e *env) open(ctx context.Context, ttl time.Duration) (distlock.Locker, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return e.rig.Open(ctx, ttl)
}

// outcome runs a hazard. One that hangs is a finding, not a reason to hang.
func (e *env) outcome(ctx context.Context, run func(context.Context, *env) (report.Outcome, error)) report.Outcome {
	bounded, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	o, err := run(bounded, e)
	switch {
	case err != nil && ctx.Err() != nil:
		return unmeasured(context.Canceled)
	case err != nil:
		return unmeasured(err)
	}
	return o
}

// span writes a duration for a table cell: only two digits are reproducible.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", ms(d))
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms(d))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func spans(ds []time.Duration) string {
	var texts []string
	for _, d := range ds {
		texts = append(texts, span(d))
	}
	return strings.Join(texts, ", ")
}

func series(ds []time.Duration) report.Series {
	var s report.Series
	for _, d := range ds {
		s = append(s, ms(d))
	}
	return s
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
