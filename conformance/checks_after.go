package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

// afterChecks are a table: each of them is an effect, judged in each situation that a name
// can be in.
func afterChecks() []Check {
	var all []Check
	for _, e := range effects() {
		all = append(all, Check{ID: "after/" + e.id, Clause: e.clause, Mandatory: true, Needs: e.needs, span: 12 * time.Hour, Run: func(c *C) { c.after(e) },
			Rule: "whatever was before, and whatever happens meanwhile: " + e.rule})
	}
	return all
}

func effects() []effect {
	return []effect{
		{id: "excludes", clause: "H1", judge: excludes, rule: "nobody else gets a name that is held, nor does its holder a second time, and all are told so"},
		{id: "told", clause: "A6", judge: told, rule: "what a refusal says of the holder is so"},
		{id: "frees", clause: "H6", judge: frees, rule: "Unlock frees the name at once, for good, and for no other than the next"},
		{id: "woken", clause: "W1", judge: woken, rule: "Unlock wakes the next, and that one's the next after it"},
		{id: "order", clause: "W3", needs: []Cap{capFair, capInspector}, judge: inOrder, rule: "waiters are served in the order in which they came, and a TryLock does not overtake them"},
		{id: "leaves", clause: "A4", judge: leavesNothing, rule: "a waiter that gives up leaves nothing that the name could be given to"},
		{id: "lives", clause: "H5", judge: lives, rule: "a lock is renewed as long as nobody unlocks it, and a fixed term lasts for its TTL"},
		{id: "extends", clause: "H5", dies: true, judge: extendsAfter, rule: "Extend makes it last from the call on for as long as was asked for, and no longer"},
		{id: "expires", clause: "E1", dies: true, judge: expires, rule: "the name of a dead holder comes free at the end of its lease, neither before nor after the lag, and nothing that the holder does then touches the next"},
		{id: "inherits", clause: "E1", dies: true, judge: inherits, rule: "one that waits for the name of a dead holder gets it then"},
		{id: "shows", clause: "O1", needs: []Cap{capInspector}, looks: true, judge: shows, rule: "Inspect and List tell the holder's text whole, its token, when it was acquired, how long its lease runs, and how many wait"},
		{id: "tokens", clause: "F1", looks: true, judge: tokensRise, rule: "the token is higher than all before, the same for lock and Inspect, and lower than that of the next grant"},
		{id: "breaks", clause: "O2", breaks: true, looks: true, judge: breaksAfter, rule: "Break by the token that is seen ends the hold, the next gets the name, and the victim is told"},
		{id: "closes", clause: "C1", judge: closesAfter, rule: "Close frees the name and wakes the next"},
		{id: "unanswered", clause: "O1", needs: []Cap{capProxy}, breaks: true, looks: true, judge: unanswered, rule: "an answer to Inspect, List, Break or Sweep that is lost is an error, and says nothing of the name"},
	}
}

func excludes(s *scene) {
	for _, p := range []*client{s.b, s.a, s.third} {
		p.mustBeBusy(s.name, s.h)
	}
	if s.drain(s.h); s.queue == nil {
		s.gets("H6", s.third, s.name, "which everybody has unlocked", distlock.TTL(s.long())).free()
	}
}

func told(s *scene) {
	for _, p := range []*client{s.b, s.a, s.third} { // a client that waits itself may know without asking the store
		p.mustBeTold(s.h, s.text, "which it has acquired", len(s.queue) > 0)
	}
	if end := min(s.least, s.h.Ends()) - s.ttl/8; s.Virtual() && s.fixed && len(s.queue) == 0 && end < s.now()+2*time.Hour {
		s.sleepUntil(end)
		s.third.mustBeTold(s.h, s.text, "whose term is nearly over", false)
	}
	s.drain(s.h)
}

func frees(s *scene) {
	s.h.free()
	next := s.next(0, "A had unlocked it")
	for range 2 {
		if err := s.h.unlock(); err != nil {
			s.Failf("A unlocked %q, and a later Unlock of the same lock returned: %v", s.name, err)
		}
	}
	ctx, cancel := s.patiently()
	defer cancel()
	if err := s.h.Extend(ctx, s.ttl); !errors.Is(err, distlock.ErrUnlocked) {
		s.breach("H5", "A unlocked %q and extended it; the answer must match ErrUnlocked, it was %s", s.name, describe(err))
	}
	s.sleep(s.ttl / 2) // a renewal that was left behind would come
	s.mustLive(next, "A had unlocked the name before")
	s.third.mustBeBusyAfter(s.name, next, "A had unlocked the name")
	s.drain(next)
	s.nothingLeft()
}

