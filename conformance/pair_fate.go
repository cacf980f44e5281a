package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
)

// fateDepth is up to which request or reply of an operation a fault is tried. No driver
// needs more for one; the rest hits what the operation leads to.
const fateDepth = 8

// unlocking is how long an Unlock waits for the outcome (H6).
const unlocking = 5 * time.Second

// pairText is the text of what A takes.
const pairText = "the text of A"

// pairsVariable is the environment variable that, as "all", has every message of every
// operation lost in silence. Each of them waits for a timeout: without it every second is,
// and the seed says which.
const pairsVariable = "DISTLOCK_CONFORMANCE_PAIRS"

// thorough reports whether a check that finds by chance what pairs find for certain has to look for long: because it was
// asked for, or because nothing else looks between the steps of this store.
func (c *C) thorough() bool {
	_, steps := c.harness.(Stepped)
	_, wire := can[Proxy](c, capProxy)
	return !c.Virtual() && (os.Getenv(pairsVariable) == "all" || !steps && !wire)
}

// samples reports whether a check that goes through a table looks at a sample of it, by the seed.
func (c *C) samples() bool { return (c.sparse || !c.Virtual()) && os.Getenv(pairsVariable) != "all" }

// brief reports whether such a check leaves out leases that end where it can: it need not be thorough, and they end late here.
func (c *C) brief() bool { return !c.thorough() && c.timing.ExpiryLag >= time.Second }

// fate is what becomes of a message of an operation.
type fate struct {
	id, clause, rule string
	what             string // "its request was lost"
	late             bool   // the message arrives, when A has given up
	ways             []way
}

// way is how that comes about.
type way struct {
	arm     func(netfault.Link, int)
	silent  bool // A hears nothing, and gives up
	between bool // B asks for the name before the message arrives
	undone  bool // it arrives behind what A does about it, which goes another way
	swept   bool // and behind a Sweep, which may forget that
}

// fated runs each operation with a fault in its k-th message, for each k, and looks what
// another sees afterwards.
func (c *C) fated(f fate) {
	var ops []pairing
	for _, op := range pairings() {
		if op.lossy && !(f.late && (op.queues || op.id == "hand-over")) { // a scene with waiters takes as long as they poll
			ops = append(ops, op)
		}
	}
	every := c.Virtual() || os.Getenv(pairsVariable) == "all"
	var met, tried atomic.Int64
	b, third, behind := c.open("B"), c.open("C"), c.open("D")
	sweeps := f.late && situation{needs: canSweep}.there(third)
	c.together(len(ops), func(i int, rng *rand.Rand) {
		a := c.openVia(fmt.Sprint("A", i+1))
		left := rng.IntN(2)
		for k := range fateDepth {
			asked, hit := 0, 0
			for j, w := range f.ways {
				if w.silent && !every && k > 0 && k%2 == left || w.swept && (!sweeps || k > 1 || !every && left == 0) {
					continue
				}
				for m, manner := range c.fateManners(f, ops[i], k) {
					c.warm(a)
					before := a.link.Fired()
					s := &pairScene{c: c, op: ops[i], a: a, b: b, third: third, behind: behind, gate: &wireGate{link: a.link}, k: k + 1,
						name: c.Name(fmt.Sprintf("n%d-%d-%d-%d", i, k, j, m)), ttl: c.long(), told: make(chan struct{}), manner: manner}
					s.suffer(f, w)
					asked++
					hit += min(1, a.link.Fired()-before)
				}
			}
			tried.Add(int64(asked))
			met.Add(int64(hit))
			if asked > 0 && hit == 0 && !every {
				break // the operation has no message that late
			}
		}
		c.warm(a)
	})
	c.Logf("%d of %d faults were met", met.Load(), tried.Load())
	c.requireFired(len(ops))
}

// fateManners are those in which the k-th message of an operation is lost: in virtual time all of them for the first.
func (c *C) fateManners(f fate, op pairing, k int) []manner {
	all := []manner{{}}
	if c.Virtual() && k == 0 && !f.late {
		for _, m := range c.manners(op) {
			if m.renewed || m.extends || m.waited {
				all = append(all, m)
			}
		}
	}
	return all
}

