package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

// fraction and hour are TTLs that no clock of seconds, or of minutes, can keep.
const fraction, hour = 300 * time.Millisecond, time.Hour + 1001*time.Millisecond

// situations are the rows of the table; the first is the plain one.
func situations() []situation {
	return slices.Concat(heldSituations(), pastSituations(), crowdSituations(), besideSituations(), mixedSituations())
}

// heldSituations are of the lock itself.
func heldSituations() []situation {
	return []situation{
		{what: "fresh"},
		{what: "of a fixed term", fixed: true},
		{what: "of an uneven TTL", uneven: true},
		{what: "of an uneven TTL, by Lock", uneven: true, before: func(s *scene) {
			got := s.a.lock(s.name, patience+s.Slack(), s.opts()...)
			if got.err != nil {
				s.breaks("A1")
				s.refused(s.a, got, s.name, "which nobody holds")
			}
			s.h = got.lease
		}},
		{what: "of a short TTL", asked: fraction, exact: true},
		{what: "of a short fixed term", asked: fraction, exact: true, fixed: true},
		{what: "of nearly the shortest TTL", shortest: 3, exact: true, fixed: true},
		{what: "of a long TTL", asked: hour, exact: true},
		{what: "of a long fixed term", asked: hour, exact: true, fixed: true},
		{what: "without a holder text", nameless: true},
		{what: "of the longest name", called: fullLength},
		{what: "of a name beyond ASCII", called: func(base string) string { return base + " \u00e9\u4e16\U0001f512/%41 \\" }},
		{what: "in a name space", needs: capNamespaces, before: func(s *scene) {
			// Where the names are those of others: the same one is held there all the time.
			s.unjudged("one name is two locks here, which the oracles cannot tell apart")
			s.openIn(fmt.Sprint("O", s.n), "other").mustTry(s.name, "which nobody holds in this name space", distlock.TTL(s.long()))
		}},
		{what: "extended", during: func(s *scene) { s.extend(2) }},
		{what: "a fixed term that was extended", fixed: true, during: func(s *scene) { s.extend(2) }},
		{what: "extended twice", fixed: true, during: func(s *scene) { s.extend(2); s.sleep(s.ttl / 8); s.extend(2) }},
		{what: "extended by as much, five times", fixed: true, during: func(s *scene) {
			for range 5 {
				s.sleep(s.ttl / 24)
				s.extend(1)
			}
		}},
		{what: "extended by a month", exact: true, fixed: true, ages: true, during: func(s *scene) { s.extendBy(30*day + 59*time.Second + 999*time.Millisecond) }},
		{what: "extended by less", fixed: true, during: func(s *scene) { s.h.mustExtend(s.fits(s.ttl / 2)) }},
		{what: "extended and renewed since", during: func(s *scene) { s.extend(3); s.sleep(s.ttl * 3 / 4) }},
		{what: "extended again and again", exact: true, during: func(s *scene) {
			for i := range 5 {
				s.extend(time.Duration(1 + min(i, 1)))
				s.sleep(s.ttl / 2)
			}
		}},
		{what: "renewed", during: func(s *scene) { s.sleep(s.ttl * 5 / 4) }},
		{what: "held for an hour", exact: true, during: func(s *scene) { s.sleep(time.Hour) }},
	}
}

// fullLength makes a name as long as names may be.
func fullLength(base string) string { return padded(base, distlock.MaxName) }

// pastSituations are of what was before.
func pastSituations() []situation {
	return []situation{
		{what: "released before", before: func(s *scene) { s.had(s.b).free(); s.apart() }},
		{what: "held by A before", before: func(s *scene) { s.had(s.a).free(); s.had(s.a).free(); s.apart() }},
		{what: "lost by A before", late: true, before: func(s *scene) {
			first := s.had(s.a, distlock.TTL(s.earlier()), distlock.NoRenewal())
			s.sleepUntil(first.gone() + s.skew(first.asked))
			s.h = s.pollFor(s.a, s.name, s.soon(), "A's own lease was over", s.opts()...)
		}},
		{what: "expired before", late: true, before: func(s *scene) {
			dead := s.dead()
			s.sleepUntil(dead.gone() + s.skew(dead.asked))
			s.h = s.pollFor(s.a, s.name, s.soon(), "the lease of its dead holder was over", s.opts()...)
		}},
		{what: "inherited from the dead", before: func(s *scene) {
			dead := s.dead()
			s.gave(nil, dead.gone()-s.now(), "the lease of its dead holder was over")
		}},
		{what: "handed over", before: func(s *scene) {
			first := s.had(s.b)
			s.apart()
			s.gave(func() { first.free() }, 0, "B had unlocked it")
		}},
		{what: "handed over for a long TTL", asked: hour, exact: true, fixed: true, before: func(s *scene) {
			first := s.had(s.b)
			s.apart()
			s.gave(func() { first.free() }, 0, "B had unlocked it")
		}},
		{what: "refused to A before", before: func(s *scene) {
			first := s.had(s.b)
			s.a.mustBeBusy(s.name, first)
			w := s.waits(s.a)
			w.giveUp()
			s.left() // it is taken out of the queue in the background
			first.free()
			s.h = s.take(s.a, s.opts()...)
		}},
		{what: "broken before", needs: canBreak, before: func(s *scene) { s.broken(s.had(s.b)) }},
		{what: "handed over by Break", needs: canBreak, before: func(s *scene) {
			first := s.had(s.b)
			s.gave(func() { s.broken(first) }, 0, "the lock of B was broken")
		}},
		{what: "removed before", needs: capInspector, before: func(s *scene) {
			s.unjudged("an entry is removed behind the back of its holder")
			s.strip(s.had(s.b), s.third)
		}},
		{what: "taken from A before", needs: capInspector, before: func(s *scene) {
			s.unjudged("an entry is removed behind the back of its holder")
			first := s.had(s.a, distlock.TTL(s.Unit()))
			s.strip(first, s.third)
			first.mustLearn(s.now(), fmt.Sprintf("the entry of %q was removed", s.name))
		}},
		{what: "swept before", needs: canSweep, before: func(s *scene) { s.had(s.b).free(); s.sleep(10 * s.poll()); s.swept() }},
	}
}

