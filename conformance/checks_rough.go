package conformance

import (
	"context"
	"reflect"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// roughChecks are of what a client library may do to the calls of a driver, where no
// proxy can stand in for it.
func roughChecks() []Check {
	return []Check{
		{ID: "fault/repeated-request", Clause: "H6", Needs: []Cap{capProxy}, Run: repeatedRequest,
			Rule: "a request that arrives a second time, however late, changes nothing that belongs to another"},
		{ID: "fault/never-returns", Clause: "A4", Needs: []Cap{capProxy}, Run: neverReturns,
			Rule: "a request that is never answered holds up neither its caller beyond its context nor any other lock"},
		{ID: "wrap/own-lock", Clause: "A1", Mandatory: true, Run: wrapOwnLock,
			Rule: "each acquisition has a lock of its own that tells of itself, also where the driver wraps those of the engine"},
	}
}

// rough is implemented by a link with faults that no wire has.
type rough interface {
	// Repeat arms a fault: the k-th request from now arrives a second time, at
	// Release or Heal.
	Repeat(k int)

	// Hang arms a fault: the k-th request from now is never answered, until Heal.
	Hang(k int)

	Release()
}

// openRough opens a client with a link that has the faults of calls.
func (c *C) openRough(who string) (*client, rough) {
	p := c.openVia(who)
	r, ok := p.link.(rough)
	if !ok {
		c.Skipf("the requests of the link are no calls: it cannot repeat one, nor leave one without an answer")
	}
	return p, r
}

func repeatedRequest(c *C) {
	c.requireFired(3)
	a, link := c.openRough("A")
	b, third := c.openMortal("B"), c.open("C")
	arrives := func() {
		link.Release()
		c.sleep(quiet)
	}
	link.Repeat(1)
	h := a.mustTry(c.Name("try"), "which is fresh", distlock.TTL(c.long()))
	arrives()
	c.mustHold(h, "its TryLock has arrived a second time")
	third.mustBeBusyAfter(h.Name(), h, "A's TryLock had arrived a second time")
	h.free()
	next := third.mustTry(h.Name(), "which A has unlocked; its TryLock had arrived twice before", distlock.TTL(c.long()))
	if next.Token() <= h.Token() {
		c.Failf("A held %q with token %d, its TryLock having arrived twice; the next grant has token %d", h.Name(), h.Token(), next.Token())
	}
	next.free()

	h = a.mustTry(c.Name("unlock"), "which is fresh", distlock.TTL(c.long()))
	link.Repeat(1)
	h.free()
	next = third.mustTry(h.Name(), "which A has unlocked", distlock.TTL(c.long()))
	arrives()
	b.mustBeBusyAfter(h.Name(), next, "A's Unlock of its lock before had arrived a second time")
	next.free()

	h = a.mustTry(c.Name("extend"), "which is fresh", distlock.NoRenewal())
	link.Repeat(1)
	h.mustExtend(c.extends(c.Unit(), 4*c.Unit()))
	h.free()
	next = b.mustTry(h.Name(), "which A has unlocked", distlock.NoRenewal())
	arrives()
	c.untouched(next, third, "A's Extend of its lock before, which arrived a second time,")
}

func neverReturns(c *C) {
	c.requireFired(4)
	a, link := c.openRough("A")
	b := c.open("B")
	held := c.takeAll(a, c.names(3), "which is fresh")
	c.watchStore() // as in isolate/hung-renewal
	extended := a.mustTry(c.Name("extended"), "which is fresh", distlock.TTL(c.long()))
	unlocked := a.mustTry(c.Name("unlocked"), "which is fresh", distlock.TTL(c.long()))
	const bound = 300 * time.Millisecond
	// A clean-up of the call before may be the request that gets no answer. Then this call
	// succeeds, and what it has got is given back.
	take := func(op oracle.Op, label string) func(context.Context) {
		return func(ctx context.Context) {
			if got := a.acquire(ctx, op, c.Name(label), distlock.TTL(c.long())); got.err == nil {
				_ = got.lease.unlock()
			}
		}
	}
	for _, call := range []func(ctx context.Context){
		take(oracle.OpTry, "tried"),
		take(oracle.OpLock, "locked"),
		func(ctx context.Context) { _ = extended.Extend(ctx, c.Unit()) },
		func(ctx context.Context) { _ = unlocked.Unlock(ctx) },
	} {
		link.Hang(1)
		ctx, cancel := context.WithTimeout(c.ctx, bound)
		call(ctx)
		cancel()
	}
	while := "four of its requests are never answered"
	c.mustGoOn(a, held, b, c.now()+c.Unit()*5/4, while)
	a.link.Heal()
	c.freeAll(held)
	for _, label := range []string{"tried", "locked", "unlocked"} {
		c.pollFor(b, c.Name(label), c.lasts(c.Unit())+c.timing.CleanupBound+c.soon(), "the calls of A for it have ended").free()
	}
}

func wrapOwnLock(c *C) {
	a, b := c.open("A"), c.open("B")
	x := a.mustTry(c.Name("x"), "which is fresh", distlock.TTL(c.long()))
	y := a.mustTry(c.Name("y"), "which is fresh", distlock.TTL(c.long()), distlock.NoRenewal())
	// A driver may wrap its locks in values that cannot be compared.
	if reflect.TypeOf(x.Hold.Lock).Comparable() && x.Hold.Lock == y.Hold.Lock {
		c.Failf("two acquisitions of A have the same lock")
	}
	before := x.Deadline()
	y.mustExtend(c.long())
	if x.Name() != c.Name("x") || y.Name() != c.Name("y") || !x.Deadline().Equal(before) {
		c.Failf("A holds %q and %q, and extended the second; its locks call themselves %q and %q, and the Deadline of the first went from %v to %v",
			c.Name("x"), c.Name("y"), x.Name(), y.Name(), before, x.Deadline())
	}
	y.free()
	c.mustHold(x, "another lock of its client was unlocked")
	b.mustBeBusy(x.Name(), x)
	if y.Err() == nil || !isDone(y.Done()) {
		c.Failf("A has unlocked %q, but the lock says that it is held", y.Name())
	}
	x.free()
	b.mustTry(x.Name(), "which A has unlocked by the lock that its driver has wrapped").free()
}
