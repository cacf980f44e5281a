package conformance

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock/conformance/oracle"
)

const (
	// maxAttempts is how often a check is run until it is conclusive. Only an
	// inconclusive one is run again: to repeat a failed one would hide what goes
	// wrong one time in three.
	maxAttempts = 4

	// grace is what a check that has been decided has for ending its goroutines and
	// closing its clients. Each may take ten seconds if its server hangs.
	grace = 45 * time.Second

	// maxDump bounds the goroutine dump of a check that hangs.
	maxDump = 24 << 10
)

// examine runs a check until it is conclusive.
func (s *suite) examine(k Check) Result {
	if status, lacks, why := s.missing(k); why != "" {
		c := s.newC(k)
		c.missing = lacks
		c.verdict(status, why)
		return s.pinned(s.result(c))
	}
	if k.Heavy {
		s.heavy <- struct{}{}
		defer func() { <-s.heavy }()
	}
	if k.Alone {
		s.alone.Lock()
		defer s.alone.Unlock()
	} else {
		s.alone.RLock()
		defer s.alone.RUnlock()
	}
	began := time.Now()
	cal := s.Calibration
	var before []string // why it was run again
	for n := 1; ; n++ {
		c := s.newC(k)
		cal.follow(s.slowest(time.Now().Add(-lately)))
		c.cal = cal
		started := time.Now()
		c.run()
		unanswered := s.excuse(c, started)
		if c.status != Inconclusive || n == maxAttempts || s.ctx.Err() != nil {
			if unanswered && c.status == Inconclusive {
				s.outages.spoilt()
			}
			r := s.result(c)
			r.Attempts, r.Took, r.Log = n, time.Since(began), append(before, r.Log...)
			return s.pinned(r)
		}
		before = append(before, fmt.Sprintf("attempt %d, with a unit of %v, was inconclusive: %s", n, cal.Unit, c.shorten(c.reason)))
		cal.Unit, cal.Short = s.timing.fitUnit(2*cal.Unit), 2*cal.Short
	}
}

// missing names a capability that a check needs and the harness lacks.
func (s *suite) missing(k Check) (status Status, lacks Cap, why string) {
	for _, need := range k.Needs {
		switch support, known := s.caps.of(need); {
		case !known:
			return Failed, "", fmt.Sprintf("needs %q, and there is no such capability", need)
		case support == No:
			return Skipped, need, fmt.Sprintf("needs the capability %s, which is declared as no", need)
		case support != Yes:
			return Skipped, need, fmt.Sprintf("needs the capability %s, which is not declared", need)
		}
	}
	return "", "", ""
}

// pinned fails a check that was skipped against expectation, or was not.
func (s *suite) pinned(r Result) Result {
	if s.opts.Skips == nil {
		return r
	}
	listed := slices.Contains(s.opts.Skips, r.ID)
	switch {
	case r.Status == Skipped && !listed:
		r.Status = Failed
		r.Reason = fmt.Sprintf("it was skipped (%s) and Options.Skips does not list it: give the harness what the check needs, or list it", r.Reason)
	case listed && r.Status != Skipped:
		r.Reason = strings.TrimSuffix(fmt.Sprintf("Options.Skips lists it, but it was not skipped (outcome: %s): remove it from the list; %s", r.Status, r.Reason), "; ")
		r.Status = Failed
	}
	return r
}

// run runs the check to its end, or to that of its time.
func (c *C) run() {
	began := c.now()
	var watchdog *time.Timer
	ready := make(chan struct{})
	watchdog = time.AfterFunc(c.budget(), func() {
		<-ready
		if c.ctx.Err() != nil {
			return
		}
		budget := c.budget() + c.credit()
		if left := began + budget + c.lateness(began, c.now()) - c.now(); left > 0 {
			watchdog.Reset(left)
			return
		}
		c.collapse(fmt.Sprintf("it did not end within %v; the goroutines that hang:\n%s", budget, dump()))
	})
	close(ready)
	defer watchdog.Stop()
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.body()
	}()
	<-c.ctx.Done()
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-over:
	case <-limit.C:
		c.collapse(fmt.Sprintf("it did not end within %v of being told to; the goroutines that hang:\n%s", grace, dump()))
	}
}