// nothingLeft looks whether the store has any entry of the name still, if the harness sees it.
func (s *scene) nothingLeft() {
	if s.C.inspector() != nil && s.needs != capNamespaces {
		s.records(s.name, "after everybody has unlocked it", 0)
	}
}

func woken(s *scene) {
	for _, p := range []*client{s.b, s.third} {
		if !s.queued(p) {
			s.queue = append(s.queue, s.waits(p))
		}
	}
	for h := s.h; len(s.queue) > 0; {
		s.undisturbed(h)
		s.inTime()
		h.free()
		freed := s.now()
		h = s.heir(0, h.p.who+" had unlocked it")
		if s.hint() == 0 {
			s.observe(boundWake, max(h.ret-freed, 0))
		}
	}
}

func inOrder(s *scene) {
	if s.needs == capNamespaces {
		return // the harness does not see the queue
	}
	for i := range 3 { // their texts are in another order
		opts := []distlock.Option{distlock.Holder(fmt.Sprint(3 - i))}
		switch {
		case i == 0:
			opts = append(opts, distlock.NoRenewal())
		case i == 1 && s.Virtual(): // its place is shorter than a clock of seconds can tell
			opts = append(opts, distlock.TTL(s.fits(max(fraction, 8*s.cal.Pair))))
		}
		s.queue = append(s.queue, s.waits(s.openPhased(fmt.Sprintf("W%d-%d", s.n, i+1)), opts...))
		if !s.awaitQueued(s.name, len(s.queue)) {
			s.Inconclusivef("those who wait for %q are not to be seen in the queue of the store", s.name)
		}
		s.undisturbed(s.h)
	}
	s.third.mustBeBusy(s.name, s.h)
	s.inTime()
	s.sleep(quiet) // after that a client that waits itself asks the store
	s.serveInOrder(s.h, s.queue, s.third, s.queue[len(s.queue)-1].p)
}

func leavesNothing(s *scene) {
	w := s.waits(s.b)
	w.giveUp()
	if s.inTime(); w.a.err == nil {
		s.mustLive(s.h, "while "+s.b.who+" gave up")
		s.breach("H1", "%s was granted %q, which A holds, when its call was cancelled", s.b.who, s.name)
	}
	s.h.free()
	s.drain(s.next(s.timing.CleanupBound, "A had unlocked it, and B, which waited for it, had given up"))
	s.nothingLeft()
}

func lives(s *scene) {
	end := s.now() + s.ttl*5/2
	if s.fixed {
		end = min(end, min(s.least, s.h.Ends())-s.ttl/8)
	}
	for took := time.Duration(0); s.now()+took < end; {
		s.sleep(min(s.ttl/5, end-took-s.now()))
		s.mustLive(s.h, "being renewed, or within its term")
		asked := s.now()
		s.b.mustBeBusy(s.name, s.h)
		took = s.now() - asked
	}
	s.drain(s.h)
}

func extendsAfter(s *scene) {
	ttl, asked := s.extends(s.ttl, 2*s.ttl), s.now()
	if err := s.h.Extend(done(s.ctx), ttl); err == nil && s.h.Ends() < asked+s.leastShown(ttl) {
		s.Failf("A extended %q by %v at %s with a context that was done, and was told nil; its Deadline is %s", s.name, ttl, millis(asked), millis(s.h.Ends()))
	}
	s.extend(2)
	expires(s)
}

// die ends A, and returns between when its lease has to end.
func (s *scene) die() (least, most time.Duration, how string) {
	s.least = max(s.least, s.h.Ends())
	s.a.cutOff()
	cut := s.now()
	if !s.fixed {
		s.most = max(s.most, cut+s.atMost(s.ttl))
	}
	return s.least, s.most, fmt.Sprintf("A had it with a TTL of %v, its Deadline was %s, and it died at %s", s.ttl, millis(s.h.Ends()), millis(cut))
}

func expires(s *scene) {
	if len(s.queue) > 0 {
		inherits(s)
		return
	}
	least, most, how := s.die()
	next := s.stalk("", s.b, s.name, least, most, how)
	s.observe(boundExpiry, max(next.call-most, 0))
	s.succeeded(next, least, how)
}

func inherits(s *scene) {
	if len(s.queue) == 0 {
		s.queue = append(s.queue, s.waits(s.b))
	}
	least, most, how := s.die()
	s.succeeded(s.heir(most+s.timing.ExpiryLag-s.now(), how), least, how)
}

