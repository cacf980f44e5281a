package compare

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/place"
)

// Why a hazard was not measured.
const (
	noServer  = "not measured: the store is in this process"
	noControl = "not measured: no control of the server"
	noRoute   = "not measured: no proxy can stand before this URL"
	noChild   = "not measured: no second process to be had"
)

// patience bounds what takes a moment on a machine that is not in trouble.
const patience = 15 * time.Second

// dose is how much of everything there is.
type dose struct {
	ttl         time.Duration // of the holders that something happens to
	repeats     int
	waiters     int // of a herd
	stress      time.Duration
	queue       int // waiters whose order is looked at
	longTTL     time.Duration
	restartTTL  time.Duration
	spell       time.Duration // of the run for fairness, if there was none
	maxAttempts int           // with twice the TTL each time, if the machine was too slow
	patience    time.Duration // beyond every lease, before a name counts as stuck and a holder as never told
}

// fullDose takes less than two minutes for four backends. The TTL is what all four
// can do and what a busy machine can keep up with; the long one is what ZooKeeper
// takes with its default ticks.
func fullDose() dose {
	return dose{
		ttl: 2 * time.Second, repeats: 3, waiters: 100, stress: 8 * time.Second, queue: 8,
		longTTL: 20 * time.Second, restartTTL: 10 * time.Second, spell: time.Second, maxAttempts: 3, patience: patience,
	}
}

// hazards in the order in which they are run: those of a group at the same time, for
// most of it is waiting, and the restart, which disturbs all others, alone.
var hazards = []struct {
	id    Hazard
	group int
	title string
	lacks func(r Rig) string // why it cannot be measured, or ""
	run   func(ctx context.Context, l *lab) (Outcome, error)
}{
	{KilledHolder, 0, "killed holder", lacksChild, killedHolder},
	{StalledHolder, 0, "stalled holder", lacksChild, stalledHolder},
	{CutOffHolder, 0, "cut-off holder", lacksRoute, cutOffHolder},
	{CancelledWaiter, 0, "cancelled waiter", lacksNothing, cancelledWaiter},
	{Herd, 1, "herd", lacksRoute, herd},
	{Fairness, 2, "fairness", lacksNothing, fairness},
	{DoubleGrants, 3, "double grants", lacksNothing, doubleGrants},
	{ServerRestart, 4, "server restart", lacksControl, serverRestart},
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

// Hazards has everything go wrong on each target that can be made to go wrong
// there, and fills in Safety of its backend in the report, which must be that of the
// same targets. The targets are examined at the same time. If ctx ends
// early, what had not been measured says so. progress is not called concurrently.
func Hazards(ctx context.Context, r *Report, targets []Target, progress func(Step)) {
	expose(ctx, r, targets, fullDose(), progress)
}

func expose(ctx context.Context, r *Report, targets []Target, d dose, progress func(Step)) {
	told := &steps{total: len(hazards) * len(targets), tell: progress}
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() { exposeOne(ctx, r.Backends[i], t, d, told) })
	}
	all.Wait()
	r.Interrupted = r.Interrupted || ctx.Err() != nil
	r.Finished = time.Now()
}

// steps counts the hazards that are over, on all targets.
type steps struct {
	mu          sync.Mutex
	done, total int
	tell        func(Step)
}

func (s *steps) over(doing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	s.tell(Step{Done: s.done, Total: s.total, Doing: doing})
}

func exposeOne(ctx context.Context, b *Backend, t Target, d dose, told *steps) {
	b.Safety = make(map[Hazard]Outcome)
	var l *lab
	err := b.refusal()
	if err == nil {
		l, err = newLab(ctx, b, t, d)
	}
	var mu sync.Mutex
	for from := 0; from < len(hazards); {
		to := from
		var group sync.WaitGroup
		for ; to < len(hazards) && hazards[to].group == hazards[from].group; to++ {
			h := hazards[to]
			group.Go(func() {
				o := unmeasured(err)
				if why := h.lacks(t.Rig); why != "" {
					o = Outcome{Verdict: Unmeasured, Text: why}
				} else if err == nil {
					o = l.outcome(ctx, h.run)
				}
				mu.Lock()
				b.Safety[h.id] = o
				mu.Unlock()
				told.over(t.Name + ": " + h.title)
			})
		}
		group.Wait()
		from = to
	}
	if l != nil {
		l.close()
	}
}

// refusal returns why the workloads could not open the backend.
func (b *Backend) refusal() error {
	if why := b.Failed["open"]; why != "" {
		return errors.New(why)
	}
	return nil
}

func unmeasured(err error) Outcome {
	if err == nil {
		return Outcome{}
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
	return Outcome{Verdict: Unmeasured, Text: text, Detail: err.Error()}
}

// lab is a target with what the hazards need of it.
type lab struct {
	dose
	target Target
	rig    Rig
	result *Backend
	caps   distlock.Capabilities
	prefix string          // random: names of this run meet nobody else's
	admin  distlock.Locker // for looks into the store
}

// capable is implemented by every Locker that has a Client inside.
type capable interface{ Capabilities() distlock.Capabilities }

func newLab(ctx context.Context, b *Backend, t Target, d dose) (*lab, error) {
	l := &lab{dose: d, target: t, rig: t.Rig, result: b, prefix: "safety-" + place.RandomID() + "/"}
	if l.rig.Open == nil {
		l.rig.Open = func(ctx context.Context, _ time.Duration) (distlock.Locker, error) { return t.Open(ctx) }
	}
	var err error
	if l.admin, err = l.open(ctx, d.ttl); err != nil {
		return nil, err
	}
	c, ok := l.admin.(capable)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T does not tell its capabilities", l.admin), l.admin.Close())
	}
	l.caps = c.Capabilities()
	return l, nil
}

func (l *lab) close() {
	if err := l.admin.Close(); err != nil {
		l.result.fail("safety", err)
	}
}

// fail records that something of a backend did not work.
func (b *Backend) fail(what string, err error) {
	if b.Failed == nil {
		b.Failed = make(map[string]string)
	}
	b.Failed[what] = err.Error()
}

// open returns a client for locks of this TTL.
func (l *lab) open(ctx context.Context, ttl time.Duration) (distlock.Locker, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return l.rig.Open(ctx, ttl)
}

// outcome runs a hazard. One that hangs is a finding, not a reason to hang.
func (l *lab) outcome(ctx context.Context, run func(context.Context, *lab) (Outcome, error)) Outcome {
	bounded, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	o, err := run(bounded, l)
	switch {
	case err != nil && ctx.Err() != nil:
		return unmeasured(context.Canceled)
	case err != nil:
		return unmeasured(err)
	}
	return o
}

// span writes a duration for a table cell: two digits are all that is reproducible.
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

func series(ds []time.Duration) Series {
	var s Series
	for _, d := range ds {
		s = append(s, ms(d))
	}
	return s
}
