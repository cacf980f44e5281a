package conformance

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
)

// vacated is vacate while A may be stopped with what keeps B from it in the process, such as a file lock: then A goes on,
// and it returns false.
func (s *pairScene) vacated() bool {
	s.lapsed()
	var asking, stuck atomic.Bool
	asking.Store(true)
	over := make(chan struct{})
	s.c.Go(func() { defer close(over); s.vacate() })
	s.unblock(over, &asking, &stuck)
	return !stuck.Load()
}

// unblock waits until B is over. If A has what keeps B from going on, such as a file lock, A
// goes on, and B is stuck. That is not told by time alone: beside load a step may be slow.
func (s *pairScene) unblock(over <-chan struct{}, asking, stuck *atomic.Bool) {
	c := s.c
	if s.steps == nil {
		c.within(over, 24*time.Hour)
		return
	}
	last, since := -1, c.now()
	for !c.within(over, 10*c.poll()) {
		if n := s.steps.steps(); n != last || !asking.Load() {
			last, since = n, c.now()
		}
		if stuck.Load() || c.now()-since < stuckAfter {
			continue
		}
		s.othersPass()
		if s.steps.steps() == last && asking.Load() {
			stuck.Store(true)
			s.gate.release()
		}
	}
}

// othersPass has C take and free another name a few times: a client that makes no step meanwhile is not merely slow.
func (s *pairScene) othersPass() {
	passed := make(chan struct{})
	s.c.Go(func() {
		defer close(passed)
		for range 3 {
			if a := s.third.try(s.name+"-beside", distlock.NoRenewal()); a.err == nil {
				a.free()
			}
		}
	})
	s.c.within(passed, standsAfter)
}

// lapsed waits until the lease of a holder that was cut off is over.
func (s *pairScene) lapsed() {
	if s.op.lapses && s.other != nil {
		s.c.sleepUntil(s.other.gone())
		s.other = nil
	}
}

// vacate has B free the name, if it had it before. The oracles judge what it is told.
func (s *pairScene) vacate() {
	if s.other != nil {
		_ = s.other.unlock()
		s.other = nil
	}
}

// spares has A go on, and demands that B keeps what it has.
func (s *pairScene) spares(next *lease, because string) {
	if s.goesOn() && s.c.now() < next.end() {
		s.c.breach(s.op.clause, "A was told ok although B has %q: %s", s.name, because)
	}
	s.intact(next, because)
}

// outranks has A go on when B has unlocked the name, and demands that a grant of A has the higher token. It returns false if A
// keeps B from that.
func (s *pairScene) outranks(next *lease, because string) bool {
	s.other = next
	if !s.vacated() {
		return false
	}
	s.goesOn()
	s.gate.heal()
	if s.c.within(s.told, patience+s.c.Slack()) && s.got != nil && s.got.Err() == nil && s.got.Token() <= next.Token() {
		s.c.breach("F1", "A was granted %q with token %d when B, which had it with token %d, had unlocked it: a token is drawn in the step that takes the name: %s",
			s.name, s.got.Token(), next.Token(), because)
	}
	return true
}

// outlast waits until the lease of A is over, and looks shortly before whether its entry is there.
func (s *pairScene) outlast(try func(...distlock.Option) answer) {
	s.c.sleepUntil(s.held.Ends() - s.ttl/8)
	if s.waiter != nil {
		s.kept = !s.waiter.within(0)
	} else if a := try(distlock.NoRenewal()); a.err == nil {
		a.free()
	} else {
		s.kept = a.busy()
	}
	s.c.sleepUntil(s.held.Ends())
}

// breakHeld ends the hold of A from outside. A driver that looks at its context before it acts, and so lets go of a lease that
// has run out, is not seen by outlast: the engine gives no renewal more than two thirds of the time left. It returns false if nothing
// but errors of the store came for as long as A's lease lasts: A, which is stopped, may keep B out.
func (s *pairScene) breakHeld() bool {
	c, token := s.c, s.held.Token()
	for until := s.held.end(); ; c.sleep(c.Unit() / 100) {
		ctx, cancel := c.patiently()
		err := s.b.breakHold(ctx, s.name, token)
		cancel()
		switch {
		case err == nil, errors.Is(err, distlock.ErrLost): // an Unlock may be through
			return true
		case definite(err):
			c.breach("O2", "B broke the hold of A with its token %d, and Break returned: %v", token, err)
		case c.now()+c.Unit()/100 >= until: // after that the hold has ended by itself
			return false
		}
	}
}

// served has the waiter get the name, and unlock it. It returns false if A keeps it from that by what
// it has in the process, such as a file lock; A goes on then.
func (s *pairScene) served() bool {
	if s.steps != nil && !s.waiter.within(max(0, s.held.gone()+s.c.soon()-s.c.now())) {
		s.gate.release()
		return false
	}
	s.waiter.woken(s.held.granted()+s.c.timing.ExpiryLag+s.c.soon(), "the lease of A, who was stopped, is over").free()
	s.kept = s.kept && s.waiter.a.ret >= s.held.Ends() // it may have been woken just before
	return true
}

// mustBeReleased demands that the name is free if A, which is stopped still, was told that its Unlock has succeeded.
func (s *pairScene) mustBeReleased() {
	if !s.op.unlocks() || !s.kept || s.waiter != nil {
		return
	}
	switch a := s.third.try(s.name, distlock.NoRenewal()); {
	case a.err == nil:
		a.free()
	case a.busy():
		s.c.breach("H6", "A unlocked %q and was told ok, although its request or step %d is stopped; C is told that it is held still", s.name, s.k)
	}
}