// crowdSituations are of what others do about the name meanwhile.
func crowdSituations() []situation {
	return []situation{
		{what: "waited for", during: func(s *scene) { s.crowd(s.b, s.third) }},
		{what: "asked for in vain", during: func(s *scene) {
			for _, p := range []*client{s.b, s.third, s.a} {
				p.mustBeBusy(s.name, s.h)
			}
		}},
		{what: "given up by a waiter", during: func(s *scene) {
			for _, p := range []*client{s.b, s.third} {
				s.waits(p).giveUp()
			}
			s.left()
		}},
		{what: "given up by its own client", during: func(s *scene) {
			s.waits(s.a).giveUp()
			s.left()
		}},
		{what: "left by a waiter that died", needs: capProxy, late: true, during: func(s *scene) {
			p := s.openVia(fmt.Sprint("D", s.n))
			s.waits(p, distlock.TTL(s.earlier()))
			p.cutOff()
			s.sleep(2*s.atMost(s.earlier()) + s.timing.ExpiryLag)
			s.lost++
		}},
		{what: "left by a client that closed", during: func(s *scene) {
			s.crowd(s.b, s.third)
			p := s.open(fmt.Sprint("D", s.n))
			s.fresh(p, "")
			w := s.waits(p)
			if err := p.close(); err != nil || !w.within(s.Slack()) {
				s.breach("C1", "%s waited for %q and was closed: %v", p.who, s.name, err)
			}
		}},
		{what: "looked at", during: func(s *scene) {
			ctx, cancel := s.patiently()
			defer cancel()
			for _, p := range []*client{s.b, s.a} {
				_, _ = p.inspect(ctx, s.name) // whatever it says, it changes nothing
				_, _ = p.listed(ctx, s.Name(""))
			}
		}},
		{what: "waited for by its own client", itself: true, during: func(s *scene) { s.crowd(s.a, s.b) }},
		{what: "waited for by a client with a lock that was broken", needs: canBreak, during: func(s *scene) {
			s.crowd(s.b, s.third)
			s.broken(s.fresh(s.b, ""))
		}},
		{what: "swept while held", needs: canSweep, during: (*scene).swept},
		{what: "not broken", needs: canBreak, during: func(s *scene) {
			s.third.mustNotBreak(s.name, s.h.Token()+1, "one more than the holder's")
		}},
	}
}

// besideSituations are of what A has besides.
func besideSituations() []situation {
	return []situation{
		{what: "among sixty", before: func(s *scene) {
			for i := range 60 {
				s.fresh(s.a, fmt.Sprint(i))
			}
		}},
		{what: "beside one unlocked", during: func(s *scene) {
			s.fresh(s.a, "").free()
		}},
		{what: "beside one extended", during: func(s *scene) {
			beside := s.fresh(s.a, "")
			beside.mustExtend(s.extends(s.Unit(), 2*s.Unit()))
		}},
		{what: "extended and renewed beside another", during: func(s *scene) {
			s.fresh(s.a, "")
			s.extend(3)
			s.sleep(s.ttl * 3 / 4)
		}},
		{what: "handed over beside others", before: func(s *scene) {
			for i := range 2 {
				s.fresh(s.a, fmt.Sprint(i))
			}
			first := s.had(s.b)
			s.apart()
			s.gave(func() { first.free() }, 0, "B had unlocked it")
		}},
		{what: "beside one that A waits for", during: func(s *scene) {
			other := s.fresh(s.third, "", distlock.TTL(s.long()))
			s.sleep(s.ttl / 4)
			s.a.mustBeBusy(other.Name(), other)
			s.a.begin(other.Name())
			s.sleep(quiet)
		}},
		{what: "a term beside one that A waits for", fixed: true, during: func(s *scene) {
			other := s.fresh(s.third, "", distlock.TTL(s.long()))
			s.sleep(s.ttl / 4)
			s.a.mustBeBusy(other.Name(), other)
		}},
		{what: "beside one that expired", late: true, during: func(s *scene) {
			beside := s.fresh(s.a, "", distlock.TTL(s.earlier()), distlock.NoRenewal())
			s.sleepUntil(beside.gone())
			_ = beside.unlock() // ErrLost
		}},
	}
}

