package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
)

const (
	// pairDepth is up to which request of an operation a client is stopped, stepDepth up to
	// which step of its store.
	pairDepth, stepDepth = 6, 24

	// besideDepth is how many times that many are looked at if others are renewed along with the lock: they may have their
	// requests before its own, and new connections.
	besideDepth = 2

	// stuckAfter is how long a client may be in one step of its store until the check asks
	// whether the one that was stopped blocks it. standsAfter is how long another client,
	// of which the answer is had, may take: if that is blocked as well, all names are.
	stuckAfter, standsAfter = 250 * time.Millisecond, 2 * time.Second
)

// pairing is an operation that a client is stopped in, or of which a message is lost.
type pairing struct {
	id     string // of the check that stops it; empty if none does
	what   string // "TryLock of a free name"
	clause string
	rule   string
	queues bool // Lock: what arrives behind its undo may wait for its TTL
	waits  bool // until the name is free
	lapses bool // and it becomes free as the lease of B, which is cut off, runs out
	handed bool // and it becomes free meanwhile
	unsaid bool // A was not told of a grant before, and undoes it: it needs a wire
	lossy  bool // group pair/ also looks what becomes of it when a message is lost
	breaks bool // a hold is broken, by A or meanwhile: it skips the check if the store has no Break
	broken bool // it is that of A, which is stopped, and its context goes on
	sweeps bool // reaches all names of the store: so it runs alone, and one scene after the other has the same name

	// prepare brings the name into its state. It sets what A, or B, holds before.
	prepare func(s *pairScene)

	// run is the operation. It returns what A got, and nil if A was told that it holds, or
	// has held until now, the name.
	run func(s *pairScene, ctx context.Context) (*lease, error)
}

// pairScene is one run of an operation, stopped at one place.
type pairScene struct {
	c           *C
	op          pairing
	k           int
	a, b, third *client
	behind      *client // waits behind A for what is handed over
	gate        gate
	steps       *stepGate // of B; nil over a wire
	name        string
	ttl         time.Duration // that the locks of A, and of B before, are taken for
	held, other *lease        // of A and of B before; nil if they had none
	waiter      *pending      // who waits for A to unlock, and is served before B; nil if nobody does
	queue       []*pending    // likewise, two of them, where a message of the Unlock is lost
	token       int64         // that A is to break
	kept        bool          // A's entry was there still shortly before the end of its lease
	manner      manner
	arm         func()          // of an operation that is handed the name: has the message lost
	undoing     <-chan struct{} // of the undo of a call: closed when that has returned

	told chan struct{} // closed when A's operation is over
	took time.Duration // that it took, where a message was lost
	got  *lease
	err  error
}

// pair runs an operation of A once for every request, or step, of it: A is stopped there,
// B takes the name as soon as it can and holds it, and A goes on.
func (c *C) pair(op pairing) {
	depth, unit := pairDepth, "requests"
	if _, ok := c.harness.(Stepped); ok {
		depth, unit = stepDepth, "steps"
	}
	if op.sweeps {
		depth = stepDepth
	}
	b, third, ttl := c.open("B"), c.open("C"), c.Unit()
	op.needBreak(c, third)
	if op.queues {
		// A request that was stopped for longer than a client waits for an answer may enlist A
		// behind its undo. The model does not know that.
		ttl = c.fits(min(ttl, max(closing/8, 4*c.short())))
		c.unmodelled()
	}
	var mu sync.Mutex
	seen := make(map[outcome][]int)
	ways := c.manners(op)
	scene := func(i, k int, m manner) outcome {
		s := &pairScene{c: c, op: op, k: k, b: b, third: third, ttl: ttl, told: make(chan struct{}), manner: m}
		s.open(i)
		defer s.gate.release()
		o := s.play()
		mu.Lock()
		defer mu.Unlock()
		seen[o] = append(seen[o], s.k)
		return o
	}
	deepest := depth
	for w, m := range ways { // one after the other: side by side they would open more connections at once than a busy server likes
		n, at := depth, depth // requests, and scenes side by side
		switch {
		case op.sweeps:
			at = 1
		case m.beside:
			n, at = depth*besideDepth, depth
		case c.samples() && !op.waits: // where k is odd or even, requests are counted in two ways
			at = 2
		}
		for k, last := 1, passedBy; k <= n && (last != notReached || m.beside); k += at { // else it has no request that late
			c.together(at, func(i int, _ *rand.Rand) {
				if o := scene(w*depth*besideDepth+k+i, k+i, m); i == at-1 {
					last = o
				}
			})
		}
		deepest = max(deepest, n)
	}
	if op.unsaid && len(seen[passedBy]) == 0 && len(seen[notReached]) > 0 {
		c.Logf("A sends nothing to undo what it has not heard of: its entry may end with its session")
		return
	}
	c.tellOutcomes(fmt.Sprintf("%s, each of the first %d %s of A", op.in(ways), deepest, unit), seen)
}

