package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// Every check of this group passes only if its fault took effect (requireFired),
// the client had worked before, and it works again afterwards (warm).
func faultChecks() []Check {
	return append([]Check{
		{ID: "fault/black-hole", Clause: "A4", Mandatory: true, Needs: []Cap{capProxy}, Run: blackHole,
			Rule: "calls into a network that swallows everything end with their contexts, and are not reported as held"},
		{ID: "fault/half-open", Clause: "H3", Mandatory: true, Needs: []Cap{capProxy}, Run: halfOpen,
			Rule: "renewals that reach the server, but are never confirmed, do not prolong the belief in a lock"},
		{ID: "fault/latency", Clause: "H5", Mandatory: true, Needs: []Cap{capProxy}, Run: latency,
			Rule: "a slow and uneven network changes no answer"},
		{ID: "fault/fragmented", Clause: "A6", Needs: []Cap{capProxy}, Run: fragmented,
			Rule: "bytes that arrive one by one change no answer"},
		{ID: "fault/lapse-and-return", Clause: "H1", Mandatory: true, Needs: []Cap{capProxy}, Run: lapseAndReturn,
			Rule: "a client that comes back after its lease has ended competes like any other, and never holds by what it had before"},
		{ID: "fault/waiter-cut", Clause: "A3", Mandatory: true, Needs: []Cap{capProxy}, Run: waiterCut,
			Rule: "a Lock that was told held waits on when its connections break, and is served, in its place if the driver is fair"},
	}, serverFaultChecks()...)
}

func blackHole(c *C) {
	a, b := c.openVia("A"), c.open("B")
	name := c.Name("x")
	const limit = 300 * time.Millisecond
	// The lock must not run out before all calls have been made. Each may be late, but not all of them by the whole slack:
	// the check waits for the end of the lease, and has time for that.
	ttl := distlock.TTL(c.fits(max(c.Unit(), 9*limit+4*c.Slack())))
	h, busy := a.mustTry(name, "which is fresh", ttl), a.mustTry(c.Name("busy"), "which is fresh", ttl)
	a.cutOff()
	c.requireFired(1)
	prompt := func(what, clause string, f func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(c.ctx, limit)
		defer cancel()
		began := c.now()
		err := f(ctx)
		switch took := c.now() - began; {
		case c.tooLong(began, began+took, limit+c.Slack()):
			c.Failf("A's network swallows everything; %s with a context of %v took %v (slack %v) and returned: %s", what, limit, took, c.Slack(), describe(err))
		case err == nil || errors.Is(err, distlock.ErrHeld):
			c.breach(clause, "A's network swallows everything, if all its connections go through its link, but %s returned %s", what, describe(err))
		case errors.Is(err, distlock.ErrLost):
			c.Inconclusivef("the lock of A ran out before %s", what)
		case !errors.Is(err, context.DeadlineExceeded):
			c.Failf("A's network swallows everything; %s had to return the error of its context, not: %v", what, err)
		}
	}
	other := c.Name("other")
	prompt("Lock", "A6", func(ctx context.Context) error { return a.acquire(ctx, oracle.OpLock, other).err })
	prompt("TryLock", "A6", func(ctx context.Context) error { return a.acquire(ctx, oracle.OpTry, other).err })
	prompt("Extend", "H5", func(ctx context.Context) error { return h.Extend(ctx, c.Unit()) })
	prompt("Unlock", "H6", func(ctx context.Context) error { return h.Unlock(ctx) })
	prompt("a second Unlock", "H6", func(ctx context.Context) error { return h.Lock.Unlock(ctx) })
	c.Go(func() { _ = busy.Extend(c.ctx, c.Unit()) }) // it must not keep others from the lock
	c.sleep(limit)
	asked := c.now()
	if _ = busy.Err(); c.tooLong(asked, c.now(), c.Slack()) {
		c.breach("H4", "A's network swallows everything; Err took %v beside an Extend", c.now()-asked)
	}
	prompt("Unlock beside an Extend", "H6", func(ctx context.Context) error { return busy.Unlock(ctx) })
	c.pollFor(b, name, h.granted()+c.timing.ExpiryLag+c.soon(), "A was cut off and its lease had ended").free()
	a.link.Heal()
	c.warm(a)
	c.pollFor(b, other, h.granted()+c.timing.ExpiryLag+c.soon(), "the calls of A for it had failed").free()
	if c.Virtual() { // it takes three TTLs and more
		c.waiterFails(a, b)
		c.failsAtOnce(a)
	}
}

