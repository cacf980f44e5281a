package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
)

// situation is a state that a name can be in while somebody holds it.
type situation struct {
	what     string        // in which state; it is a part of the name, so that each failure says it
	needs    Cap           // without which there is no such state; empty for none
	exact    bool          // it lasts for so short, or so long, that only virtual time shows anything
	uneven   bool          // the TTL is between two steps of a coarse clock
	fixed    bool          // A holds it for a fixed term
	late     bool          // it waits for all of the ExpiryLag
	ages     bool          // nobody waits for its end: others are renewed meanwhile
	asked    time.Duration // the TTL; 0 for that of most
	shortest int           // the TTL, as a multiple of the shortest that the driver has; 0 if asked says it
	nameless bool          // the holder text is empty
	itself   bool          // A waits for it as well: its end serves nobody

	called func(base string) string // what the name looks like; nil for as others

	before func(*scene) // what was before; it may set what A holds
	during func(*scene) // what happens while A holds it
}

// scene is one situation, with its clients. A holds the name.
type scene struct {
	*C
	situation
	n           int
	a, b, third *client
	name, text  string
	ttl         time.Duration
	h           *lease        // what A holds
	queue       []*pending    // its waiters, in their order
	unordered   bool          // that is not known
	lost        int           // its waiters that died: a store that declares no order may count them still
	since       time.Duration // A cannot have got it before
	freed       string        // "; the lock of B was broken", if that is why the name is free
	last        int64         // the highest token of the name before A's
	most        time.Duration
	least       time.Duration // the lease cannot end before, nor later than most, if A dies and renews no more
}

// effect is what must be so in every situation.
type effect struct {
	id, clause, rule string
	needs            []Cap
	dies             bool // A dies: without a link only a fixed term shows it
	breaks           bool // locks are broken: the oracles do not judge it
	looks            bool // it takes calls of operators, which may be slower than a short lease is long
	judge            func(*scene)
}

// scenes is how many situations a check looks at side by side in real time.
const scenes = 6

// after judges an effect in each situation.
func (c *C) after(e effect) {
	if e.breaks {
		c.breaksLocks()
	}
	c.unmodelled() // many names and clients: the rules are enough
	b, third := c.open("B"), c.open("C")
	c.findQueue(b, third)
	table := c.situations(e, third)
	places := make(chan struct{}, len(table))
	if !c.Virtual() {
		places = make(chan struct{}, scenes)
	}
	var judged atomic.Int64
	c.together(len(table), func(i int, rng *rand.Rand) {
		places <- struct{}{}
		defer func() { <-places }()
		s := &scene{C: c, situation: table[i], n: i + 1, b: b, third: third, text: holderTexts[1+rng.IntN(len(holderTexts)-1)]}
		s.ttl = s.situation.ttl(c)
		s.enter()
		e.judge(s)
		judged.Add(1)
	})
	if judged.Load() == 0 { // inTime has ended each of them
		c.Inconclusivef("each lease was over before anything of it could be judged")
	}
}

// ttl is the one that A takes the name for.
func (s situation) ttl(c *C) time.Duration {
	switch {
	case s.shortest > 0:
		return c.fits(time.Duration(s.shortest) * c.timing.MinTTL)
	case s.asked > 0:
		return c.fits(s.asked)
	case s.uneven:
		return min(c.Unit()+c.timing.TTLGranularity/5, c.longest())
	case s.fixed:
		return c.term()
	}
	return c.Unit()
}

// findQueue finds out whether waiters are to be seen in the store, before somebody waits for a name of a short lease.
func (c *C) findQueue(a, b *client) {
	if c.inspector() == nil || c.harness.Caps().Fair == Yes {
		return
	}
	h := a.mustTry(c.Name("queue"), "which is fresh", distlock.TTL(c.long()))
	w := b.begin(h.Name())
	c.awaitQueued(h.Name(), 1)
	w.cancel()
	h.free()
}

