package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

func onceChecks() []Check {
	return []Check{
		{ID: "once/per-period", Clause: "P2", Mandatory: true, Run: oncePerPeriod,
			Rule: "a job that has run does not run again within its period, less a tenth, in whatever process; then it does"},
		{ID: "once/failed-run", Clause: "P2", Mandatory: true, Run: onceFailedRun,
			Rule: "a run that has failed does not use up the period"},
		{ID: "once/long-run", Clause: "P2", Mandatory: true, Run: onceLongRun,
			Rule: "a run that takes longer than the period keeps others from running until it is over"},
	}
}

// period is what the checks give a job. A driver keeps it as a fixed term.
func (c *C) period() time.Duration { return c.fits(2 * c.Unit()) }

// between is the pause between two attempts to run a job: a hundredth of its period, which is little beside the tenth by
// which it may run early. Each attempt is a lock and an unlock.
func (c *C) between(period time.Duration) time.Duration { return max(c.poll(), period/100) }

// job runs fn once per period, and reports whether it has run.
func (p *client) job(name string, period time.Duration, fn func(context.Context) error) bool {
	ran, err := p.oncePer(p.c.ctx, name, period, fn)
	if err != nil {
		p.c.unheard(err, p.who, name)
		p.c.Failf("%s: OncePer(%q, %v) returned: %v", p.who, name, period, err)
	}
	return ran
}

func (p *client) mustRun(name string, period time.Duration, why string) (at time.Duration) {
	if !p.job(name, period, func(context.Context) error { at = p.c.now(); return nil }) {
		p.c.Failf("%s did not run the job %q, although %s", p.who, name, why)
	}
	return at
}

func oncePerPeriod(c *C) {
	a, b := c.open("A"), c.open("B")
	name, period := c.Name("x"), c.period()
	before := c.now() // the run's own time may be long after that of the store
	runner := c.open("C")
	first := runner.mustRun(name, period, "it has never run")
	outlives := runner.keepsRecords()
	if outlives {
		broken, long, began := c.Name("broken"), c.fits(10*c.Unit()), c.now()
		runner.mustRun(broken, long, "it has never run")
		runner.mustClose()
		_, _ = a.sweepIdle(c.ctx, time.Nanosecond) // touches nothing that is held
		if a.breaksRecord(broken, runner, began+long-long/10-c.skew(long)) {
			b.mustRun(broken, long, "A has broken the record of its run")
		}
	}
	// The last word is the store's, which may round up; the rest is a plain lease.
	latest := c.atMost(period) + c.timing.ExpiryLag + c.soon()
	for i := 0; ; i++ {
		p, again := []*client{b, a}[i%2], time.Duration(0)
		late := c.past(first+latest-c.soon(), first+latest)
		if p.job(name, period, func(context.Context) error { again = c.now(); return nil }) {
			if again-before < period-period/10-c.skew(period) {
				c.Failf("%s ran the job %q at %s, and %s ran it again at %s, in a period of %v", runner.who, name, millis(first), p.who, millis(again), period)
			}
			return
		}
		if i == 0 && outlives {
			if st, err := a.inspect(c.ctx, name); err == nil && !st.Held && c.now() < first+period/2 {
				c.breach("O1", "%s ran the job %q at %s, in a period of %v, and was closed; by Inspect nobody holds it: %+v", runner.who, name, millis(first), period, st)
			}
		}
		if late {
			c.doubt(first+latest-c.soon(), first+latest)
			c.Failf("%s ran the job %q at %s, and nobody can run it at %s, in a period of %v", runner.who, name, millis(first), millis(c.now()), period)
		}
		c.sleep(c.between(period))
	}
}

// keepsRecords reports whether OncePer can have Close leave a record in the store.
func (p *client) keepsRecords() bool {
	h := p.mustTry(p.c.Name("kept"), "which is fresh", distlock.NoRenewal())
	defer h.free()
	_, keeps := h.record()
	return keeps
}

// breaksRecord breaks the record that the run of a closed client has left, which lasts until an instant. It reports whether it has
// done so: a driver may lack what that needs.
func (p *client) breaksRecord(name string, runner *client, until time.Duration) bool {
	st, err := p.inspect(p.c.ctx, name)
	if err != nil || !st.Held || st.Token == 0 {
		return false
	}
	err = p.breakHold(p.c.ctx, name, st.Token)
	if p.c.now() >= until {
		p.c.Inconclusivef("%s came too late to break the record of %q, which may have ended at %s", p.who, name, millis(until))
	}
	if err != nil && !errors.Is(err, distlock.ErrUnsupported) {
		p.c.unheard(err, p.who, name)
		p.c.breach("O2", "%s ran the job %q and was closed; %s saw its record with token %d, and Break with that returned: %v", runner.who, name, p.who, st.Token, err)
	}
	return err == nil
}

func onceFailedRun(c *C) {
	a, b := c.open("A"), c.open("B")
	period := c.period()
	for i, failed := range []error{errors.New("the job has failed"), fmt.Errorf("the job was stopped: %w", context.Canceled), context.DeadlineExceeded} {
		name := c.Name(fmt.Sprint("x", i))
		ran, err := a.oncePer(c.ctx, name, period, func(context.Context) error { return failed })
		if !ran || !errors.Is(err, failed) {
			c.Failf("A's job %q has failed; OncePer returned %v, %s", name, ran, describe(err))
		}
		b.mustRun(name, period, fmt.Sprintf("the only run of it has failed, with %q", failed))
	}
	name := c.Name("panics")
	func() {
		defer func() { _ = recover() }() // it may come here, or be an error
		_, _ = a.oncePer(c.ctx, name, period, func(context.Context) error { panic("the job has panicked") })
	}()
	b.mustRun(name, period, "the only run of it has panicked")
}

func onceLongRun(c *C) {
	a, b := c.open("A"), c.open("B")
	name, period := c.Name("x"), c.period()
	c.watchStore() // the record is extended again a tenth of the period before its end
	call := c.now()
	began, over := make(chan struct{}), make(chan struct{})
	var run context.Context // of A's job; its end is the loss of the record, which A is told
	c.Go(func() {
		_, err := a.oncePer(c.ctx, name, period, func(ctx context.Context) error {
			run = ctx
			close(began)
			c.comes(ctx.Done(), period*3/2)
			close(over)
			return context.Cause(ctx)
		})
		if err != nil {
			c.excuse(call, period/5, name, err)
			c.Failf("A's job %q took %v, and OncePer(%v) returned: %v", name, period*3/2, period, err)
		}
	})
	if !c.within(began, patience+c.Slack()) {
		c.Failf("A has not begun to run the job %q, which has never run, within %v", name, patience+c.Slack())
	}
	for running := true; running; {
		b.job(name, period, func(context.Context) error {
			select {
			case <-over:
			case <-run.Done():
			default: // after a stop of the machine, A may be told of its loss later than B gets the name
				at := c.now()
				c.excuse(call, period/5, name, fmt.Errorf("another ran the job at %s", millis(at)))
				c.Failf("B ran the job %q at %s while A's run was still under way", name, millis(at))
			}
			running = false
			return nil
		})
		select {
		case <-over:
			running = false
		default:
			c.sleep(c.between(period))
		}
	}
}
