package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
	"github.com/distlock-go/distlock/internal/canary"
)

const (
	beatEvery = 250 * time.Millisecond

	// beatsBefore is how many looks in a row must have found the store well before
	// one that does not counts: a driver that never works is no silent store.
	beatsBefore = 3
)

// pulse looks at the store beside the checks, by a client of its own. While that got
// no answer, what a check has seen says nothing of the driver.
type pulse struct {
	mu      sync.Mutex
	silence []silence
	slow    latencies // of looks
	asking  time.Time // when the look that is under way began; zero without one
}

// slowLook is what a look takes at the least to be kept. A renewal is sent two thirds of a TTL before its lock
// ends, and the shortest TTLs in real time are half a second.
const slowLook = 50 * time.Millisecond

// silence is a time without an answer of the store.
type silence struct {
	from, to time.Time
	why      string
}

// latencies are the times that took slowLook or longer.
type latencies struct {
	mu   sync.Mutex
	long []silence
}

// since notes a time that ends now, and returns its end.
func (l *latencies) since(from time.Time) (now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now = time.Now(); now.Sub(from) >= slowLook {
		l.long = append(l.long, silence{from: from, to: now})
	}
	return now
}

// longest returns how long the longest took of those that were not over by then.
func (l *latencies) longest(by time.Time) (took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.long {
		if s.to.After(by) {
			took = max(took, s.to.Sub(s.from))
		}
	}
	return took
}

// watch starts the pulse and the canary of a suite in real time. The function returned
// ends them.
func (s *suite) watch() (stop func()) {
	if s.opts.VirtualTime {
		return func() {}
	}
	s.canary = canary.StartRecording()
	c := s.newC(Check{ID: "pulse"})
	var over sync.WaitGroup
	if s.outages != nil {
		over.Go(func() { s.outages.watch(c.ctx) })
	}
	if s.trouble == "" { // else it may hang
		over.Go(func() {
			over := make(chan struct{})
			go func() { // of its own, because a verdict ends it
				defer close(over)
				s.beat(c, c.openPulse())
			}()
			<-over
			c.closeAll()
			c.cleanUp()
		})
	}
	return func() {
		c.stop(errStopped)
		over.Wait()
		s.canary.Stop()
	}
}

// openPulse opens the client of the pulse, and tries again if that fails: a whole run would have no pulse for one connection that
// broke.
func (c *C) openPulse() *client {
	for {
		ctx, cancel := c.patiently()
		l, err := c.harness.Open(ctx, c)
		cancel()
		if err == nil {
			p := &client{c: c, who: "pulse", locker: l}
			c.own(p)
			return p
		}
		c.sleep(beatEvery)
	}
}

// beat takes and frees a lock now and then, but not while a check runs alone: it may
// be about to stop the server.
func (s *suite) beat(c *C, p *client) {
	name := c.Name("pulse")
	for well := 0; ; c.sleep(beatEvery) {
		s.alone.RLock()
		began := s.pulse.ask()
		err := p.pair(name)
		ended := s.pulse.answered(began)
		s.alone.RUnlock()
		switch took := ended.Sub(began); {
		case c.ctx.Err() != nil:
			return
		case err == nil && took+beatEvery <= s.Slack: // it may have begun so much earlier
			well++
		case well >= beatsBefore && err != nil:
			s.pulse.note(silence{began, ended, err.Error()})
		case well >= beatsBefore:
			s.pulse.note(silence{began, ended, fmt.Sprintf("it took %v", took.Round(time.Millisecond))})
		}
	}
}

// pair takes and frees a lock. It returns nil if the store answered, whatever that was.
func (p *client) pair(name string) error {
	ctx, cancel := context.WithTimeout(p.c.ctx, patience)
	defer cancel()
	var err error
	p.bounded(ctx, "TryLock", name, func() {
		var l distlock.Lock
		if l, err = p.locker.TryLock(ctx, name, distlock.TTL(p.c.Unit())); err == nil {
			err = l.Unlock(ctx)
		}
	})
	if errors.Is(err, distlock.ErrHeld) || errors.Is(err, distlock.ErrLost) {
		return nil
	}
	return err
}

// ask begins a look.
func (p *pulse) ask() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = time.Now()
	return p.asking
}

// answered ends a look.
func (p *pulse) answered(began time.Time) (ended time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = time.Time{}
	return p.slow.since(began)
}

// slowest returns the longest look that was under way since from.
func (p *pulse) slowest(from time.Time) (took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asking.IsZero() {
		took = time.Since(p.asking)
	}
	return max(took, p.slow.longest(from))
}

func (p *pulse) note(s silence) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence = append(p.silence, s)
}