// open gives the i-th scene its name, and A, which can be stopped.
func (s *pairScene) open(i int) {
	c := s.c
	switch s.name = c.Name(fmt.Sprint("n", i)); {
	case s.op.sweeps:
		s.name = c.Name("n")
	case s.manner.called != nil:
		s.name = s.manner.called(s.name)
	}
	if s.op.unsaid {
		s.a = c.openVia(fmt.Sprint("A", i))
		s.gate = &wireGate{link: s.a.link}
		return
	}
	s.a, s.gate = c.openGated(fmt.Sprint("A", i))
	if _, ok := s.gate.(*stepGate); ok {
		var g gate
		s.b, g = c.openGated(fmt.Sprint("B", i))
		s.steps = g.(*stepGate)
	}
}

func (s *pairScene) play() outcome {
	c := s.c
	c.pollFor(s.a, c.Name("warm-"+s.a.who), patience, "nobody had ever held it", distlock.TTL(c.long())).free()
	s.op.prepare(s)
	woken := s.op.waits && s.other != nil && s.k%2 == 0 // half of the requests are counted from the wake-up
	if woken {
		s.start(0)
		c.sleep(quiet)
		if s.op.lapses {
			c.sleepUntil(s.other.end()) // A may have looked often until then
		}
		s.gate.hold(s.k / 2)
		if !s.vacated() {
			return s.over(blocked)
		}
	} else {
		s.start(s.k)
	}
	if !s.stopped() {
		s.over(notReached)
		if s.op.unsaid && s.err == nil { // A was told: the reply that was lost was another
			return blocked
		}
		return notReached
	}
	stopped := c.now()
	next, free := s.successor()
	if !free {
		if next != nil {
			_ = next.unlock() // ErrLost or nil: the oracles judge it
		}
		return s.over(blocked)
	}
	if next == nil {
		s.mustBeReleased()
		return s.over(toldBefore)
	}
	broken := ""
	if s.op.broken {
		broken = "the hold of A was broken, "
	}
	because := fmt.Sprintf("%s by A%s was stopped at its request or step %d, at %s; %sB was granted %q at %s, "+lookThenAct,
		s.op.what, s.manner.what, s.k, millis(stopped), broken, s.name, millis(next.ret))
	switch {
	case !s.manner.freed:
		s.spares(next, because)
	case !s.outranks(next, because):
		return s.over(blocked)
	}
	s.over(passedBy)
	bound := c.soon() + c.timing.CleanupBound + c.atMost(c.Unit()) + c.timing.ExpiryLag
	c.pollFor(s.third, s.name, bound, "B had unlocked it, and A holds nothing that is renewed: "+because).free()
	return passedBy
}

// start has A begin its operation, in which it is stopped at its k-th request or step; 0 is none.
func (s *pairScene) start(k int) {
	c := s.c
	if k > 0 {
		s.gate.hold(k)
	}
	c.Go(func() {
		defer close(s.told)
		ctx, cancel := context.WithTimeout(c.ctx, 2*max(c.Unit(), s.ttl)+c.timing.ExpiryLag+patience+c.Slack())
		defer cancel()
		s.got, s.err = s.op.run(s, ctx)
	})
}

// stopped waits until A has been stopped, or has ended its operation without that. What A
// waits for is freed when A has had the time to be stopped before.
func (s *pairScene) stopped() bool {
	for began := s.c.now(); !s.gate.reached(); s.c.sleep(s.c.poll() / 2) {
		if isDone(s.told) {
			return s.gate.reached()
		}
		if s.c.now() > began+quiet {
			s.vacated()
		}
	}
	return true
}