// succeeded judges a successor, and what A can do to it.
func (s *scene) succeeded(next *lease, least time.Duration, how string) {
	if next.ret < least-s.skew(s.ttl) {
		s.Failf("%s was granted %q at %s, %v before the lease of A could end: %s", next.p.who, s.name, millis(next.ret), least-next.ret, how)
	}
	if err := s.h.Err(); !errors.Is(err, distlock.ErrLost) {
		s.breach("H4", "%s was granted %q at %s, and A's Err is %s; it had to be ErrLost before that: %s", next.p.who, s.name, millis(next.ret), describe(err), how)
	}
	token := s.h.Token()
	s.under("F1", func() { s.rises(&token, next, "that of A, whose lease was over,") })
	late := s.Slack() // Err looks at the clock, but a goroutine closes Done, and a busy machine may wake that too late
	if s.Virtual() {
		late = 0
	}
	if !s.within(s.h.done, late) {
		s.breach("H4", "%s was granted %q at %s, and A's Done is not closed by %s: %s", next.p.who, s.name, millis(next.ret), millis(s.now()), how)
	}
	s.a.revive()
	ctx, cancel := s.patiently()
	defer cancel()
	if err := s.h.Extend(ctx, s.ttl); !errors.Is(err, distlock.ErrLost) {
		s.breach("H5", "A's lease of %q is over, and %s has it, but A's Extend returned %s; it must match ErrLost", s.name, next.p.who, describe(err))
	}
	if s.n%2 == 0 { // what comes of it with a context that is done shows below
		done, end := context.WithCancel(s.ctx)
		end()
		_ = s.h.Unlock(done)
		s.sleep(quiet)
		s.third.mustBeBusyAfter(s.name, next, "A, whose lease was over, has called Unlock with a context that was done")
	}
	if err := s.h.unlock(); !errors.Is(err, distlock.ErrLost) {
		s.breach("H6", "A's lease of %q is over, and %s has it, but A's Unlock returned %s; it must match ErrLost", s.name, next.p.who, describe(err))
	}
	if err := s.h.Err(); !errors.Is(err, distlock.ErrLost) {
		s.breach("H4", "A's lease of %q was over, and its Err was ErrLost; after Unlock it is %s", s.name, describe(err))
	}
	if s.n%3 == 0 { // it may still have a note of what it had
		_ = s.a.close()
	}
	s.sleep(quiet)
	s.third.mustBeBusyAfter(s.name, next, "A, whose lease was over, has called Extend, Unlock and perhaps Close")
	s.drain(next)
}

func shows(s *scene) {
	see := &sight{h: s.h, holder: s.text}
	if s.fixed {
		see.until = s.most + s.timing.ExpiryLag + s.skew(s.ttl)
	}
	mark := s.third.mustTry(s.Name("mark "+s.what), "which is fresh", distlock.TTL(s.long()))
	see.rest = s.third.look(mark.Name()).Remaining > 0 // the store knows how long leases run
	for _, at := range []time.Duration{0, s.now() + s.ttl/8, s.aged()} {
		s.sleepUntil(at)
		st := see.check(s.b, "the name being "+s.what)
		s.mustCount(st)
		began, ends := s.now(), s.h.Ends()
		listed := s.b.list(s.name)
		listed = slices.DeleteFunc(listed, func(st distlock.Status) bool { return st.Name != s.name })
		if len(listed) != 1 {
			s.inTime()
			s.mustLive(s.h, "when it was listed")
			s.Failf("A holds %q, but List(%q) returned it %d times", s.name, s.name, len(listed))
		}
		s.mustAgree(s.b, s.h, listed[0], began, ends, see.rest)
	}
	s.mustDate(see.acquired, s.third.look(mark.Name()).AcquiredAt, mark)
	s.drain(s.h)
	s.mustLookFree()
}

// aged is when the lock is older than the TTL that it was taken with, or else as old as it can get.
func (s *scene) aged() time.Duration {
	at := s.h.call + s.ttl*9/8
	if s.fixed {
		at = min(at, min(s.least, s.h.Ends())-s.ttl/8)
	}
	return at
}

// mustLookFree demands that nothing is shown of former holders and waiters, and that the token that is
// told is no higher than any that was granted.
func (s *scene) mustLookFree() {
	token := s.b.mustShowFree(s.name, "was unlocked by everybody")
	var st distlock.Status
	if !s.eventually(s.timing.CleanupBound+s.Slack(), func() bool { st = s.b.look(s.name); return st.Waiters <= 0 }) {
		s.Failf("nobody holds %q or waits for it, but Inspect says %+v", s.name, st)
	}
	next := s.gets("H6", s.third, s.name, "which everybody has unlocked")
	s.rises(&token, next, "that of the last holder, by Inspect,")
	next.free()
}