// body runs the check and everything that has to come after it, whatever comes of
// it.
func (c *C) body() {
	done := make(chan struct{})
	go func() { // of its own, because a verdict ends it
		defer close(done)
		c.contain(func() { c.check.Run(c) })
	}()
	<-done
	c.stop(errStopped)
	c.helpers.Wait()
	c.closeAll()
	c.cleanUp()
	c.conclude()
}

// cleanUp calls what Cleanup has registered.
func (c *C) cleanUp() {
	c.mu.Lock()
	cleanups := c.cleanups
	c.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		c.contain(f)
	}
}

// conclude adds what can be said only after the end.
func (c *C) conclude() {
	c.mu.Lock()
	passed, lawless, need := c.status == "", c.lawless != "", c.needFired
	judge := oracle.Judge
	if c.simple {
		judge = oracle.JudgeRules
	}
	c.mu.Unlock()
	if fired := c.fired(); passed && fired < need {
		c.verdict(Inconclusive, fmt.Sprintf("the faults took effect %d times, %d are needed to prove something; do all connections of OpenVia go through its link?", fired, need))
	}
	if lawless {
		return
	}
	switch v := judge(c.recorder.History()); {
	case len(v.Findings) > 0:
		c.convict(v.Findings)
	case passed && v.Inconclusive != "":
		c.verdict(Inconclusive, v.Inconclusive)
	}
}

// convict fails a check over its history, also if it is inconclusive otherwise:
// what the oracles find is no question of time. If the check has failed already, that
// comes second: it is mostly what followed from the fault, such as an Unlock by one of
// two holders that is told of a loss. But a check that has named the broken clause
// itself knows more than its history.
func (c *C) convict(findings []oracle.Finding) {
	var texts []string
	for _, f := range findings {
		texts = append(texts, fmt.Sprintf("%s oracle: %s", f.Oracle, f.Text))
	}
	text := strings.Join(texts, "\n")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.convicted = true
	if c.status == Failed {
		if c.clause != "" {
			c.logs = append(c.logs, text)
			return
		}
		text += "\nbesides: " + c.reason
	}
	c.status, c.reason, c.clause = Failed, text, findings[0].Clause
}

// budget is when a check is given up: a broken lock mostly hangs.
func (c *C) budget() time.Duration {
	d := time.Minute + 20*c.Unit() + 10*c.timing.ExpiryLag + 4*c.Slack()
	if c.Virtual() {
		d += c.check.span
	}
	return d
}

// maxCredit is more calls than any check makes in real time, and few enough for one that hangs beside calls that return.
const maxCredit = 3000

// credit is what a check has beyond its budget: some check hundreds of names, and a slow store takes its time for each. A
// fast one adds next to nothing, and so do calls that hang.
func (c *C) credit() time.Duration {
	answered := 0
	for _, e := range c.recorder.History().Events {
		if e.Op != oracle.OpBelief && (e.Outcome == oracle.OutcomeOK || e.Outcome == oracle.OutcomeHeld) {
			answered++
		}
	}
	return time.Duration(min(answered, maxCredit)) * c.cal.Pair
}

// dump returns the stacks of the goroutines that have to do with locks.
func dump() string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var kept []byte
	for stack := range bytes.SplitSeq(buf, []byte("\n\n")) {
		if !bytes.Contains(stack, []byte("distlock")) || bytes.Contains(stack, []byte("conformance.dump")) {
			continue
		}
		kept = append(append(kept, stack...), "\n\n"...)
		if len(kept) > maxDump {
			kept = append(kept[:maxDump], "…"...)
			break
		}
	}
	return string(kept)
}