// between returns what was noted of a time, or nothing.
func (p *pulse) between(from, to time.Time) (why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.silence {
		if s.from.Before(to) && from.Before(s.to) {
			return fmt.Sprintf("the store did not answer another client for %v meanwhile: %s", s.to.Sub(s.from).Round(time.Millisecond), s.why)
		}
	}
	return ""
}

// slowestTry returns the longest that another client has waited for the answer to a TryLock since h was granted, or that
// the one took by which h was: that is over before the first renewal. It sees what falls between two looks of the pulse.
func (c *C) slowestTry(h *lease) (took time.Duration) {
	if c.Virtual() {
		return 0
	}
	for _, e := range c.recorder.History().Events {
		another := e.Client != h.p.who && e.Call.At > h.ret
		own := !h.p.delayed && e.Client == h.p.who && e.Name == h.Name() && e.Call.At >= h.call && e.Return.At <= h.ret
		answered := e.Outcome == oracle.OutcomeOK || e.Outcome == oracle.OutcomeHeld // others may be meant to hang
		if e.Op == oracle.OpTry && answered && (another || own) {
			took = max(took, e.Return.At-e.Call.At)
		}
	}
	return took
}

// watchStore has a client of its own ask the store until the check ends, and what it waits for answers counts for stood. It
// asks more often than the pulse, over a link as clients that are judged do. It is for checks that keep many renewed locks.
func (c *C) watchStore() {
	if c.Virtual() {
		return
	}
	p := c.openMortal("C")
	c.Go(func() {
		for {
			c.sleep(quiet / 3)
			p.timeStore()
		}
	})
}

// timeStore has p ask the store. What it waits for the answer counts for stood, also while it waits.
func (p *client) timeStore() {
	c := p.c
	began := c.now()
	c.setAsking(began)
	_ = p.pair(c.Name("timed"))
	c.noteStall(c.now() - began)
	c.setAsking(0)
}

func (c *C) setAsking(since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = since
}

// stall is a time for which the store has not answered, or the machine was late, and when that was over.
type stall struct{ took, ended time.Duration }

// noteStall makes stood aware of a time that has just ended, for which the store has not answered or the machine was late.
func (c *C) noteStall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalls = append(c.stalls, stall{d, c.now()})
}

// stood returns the longest time for which the machine or the store stood still since a stamp, as far as it was seen: by the
// canary, by the pulse and by the check.
func (c *C) stood(since time.Duration) time.Duration {
	if c.slowest == nil {
		return 0
	}
	worst := c.slowest(time.Now().Add(since - c.now()))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking > 0 {
		worst = max(worst, c.now()-c.asking)
	}
	for _, s := range c.stalls {
		if s.ended > since {
			worst = max(worst, s.took)
		}
	}
	return worst
}

// late is stood, or the longest that a client has taken to connect: so may one that was cut off.
func (c *C) late(since time.Duration) time.Duration {
	return max(c.stood(since), c.openings.slowest(time.Now().Add(since-c.now())))
}

// excuse makes the check inconclusive if the machine or the store has stood still since then for an eighth of ttl: a lock that
// is renewed may be lost then.
func (c *C) excuse(since, ttl time.Duration, name string, lost error) {
	if stood := c.late(since); stood > ttl/8 {
		c.Inconclusivef("%q was lost, but the machine or the store stood still for %v meanwhile: %v", name, stood, lost)
	}
}

// mayGiveUp is for how long the store may keep another client waiting until what a check has seen may be due to that: half of
// what drivers wait for a connection.
const mayGiveUp = 2500 * time.Millisecond

// excuse turns a failure into an inconclusive result, unless an oracle found it, if the store was silent while the check ran, or
// shortly before. What is no question of two holders or of a token, nor a hang, is excused by less: if the machine or the store
// stood still for half of the unit, any lease may have ended meanwhile. Then the next attempt has a longer unit. However long
// that is, a driver that has to connect may give up after a few seconds. It reports whether Options.Look has told of an outage meanwhile.
func (s *suite) excuse(c *C, began time.Time) (unanswered bool) {
	if s.opts.VirtualTime {
		return false
	}
	stood := c.late(c.now() - time.Since(began))
	c.mu.Lock()
	excusable := !c.convicted && (c.status == Failed || c.status == Inconclusive)
	c.mu.Unlock()
	if !excusable {
		return false
	}
	why := s.outages.since(began)
	unanswered = why != ""
	if why == "" && !c.check.Alone {
		why = s.pulse.between(began.Add(-beatEvery), time.Now())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clause := c.blamed()
	if why == "" && c.status == Failed && !c.broken && clause != "H1" && clause != "F1" && stood > min(c.cal.Unit/2, mayGiveUp) {
		why = fmt.Sprintf("the machine or the store stood still for %v meanwhile", stood.Round(time.Millisecond))
	}
	if why != "" {
		c.status, c.clause, c.reason = Inconclusive, "", why+"; otherwise: "+c.reason
	}
	return unanswered
}