// enter brings the name into the situation.
func (s *scene) enter() {
	s.name = s.Name(s.what)
	if s.called != nil {
		s.name = s.called(s.name)
	}
	switch {
	case s.nameless:
		s.text = ""
	case len(s.name) == distlock.MaxName: // a store may have one limit for both
		s.text = strings.Repeat("x", distlock.MaxHolder)
	}
	if s.needs != capNamespaces {
		s.a = s.openMortal(fmt.Sprint("A", s.n))
	} else {
		s.a, s.b, s.third = s.openIn("A*", "after"), s.openIn("B*", "after"), s.openIn("C*", "after")
	}
	if s.before != nil {
		s.before(s)
	}
	if s.h == nil {
		s.h = s.take(s.a, s.opts()...)
	}
	s.since = max(s.since, s.h.call)
	s.runs(s.h.call, s.h.ret, s.ttl)
	if s.during != nil {
		s.during(s)
	}
}

// opts are those that A holds it with.
func (s *scene) opts() []distlock.Option {
	opts := []distlock.Option{distlock.TTL(s.ttl), distlock.Holder(s.text)}
	if s.fixed {
		opts = append(opts, distlock.NoRenewal())
	}
	return opts
}

// take has p take the name, which has to be free.
func (s *scene) take(p *client, opts ...distlock.Option) *lease {
	clause := "N1"
	if s.last > 0 { // somebody had it before
		clause = "H6"
	}
	return s.gets(clause, p, s.name, "which nobody holds"+s.freed, opts...)
}

// fresh has p take another name, which nobody has ever held.
func (s *scene) fresh(p *client, label string, opts ...distlock.Option) *lease {
	return s.gets("N1", p, s.Name("beside "+s.what+label), "which is fresh", opts...)
}

// gets has p get a name, and names the clause that a refusal breaks: it says nothing of the effect.
func (s *scene) gets(clause string, p *client, name, why string, opts ...distlock.Option) *lease {
	a := p.try(name, opts...)
	if a.err != nil {
		s.breaks(clause)
		s.refused(p, a, name, why)
	}
	return a.lease
}

// had has p take the name for long, as a holder before A or beside it.
func (s *scene) had(p *client, opts ...distlock.Option) *lease {
	h := s.take(p, append([]distlock.Option{distlock.TTL(s.long()), distlock.Holder("before")}, opts...)...)
	s.last = max(s.last, h.Token())
	return h
}

// waits has p wait for the name.
func (s *scene) waits(p *client, opts ...distlock.Option) *pending {
	w := p.begin(s.name, append([]distlock.Option{distlock.TTL(s.long()), distlock.Holder("waiter")}, opts...)...)
	switch {
	case s.needs == capNamespaces || s.queued(p): // the harness looks into another, or sees one place of the client
		s.unordered = true
		s.sleep(quiet)
	case !s.awaitQueued(s.name, len(s.queue)+1):
		s.unordered = true
	}
	return w
}

// queued reports whether p waits for the name already.
func (s *scene) queued(p *client) bool {
	return slices.ContainsFunc(s.queue, func(w *pending) bool { return w.p == p })
}

// inTime ends the scene without a verdict if the fixed term of A is over: to get here has taken too long.
func (s *scene) inTime() {
	if s.fixed && s.now() >= s.h.Ends() {
		runtime.Goexit()
	}
}

// undisturbed demands that nobody has got the name while h held it.
func (s *scene) undisturbed(h *lease) {
	for _, w := range s.queue {
		if s.within(w.done, 0) && w.a.ret >= h.Ends() {
			s.inTime()
			s.Inconclusivef("%s waits for %q, and has an answer only since %s, when the lease of %s was over", w.p.who, s.name, millis(w.a.ret), h.p.who)
		}
	}
	s.stillWaiting(s.queue)
}