// successor has B take the name as soon as A's lease, if it has one, is over. It returns nil
// if A was told ok before that, and false if A kept B from going on.
func (s *pairScene) successor() (next *lease, free bool) {
	c := s.c
	var asking, stuck atomic.Bool
	try := func(opts ...distlock.Option) answer {
		asking.Store(true)
		defer asking.Store(false)
		return s.b.try(s.name, opts...)
	}
	over := make(chan struct{})
	c.Go(func() {
		defer close(over)
		kept := false
		switch {
		case s.op.broken:
			asking.Store(true)
			kept = !s.breakHeld()
			asking.Store(false)
		case s.held != nil:
			s.outlast(try)
		}
		if kept || s.waiter != nil && s.held != nil && !s.served() {
			stuck.Store(true)
			return
		}
		s.lapsed()
		asking.Store(true)
		s.vacate()
		asking.Store(false)
		if s.waiter != nil && s.held == nil { // the waiter for what A is to break has it now, and keeps it
			next = s.waiter.woken(c.soon(), "B had unlocked it")
			return
		}
		began := c.now()
		limit := began + c.atMost(c.Unit()) + c.timing.ExpiryLag + c.soon() // of what A may have left
		if s.held != nil {
			limit = max(limit, s.held.gone()+c.soon())
		}
		for pause := c.poll(); ; pause = max(c.poll(), min(pause*3/2, (limit-c.now())/50)) {
			if stuck.Load() || isDone(s.told) && s.err == nil {
				return
			}
			late := c.past(began, limit)
			a := try(distlock.TTL(s.after()))
			if a.err == nil {
				next = a.lease
				return
			}
			if late && a.busy() && !stuck.Load() {
				c.doubt(began, limit)
				c.breach("E1", "B still cannot have %q at %s: %s by A was stopped at its request or step %d, and what A had or may have left was over by %s: %v",
					s.name, millis(c.now()), s.op.what, s.k, millis(limit), a.err)
			}
			c.sleep(pause)
		}
	})
	s.unblock(over, &asking, &stuck)
	return next, !stuck.Load()
}

const lookThenAct = "then A went on: a driver that looks in one step and acts in another does so; the test and the change must be one step"

// goesOn lets A, which was stopped, go on, and waits for what that does. It reports whether A was told ok, and must not have been.
func (s *pairScene) goesOn() (wrong bool) {
	s.gate.release() // what A may have looked at is of the past now
	answered := s.c.within(s.told, 2*quiet)
	s.c.sleep(quiet)                               // what was on its way takes effect now, if it does
	return answered && !s.op.broken && s.wrongly() // what is stopped behind its change was right to say ok
}

// wrongly reports whether A was told ok, and must not have been. An Unlock may be right: what
// was stopped may have come after the removal of the entry.
func (s *pairScene) wrongly() bool {
	switch {
	case s.err != nil:
		return false
	case s.got != nil:
		return s.got.Err() == nil
	case s.held == nil || s.op.id == "close": // what is told then is not about a lock of A now
		return false
	case errors.Is(s.held.Err(), distlock.ErrUnlocked):
		return s.kept
	}
	return s.held.Err() == nil
}

// intact demands that B has the name still, by the word of C and by its own operations.
func (s *pairScene) intact(next *lease, because string) {
	c := s.c
	until := next.end()
	breach := func(what string, err error) {
		if errors.Is(err, distlock.ErrLost) && c.now() < until {
			c.breach(s.op.clause, "%s by B, which has %q until %s, said %q: %s", what, s.name, millis(until), err, because)
		}
	}
	switch a := s.third.try(s.name, distlock.NoRenewal()); {
	case a.err == nil && a.ret < until:
		c.breach(s.op.clause, "C was granted %q at %s although B has it until %s: %s", s.name, millis(a.ret), millis(until), because)
	case a.err == nil:
		c.intruded(a, next, until, because)
	case !a.busy():
		c.refused(s.third, a, s.name, "which B holds")
	}
	ctx, cancel := c.patiently()
	defer cancel()
	s.recorded(ctx, next, until, because)
	breach("Extend", next.Extend(ctx, c.long()))
	s.gate.heal() // and what A does about it must not hurt either
	if s.op.queues {
		breach("Unlock", next.unlock()) // for which A is waiting
		return
	}
	if !c.within(s.told, patience+c.Slack()) {
		c.breach("A4", "%s by A has not returned %v after A could go on: %s", s.op.what, patience, because)
	}
	breach("Unlock", next.unlock())
}

// recorded demands that the store, where it can be asked, has the hold of B, for as long as B may believe in it, and for no
// longer than B has asked: a late request of A may have changed nothing but the time, or the token.
func (s *pairScene) recorded(ctx context.Context, next *lease, until time.Duration, because string) {
	c, deadline, before := s.c, next.Ends(), s.c.now()
	st, err := s.third.inspect(ctx, s.name)
	if err != nil {
		return
	}
	if (!st.Held || st.Token != next.Token()) && c.now() < until {
		c.breach(s.op.clause, "B has %q with token %d until %s, but Inspect says %+v: %s", s.name, next.Token(), millis(until), st, because)
	}
	if most := c.restOf(next, before, c.now()); st.Held && st.Remaining > most {
		c.breach(s.op.clause, "by the word of the store %v are left of the lease of B, which has asked for %v: %s", st.Remaining, next.asked, because)
	}
	if end := c.now() + st.Remaining; st.Remaining > 0 && end+c.timing.TTLGranularity+c.skew(next.asked) < deadline {
		c.breach(s.op.clause, "the lease of B ends at %s by the word of the store, but B may believe in it until %s: %s", millis(end), millis(deadline), because)
	}
}