// mixedSituations are of two things that came together.
func mixedSituations() []situation {
	return []situation{
		{what: "without a holder text, unlike the one before", nameless: true, before: func(s *scene) { s.had(s.b).free() }},
		{what: "a term after another", fixed: true, before: func(s *scene) {
			first := s.had(s.b, distlock.NoRenewal(), distlock.TTL(s.ttl))
			s.sleep(s.ttl / 4)
			first.free()
		}},
		{what: "held before by a client that has closed since", before: func(s *scene) {
			p := s.open(fmt.Sprint("D", s.n))
			s.had(p).free()
			s.h = s.take(s.a, s.opts()...)
			if err := p.close(); err != nil {
				s.breach("C1", "%s, which had held %q and unlocked it, was closed: %v", p.who, s.name, err)
			}
		}},
		{what: "a term that was extended while others waited", fixed: true, during: func(s *scene) {
			s.crowd(s.b, s.third)
			s.extend(2)
		}},
		{what: "renewed while others waited", during: func(s *scene) {
			s.crowd(s.b, s.third)
			s.sleep(s.ttl * 5 / 12)
		}},
		{what: "handed over, and heard of late", needs: capProxy, exact: true, before: func(s *scene) {
			first := s.had(s.b)
			s.apart()
			s.gave(func() { s.a.link.CutReply(2); first.free() }, s.timing.CleanupBound, "B had unlocked it")
			s.a.link.Heal()
		}},
		{what: "renewed again after a renewal that failed", needs: capProxy, exact: true, during: func(s *scene) {
			s.a.link.CutRequest(1)
			s.sleep(s.ttl * 3 / 4)
			s.a.link.Heal()
		}},
		{what: "waited for, the last having given up", during: func(s *scene) {
			s.crowd(s.b, s.third)
			s.waits(s.open(fmt.Sprint("D", s.n))).giveUp()
			s.left()
		}},
		{what: "waited for by the last of some goroutines", during: (*scene).changesGoroutines},
		{what: "asked for by clients that were cut off before", needs: capProxy, before: func(s *scene) {
			for i, p := range []**client{&s.b, &s.third} {
				*p = s.openVia(fmt.Sprintf("%s%d", (*p).who, s.n))
				s.warm(*p)
				[]func(int){(*p).link.CutRequest, (*p).link.DropRequest}[i](1)
				_ = (*p).pair(s.Name("cut off " + s.what))
				(*p).link.Heal()
				s.warm(*p)
			}
		}},
	}
}

// left returns when the waiters that have given up are out of the queue, or when they have had the time for that. That they are
// is judged by after/leaves.
func (s *scene) left() {
	i := s.inspector()
	if s.Virtual() || i == nil || s.queueless.Load() {
		s.sleep(s.timing.CleanupBound)
		return
	}
	s.eventually(s.timing.CleanupBound+s.Slack(), func() bool {
		n, err := i.Waiters(s.ctx, s.name)
		return err == nil && n >= 0 && n <= len(s.queue)
	})
}

// crowd has clients wait for the name, one after the other.
func (s *scene) crowd(peers ...*client) {
	for _, p := range peers {
		s.queue = append(s.queue, s.waits(p))
	}
}

// changesGoroutines has a client wait for the name by one goroutine after the other. What the one that leaves has left
// is removed when the next is there already. That was there before, or comes now: then it is certain which request is held.
func (s *scene) changesGoroutines() {
	p := s.openMortal(fmt.Sprint("B", s.n))
	w := s.waits(p)
	var next *pending
	begin := func() {
		next = p.begin(s.name, distlock.TTL(s.long()), distlock.Holder("waiter"))
		s.sleep(s.poll())
	}
	holds := p.link != nil && s.Virtual()
	leave := func() {
		if holds {
			p.link.HoldRequest(1)
		}
		w.giveUp()
		s.sleep(s.poll())
	}
	for i := range 4 {
		steps := [2]func(){begin, leave}
		steps[i%2]()
		steps[1-i%2]()
		if holds {
			p.link.Release()
		}
		w = next
	}
	s.queue = []*pending{w}
	s.left()
}