// suffer runs the operation with an armed fault. The TTL is so long that what is left
// behind and lives until its end is seen.
func (s *pairScene) suffer(f fate, w way) {
	c := s.c
	s.op.prepare(s)
	var deadline time.Duration
	if s.held != nil {
		deadline = s.held.Ends()
	}
	if s.keeps() && s.k%2 == 1 {
		s.waiter = s.third.begin(s.name, distlock.TTL(c.long()))
		c.awaitQueued(s.name, 1)
	}
	limit := patience
	if w.silent || s.op.waits {
		limit = c.Unit() / 4
	}
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	_, apart := s.a.link.(interface{ Independent() })
	switch {
	case apart && f.late && !w.undone: // the undo must not overtake the request
		s.a.link.Delay(4*limit, 0)
	case s.op.handed: // when A waits, most likely
		s.arm = func() { w.arm(s.a.link, s.k) }
	default:
		w.arm(s.a.link, s.k)
	}
	began := c.now()
	s.got, s.err = s.op.run(s, ctx)
	s.took = c.now() - began
	close(s.told)
	because := fmt.Sprintf("%s by A%s had returned %s (%s, k = %d)", s.op.what, s.manner.what, describe(s.err), f.what, s.k)
	if s.held != nil && s.err != nil && !s.manner.renewed && !f.late && s.held.Ends() > deadline {
		c.breach("H3", "A had %q until %s, by its Deadline, which is %s now: nothing confirms that: %s", s.name, millis(deadline), millis(s.held.Ends()), because)
	}
	var next answer
	if w.between {
		next = s.b.try(s.name, distlock.TTL(c.long()))
	}
	if f.late {
		if w.undone {
			c.sleep(c.behind())
		}
		if w.swept {
			_, _ = s.third.sweepIdle(c.ctx, time.Nanosecond) // what it is told is judged by group sweep/
		}
		s.gate.release()
		c.sleep(quiet) // what was on its way takes effect now, if it does
		if apart {
			c.sleep(2 * limit)
		}
	}
	if next.lease != nil {
		s.intact(next.lease, because)
	}
	s.gate.heal()
	if s.op.handed {
		s.mustBeHanded(w, limit, because)
	}
	s.judgeFate(f, w, because)
}

// behind is how long after what A does about it a late request arrives: in virtual time almost as late as one can.
func (c *C) behind() time.Duration {
	if c.Virtual() {
		return driver.MaxLate * 3 / 4
	}
	return quiet
}

// keeps reports whether A has a lock that it does not let go of.
func (s *pairScene) keeps() bool { return s.held != nil && !s.op.unlocks() }

func (op pairing) unlocks() bool { return op.id == "unlock" || op.id == "hand-over" }

// mustKeepIt demands that nobody gets the name while A believes in its lock, neither one that asks now nor one that has waited
// since before the fault.
func (s *pairScene) mustKeepIt(because string) {
	believes := s.held.Err() == nil
	switch w := s.waiter; {
	case w == nil && believes:
		s.third.mustBeBusyAfter(s.name, s.held, because)
	case w != nil:
		if got := w.within(s.c.poll()); got && w.a.err == nil && believes {
			s.c.intruded(w.a, s.held, s.held.end(), because)
		}
		w.giveUp()
		if w.a.err == nil {
			_ = w.a.unlock() // A may have been told that it is lost
		}
	}
}

// mustPassOn demands that one of the waiters gets the name from A, and has it until it unlocks it, while the other waits: however
// often a release of A has arrived.
func (s *pairScene) mustPassOn(because string) {
	c := s.c
	next, left := c.serve(s.queue, "", c.Unit()+c.timing.CleanupBound+c.soon(), because)
	c.sleep(quiet) // what is sent again takes effect now, if it does
	s.b.mustBeBusyAfter(s.name, next, because)
	if left[0].within(0) && left[0].a.err == nil {
		c.intruded(left[0].a, next, next.end(), because)
	}
	next.free()
	left[0].woken(c.soon(), next.p.who+" had unlocked it; "+because).free()
}