// gave has A wait for the name until end has ended the hold of another, or its lease does; then
// end is nil.
func (s *scene) gave(end func(), bound time.Duration, why string) {
	w, clause := s.waits(s.a, s.opts()...), "E1"
	if end != nil {
		clause = "W1"
		s.apart()
		s.since = s.now()
		end()
	}
	s.h = w.awaited(clause, s.now(), bound+s.soon(), why)
}

// apart lets what follows have another time, for a clock of seconds.
func (s *scene) apart() {
	if s.Virtual() {
		s.sleep(time.Minute)
	}
}

// runs notes for how long the lease lasts.
func (s *scene) runs(call, ret, ttl time.Duration) {
	s.least, s.most = max(s.least, call+ttl), max(s.most, ret+s.atMost(ttl))
}

// extend extends A's lock. A lock that lives by a session gets what there is.
func (s *scene) extend(times time.Duration) { s.extendBy(times * s.ttl) }

func (s *scene) extendBy(ttl time.Duration) {
	if !s.uneven || s.timing.MaxExtend > 0 {
		ttl = s.extends(s.ttl, ttl)
	}
	ttl = min(ttl, s.longest())
	e := s.extended(s.h, ttl)
	s.runs(e.call, e.ret, ttl)
}

// earlier is the TTL of a lease that is over before A's.
func (s *scene) earlier() time.Duration {
	if s.Virtual() {
		return s.short()
	}
	return s.ending(s.Unit() / 4)
}

// dead is a client that held the name, until its lease was over.
func (s *scene) dead() *lease {
	h := s.had(s.openMortal(fmt.Sprint("D", s.n)), distlock.TTL(s.earlier()), distlock.NoRenewal())
	h.dies()
	return h
}

// broken breaks a lock by the word of C.
func (s *scene) broken(h *lease) {
	s.breaksLocks()
	s.third.mustBreak(h)
	s.freed = fmt.Sprintf("; the lock of %s was broken", h.p.who)
}

// swept sweeps the store of all that is free.
func (s *scene) swept() { s.third.sweep(time.Nanosecond) }

// next is the client that gets the name within the bound: a waiter, or one that asks.
func (s *scene) next(bound time.Duration, why string) *lease {
	switch {
	case len(s.queue) > 0:
		return s.heir(bound, why)
	case bound == 0:
		return s.b.mustTry(s.name, "for which nobody waits: "+why, distlock.TTL(s.long()))
	}
	return s.pollFor(s.b, s.name, bound+s.soon(), why, distlock.TTL(s.long()))
}

// heir is the lock of the first waiter that is served.
func (s *scene) heir(bound time.Duration, why string) *lease {
	from := s.now()
	bound += s.hint() + s.soon()
	at := s.firstDone(s.queue, bound)
	clause := "W1"
	if err := s.h.Err(); errors.Is(err, distlock.ErrLost) && s.check.Clause != "O2" {
		clause = "E1" // nobody has unlocked it
	}
	h := s.queue[at].awaited(clause, from, bound, why)
	if first := s.queue[0]; at > 0 && s.harness.Caps().Fair == Yes && !s.unordered {
		s.doubt(first.began, first.began+s.Unit()/2)
		s.breach("W3", "%s has got %q before %s, who came before it: %s", h.p.who, s.name, first.p.who, why)
	}
	s.queue = append(s.queue[:at:at], s.queue[at+1:]...)
	return h
}

// hint is for how long a waiter may rely, by W1, on a wake-up that went to one that had died: up to the end of the lease that
// it was told of. A store that serves in order has dropped the dead one by then.
func (s *scene) hint() time.Duration {
	if s.lost == 0 || s.harness.Caps().Fair == Yes {
		return 0
	}
	return min(s.long()/3, s.atMost(s.ttl))
}

// drain serves the waiters that are left. h is held now.
func (s *scene) drain(h *lease) {
	if h == s.h {
		s.inTime()
	}
	for h.free(); len(s.queue) > 0; h.free() {
		h = s.next(0, h.p.who+" had unlocked it")
	}
}