// mustCount compares the number of waiters that the store tells with that of the scene.
func (s *scene) mustCount(st distlock.Status) {
	fits := func() bool {
		return st.Waiters == len(s.queue) || s.harness.Caps().Fair != Yes && st.Waiters >= -1 && st.Waiters <= len(s.queue)+s.lost
	}
	// One that has left is taken out of the queue in the background.
	if !s.eventually(s.timing.CleanupBound+s.Slack(), func() bool { st = s.b.look(s.name); return fits() }) {
		s.inTime()
		s.mustLive(s.h, "when its waiters were counted") // one of them has the name rightly if a stall has cost A the lock
		s.Failf("%d clients wait for %q, but Inspect says %+v", len(s.queue), s.name, st)
	}
}

// mustDate compares when A's lock was acquired with a mark: the clock is the store's, but
// runs like ours.
func (s *scene) mustDate(acquired, marked time.Time, mark *lease) {
	if acquired.IsZero() || marked.IsZero() {
		return
	}
	least, most := mark.call-s.h.ret, mark.ret-s.since
	grain := dated + s.skew(most)
	if passed := marked.Sub(acquired); passed < least-grain || passed > most+grain {
		s.Failf("A was granted %q at %s and C %q at %s, between %v and %v later; by AcquiredAt of Inspect, %v and %v, it was %v",
			s.name, millis(s.h.ret), mark.Name(), millis(mark.ret), least, most, acquired.Format(time.RFC3339Nano), marked.Format(time.RFC3339Nano), passed)
	}
}

func tokensRise(s *scene) {
	token := s.h.Token()
	if token <= s.last {
		s.Failf("A was granted %q with token %d; one before had %d", s.name, token, s.last)
	}
	if s.harness.Caps().Inspector == Yes {
		if st := s.b.look(s.name); st.Held && st.Token != token {
			s.mustLive(s.h, "when B looked at it")
			s.Failf("A holds %q with token %d, but Inspect says %+v", s.name, token, st)
		}
	}
	s.sleep(s.ttl / 2)
	if now := s.h.Token(); now != token {
		s.Failf("A was granted %q with token %d, which has become %d", s.name, token, now)
	}
	s.h.free()
	next := s.next(0, "A had unlocked it")
	s.rises(&token, next, "that of A")
	s.drain(next)
}

func breaksAfter(s *scene) {
	token := s.h.Token()
	if s.harness.Caps().Inspector == Yes {
		if st := s.third.look(s.name); st.Held && st.Token != token {
			s.mustLive(s.h, "when C looked at it")
			token = st.Token
		}
	}
	ctx, cancel := s.patiently()
	defer cancel()
	by := []*client{s.third, s.a, s.b}[s.n%3]
	switch err := by.breakHold(ctx, s.name, token); {
	case errors.Is(err, distlock.ErrUnsupported):
		return
	case err != nil:
		s.inTime()
		s.unheard(err, by.who, s.name)
		s.mustLive(s.h, "when it was to be broken") // the store has forgotten it rightly if a stall has cost A the lock
		s.Failf("A holds %q, %s sees the token %d, and %s broke it with that, and Break returned: %v", s.name, s.third.who, token, by.who, err)
	}
	since := s.now()
	var next *lease
	if s.n%2 == 0 || len(s.queue) > 0 {
		next = s.next(0, "the lock of A was broken")
	}
	if next == nil && s.n%4 == 3 {
		// Nobody has the name, and A need not have heard of its loss: it may be told ok, but must not have the name back.
		_ = s.h.Extend(ctx, min(s.extends(s.ttl, 2*s.ttl), s.longest()))
	}
	if s.fixed {
		if err := s.h.unlock(); !errors.Is(err, distlock.ErrLost) {
			s.breach("H6", "A's lock of %q was broken, and its Unlock returned %s; it must match ErrLost", s.name, describe(err))
		}
	} else {
		s.h.mustLearn(since, fmt.Sprintf("Break(%q) returned nil", s.name))
		s.h.mustBeVictim()
	}
	if next == nil {
		next = s.next(0, "the lock of A was broken, and A has learned so")
	}
	s.rises(&token, next, "that of A, which was broken,")
	s.third.mustBeBusyAfter(s.name, next, "A, whose lock was broken, has called Extend and Unlock")
	s.drain(next)
}

func closesAfter(s *scene) {
	if len(s.queue) == 0 && s.n%2 == 1 {
		s.queue = append(s.queue, s.waits(s.b))
	}
	token := s.h.Token()
	s.a.mustClose()
	next := s.next(0, "the client of A, which held it, was closed")
	s.under("F1", func() { s.rises(&token, next, "that of A, which was closed,") })
	s.drain(next)
}