// failsAtOnce demands that a TryLock, and a Lock that was told nothing yet, fail at once while each of their connections breaks.
func (c *C) failsAtOnce(a *client) {
	defer a.breaksAll()()
	for _, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
		done := make(chan struct{})
		c.Go(func() {
			defer close(done)
			a.acquire(c.ctx, op, c.Name(fmt.Sprint("outage-", op)), distlock.TTL(c.long()))
		})
		if bound := c.Unit() / 10; !c.within(done, bound) {
			c.breach("A3", "all connections of A break; a %s fails at once then, and has not returned after %v", op, bound)
		}
	}
}

// breaksAll has each connection of p break, again and again, until mend has returned.
func (p *client) breaksAll() (mend func()) {
	all := func() { p.link.Drop(true, true); p.link.CutAll() }
	all()
	stop := p.c.repeat(all)
	return func() { stop(); p.link.Heal() }
}

// waiterFails demands that a Lock that waits comes to its end in an outage, although its context does not.
func (c *C) waiterFails(a, b *client) {
	h := b.mustTry(c.Name("waited for"), "which is fresh", distlock.TTL(c.long()))
	ttl := c.ending(c.Unit() / 8)
	w := a.begin(h.Name(), distlock.TTL(ttl))
	c.awaitQueued(h.Name(), 1)
	a.cutOff()
	cut, bound := c.now(), 3*ttl+patience+c.Slack()
	switch {
	case !w.within(bound):
		c.breach("A3", "A waits for %q with a TTL of %v, and its network swallows everything since %s: a Lock outlives that for its TTL, and has not returned %v later", h.Name(), ttl, millis(cut), bound)
	case w.a.busy():
		c.breach("A6", "A waited for %q with a TTL of %v, and its network swallowed everything since %s; Lock had to return the error of the store at last, not: %v", h.Name(), ttl, millis(cut), w.a.err)
	}
	a.link.Heal()
	h.free()
}

// waiterCut breaks the connections of a waiter in each way, one after the other. It can connect again at once.
func waiterCut(c *C) {
	a, b := c.open("A"), c.openVia("B")
	h := a.mustTry(c.Name("x"), "which is fresh", distlock.TTL(c.long()))
	queue := []*pending{b.begin(h.Name(), distlock.TTL(c.long()))}
	// On a real network B may still be about to connect when the name is freed, and a store may pass over a waiter that it cannot tell.
	if c.awaitQueued(h.Name(), 1) && c.harness.Caps().Fair == Yes && c.Virtual() {
		queue = append(queue, c.open("D").begin(h.Name(), distlock.TTL(c.long())))
		c.awaitQueued(h.Name(), 2)
	}
	// The next of B waits behind the first, and is told what that was told.
	if !c.eventually(patience, func() bool { return errors.Is(b.lock(h.Name(), quiet).err, distlock.ErrHeld) }) {
		c.Inconclusivef("B waits for %q, and was not told by now that it is held", h.Name())
	}
	looks := c.long() / 3 // at the latest, by W1
	for i, cut := range []func(){b.link.CutAll, func() { b.link.CutRequest(1) }, func() { b.link.CutReply(1) }} {
		before := b.link.Fired()
		cut()
		if i > 0 {
			c.eventually(looks+c.Slack(), func() bool { return b.link.Fired() > before })
		}
		if c.comes(queue[0].done, quiet) {
			c.mustLive(h, "B waiting for it")
			c.Failf("B waited for %q, its connections broke, and it could connect again at once; Lock returned: %v", h.Name(), queue[0].a.err)
		}
		b.link.Heal()
	}
	c.requireFired(1) // CutAll finds nothing where connections come and go, and a waiter need not send anything
	if c.Virtual() {  // on a real network nobody knows how soon a client library connects again
		outage, mend := min(c.long(), time.Minute)*2/5, b.breaksAll()
		if c.comes(queue[0].done, outage) {
			c.Failf("B waited for %q, and had been told so; its connections broke for %v, less than its TTL and a minute, and Lock returned: %v", h.Name(), outage, queue[0].a.err)
		}
		mend()
	}
	h.free()
	if c.firstDone(queue, looks+c.soon()) > 0 {
		c.breach("W3", "B and then D waited for %q, and the connections of B broke meanwhile; D was served first", h.Name())
	}
	for _, w := range queue {
		w.woken(looks+c.soon(), "those before it had unlocked it").free()
	}
	c.pollFor(a, h.Name(), c.timing.CleanupBound+c.soon(), "everybody who had waited for it, B over connections that broke, has unlocked it").free()
}