// judgeFate judges what A was told, by what another sees.
func (s *pairScene) judgeFate(f fate, w way, because string) {
	c := s.c
	switch {
	case s.keeps():
		s.mustKeepIt(because)
	case s.queue != nil:
		s.mustPassOn(because)
	}
	switch {
	case s.op.handed:
	case s.held == nil && s.other == nil && errors.Is(s.err, distlock.ErrHeld):
		c.breach("A6", "A was told that %q is held although nobody but A itself had asked for it: %s", s.name, because)
	case s.op.unlocks() && f.id == "reply-lost" && errors.Is(s.err, distlock.ErrLost):
		c.breach("H6", "A held %q, and Unlock said for certain that the lock was lost; it was its own doing: %s", s.name, because)
	case s.op.unlocks() && s.err != nil && !errors.Is(s.err, distlock.ErrLost) && !w.silent && s.took < unlocking:
		c.breach("H6", "A held %q, and Unlock failed after %v, though only one message was lost; it has %v for the outcome: %s", s.name, s.took, unlocking, because)
	case s.op.unlocks() && s.err == nil:
		if a := s.third.try(s.name, distlock.NoRenewal()); a.busy() {
			c.breach("H6", "A held %q, and Unlock returned nil, but C is told that the name is held still: %s", s.name, because)
		} else if a.err == nil {
			a.free()
		}
	case s.held != nil && errors.Is(s.err, distlock.ErrLost):
		c.pollFor(s.b, s.name, c.soon(), fmt.Sprintf("A was told that its lock, granted for %v at %s, is lost; if it is, nobody has it: %s", s.ttl, millis(s.held.ret), because),
			distlock.TTL(s.ttl)).free()
		return
	}
	s.settle(because)
}

// mustBeHanded demands that A, if it was told that the name is held, has got it within limit, since B has let go of it. One that
// was told nothing yet may fail: a first request that is lost is the caller's to repeat. In a silence A has too little time.
func (s *pairScene) mustBeHanded(w way, limit time.Duration, because string) {
	if !w.silent && errors.Is(s.err, distlock.ErrHeld) {
		s.c.breach("A5", "A waited for %q, which B let go of %v after that, and had not got it after %v, though only one message was lost: %s", s.name, 2*quiet, limit, because)
	}
}

// mustShowText demands that what A has got is shown with its text, however often A had to ask for it.
func (s *pairScene) mustShowText(because string) {
	if s.got == nil {
		return
	}
	ctx, cancel := s.c.patiently()
	defer cancel()
	st, err := s.third.inspect(ctx, s.name)
	switch token := s.got.Token(); {
	case err != nil || !st.Held || s.got.Err() != nil:
	case st.Token == token && st.Holder != pairText:
		s.c.breach("O1", "A has %q, taken with the text %q, and Inspect shows the text %q: %s", s.name, pairText, st.Holder, because)
	case st.Token != token && st.Holder == pairText:
		s.c.breach("F1", "A has %q, which nobody else takes with the text %q, by token %d, and Inspect shows token %d: %s", s.name, pairText, token, st.Token, because)
	}
}

// settle ends what there is of the name, and demands that nothing is left of it.
func (s *pairScene) settle(because string) {
	c := s.c
	s.mustShowText(because)
	for _, h := range []*lease{s.got, s.other} {
		if h != nil {
			s.third.mustBeBusyAfter(s.name, h, because)
		}
	}
	if s.other != nil {
		s.other.free()
	}
	for _, h := range []*lease{s.got, s.held} {
		if h != nil {
			_ = h.unlock() // nil, or unknown where this was the operation that was hit
		}
	}
	limit := c.Unit() + c.timing.CleanupBound + c.soon()
	c.pollFor(s.b, s.name, limit, fmt.Sprintf("everybody had unlocked what was told to be held (the TTL is %v: something was left behind): %s", c.long(), because),
		distlock.TTL(s.ttl)).free()
}