func halfOpen(c *C) {
	a, b := c.openVia("A"), c.open("B")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh")
	w := b.begin(name)
	c.awaitQueued(name, 1)
	a.link.Drop(false, true)
	c.requireFired(1)
	dropped := c.now()
	// A renewal that was answered before may be confirmed a moment later still. It
	// was sent before, so the lease it confirms is counted from before.
	limit := dropped + h.granted()
	if !c.within(h.done, limit+c.Slack()-c.now()) {
		c.Failf("no reply has reached A since %s, and its Done is not closed by %s; the last lease that can have been confirmed ended at %s, its Deadline is %s",
			millis(dropped), millis(c.now()), millis(limit), millis(h.Ends()))
	}
	if d := h.Ends(); d > limit {
		c.Failf("no reply has reached A since %s, but its Deadline has moved on to %s; the last lease that can have been confirmed ended at %s",
			millis(dropped), millis(d), millis(limit))
	}
	// What A sends still arrives: renewals, until its belief ends, and the release of
	// its clean-up, a lease later at the latest.
	w.lease(2*h.granted()+c.timing.ExpiryLag+c.soon(), "A had lost it, whose replies do not come through").free()
	a.link.Heal()
	c.warm(a)
}

func latency(c *C) {
	const delay = 200 * time.Millisecond
	a, b := c.openVia("A"), c.open("B")
	name := c.Name("x")
	c.warm(a)
	a.link.Delay(delay, delay/2) // and no round trip takes less than half of it
	a.delayed = true
	c.watchStore()
	over := fmt.Sprintf("nobody had ever held it, over a network that takes %v", delay)
	ttl := c.fits(max(c.Unit(), 10*delay, 8*a.slowestCall(over)))
	h := c.pollFor(a, name, patience+c.soon(), over, distlock.TTL(ttl))
	for range 6 {
		c.sleep(ttl / 4)
		c.mustLive(h, fmt.Sprintf("with a network that takes %v, give or take half of that, and a TTL of %v", delay, ttl))
		b.mustBeBusy(name, h)
	}
	began := c.now()
	h.free()
	if took := c.now() - began; took < delay/4 {
		c.Inconclusivef("the link did not delay anything: Unlock took %v", took)
	}
	a.link.Heal()
	c.pollFor(b, name, c.soon(), "A had unlocked it over a slow network").free()
	c.warm(a)
}

// slowestCall returns the longest that a call of p takes: a renewal may take as long. It is entitled to a name of its own,
// because why.
func (p *client) slowestCall(why string) (took time.Duration) {
	c := p.c
	h := c.pollFor(p, c.Name("measured"), patience+c.soon(), why, distlock.TTL(c.long()))
	call, ret := h.mustExtend(c.long())
	freed := c.now()
	h.free()
	return max(h.ret-h.call, ret-call, c.now()-freed)
}

func fragmented(c *C) {
	a, b := c.openVia("A"), c.open("B")
	name := c.Name("x")
	c.warm(a)
	a.link.Slice(true)
	for range 5 {
		h := a.mustTry(name, "which nobody has")
		h.mustExtend(c.fits(2 * c.Unit()))
		b.mustBeBusy(name, h)
		h.free()
		h = b.mustTry(name, "which A has unlocked")
		w := a.begin(name)
		c.awaitQueued(name, 1)
		h.free()
		w.lease(c.soon(), "B had unlocked it").free()
	}
	if a.link.Fired() == 0 {
		c.Skipf("the link of this harness carries no bytes that could be cut into pieces")
	}
}

func lapseAndReturn(c *C) {
	a, b := c.openVia("A"), c.open("B")
	for round := range 3 {
		name := c.Name(fmt.Sprint("n", round))
		c.warm(a)
		h := a.mustTry(name, "which is fresh")
		a.cutOff()
		c.sleepUntil(h.Ends())
		for h.Err() == nil { // a renewal may have been confirmed just before the cut
			c.sleep(c.Unit() / 20)
		}
		a.link.Heal()
		bound := h.granted() + c.timing.ExpiryLag + c.soon() + patience
		c.together(2, func(i int, _ *rand.Rand) {
			p := []*client{a, b}[i]
			// Until the client has found out that its connections are gone, Lock
			// may fail with their errors.
			var got answer
			if !c.eventually(bound, func() bool { got = p.lock(name, bound); return got.err == nil }) {
				c.Failf("%s could not have %q within %v of the return of A, whose lease had ended at %s: %v",
					p.who, name, bound, millis(h.Ends()), got.err)
			}
			c.sleep(c.Unit() / 10)
			_ = got.unlock()
		})
	}
	c.requireFired(3)
}
