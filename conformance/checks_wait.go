package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

func waitChecks() []Check {
	return append([]Check{
		{ID: "wait/deadline", Clause: "A4", Mandatory: true, Run: waitDeadline,
			Rule: "Lock gives up when its context ends, neither before nor long after, and says that the context ended and that the name was held"},
		{ID: "wait/try-does-not-wait", Clause: "A3", Mandatory: true, Run: tryDoesNotWait,
			Rule: "TryLock on a held name answers at once and leaves no place in the queue"},
		{ID: "wait/release-vs-register", Clause: "W1", Mandatory: true, Run: releaseVsRegister,
			Rule: "an unlock that comes while a waiter is just beginning to wait is not missed by it"},
		{ID: "wait/notification-lost", Clause: "W1", Needs: []Cap{capProxy}, Run: notificationLost,
			Rule: "a waiter whose notification was lost on the way finds out by itself that the name is free"},
		{ID: "wait/no-busy-loop", Clause: "W2", Needs: []Cap{capProxy}, Run: noBusyLoop,
			Rule: "waiting costs the server next to nothing, however many goroutines of a client wait for one name"},
	}, turnChecks()...)
}

func waitDeadline(c *C) {
	a, b := c.open("A"), c.open("B")
	name := c.Name("x")
	a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	limit := 300 * time.Millisecond
	ask := func(limit time.Duration) (err error) {
		before := c.now()
		ctx, cancel := context.WithTimeoutCause(c.ctx, limit, errOwnReason)
		defer cancel()
		after := c.now()
		got := b.acquire(ctx, oracle.OpLock, name)
		switch {
		case got.err == nil:
			c.Failf("B was granted %q, which A holds", name)
		case got.ret < before+limit:
			if !timedOut(got.err) {
				c.unheard(got.err, "B", name)
			}
			c.Failf("B gave up on %q at %s, its context ended at %s at the earliest: %v", name, millis(got.ret), millis(before+limit), got.err)
		case c.tooLong(after, got.ret, limit+c.Slack()):
			c.Failf("B gave up on %q at %s, %v after the end of its context (allowed is the slack, %v): %v",
				name, millis(got.ret), got.ret-after-limit, c.Slack(), got.err)
		case !errors.Is(got.err, context.DeadlineExceeded):
			c.Failf("the context of B's call ended, but the error does not match context.DeadlineExceeded: %v", got.err)
		}
		return got.err
	}
	if errors.Is(ask(limit), distlock.ErrHeld) {
		return
	}
	// A call that never heard from the store cannot know of a holder. With the slack
	// as its limit, 20 times what a call takes, it has heard.
	if err := ask(c.Slack()); !errors.Is(err, distlock.ErrHeld) {
		c.Failf("B waited for %v for %q, which A held, and its error does not match ErrHeld: %v", c.Slack(), name, err)
	}
}

func tryDoesNotWait(c *C) {
	a, b, third := c.open("A"), c.open("B"), c.open("C")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	c.refusesAtOnce(b, name)
	if i := c.inspector(); i != nil {
		if n, err := i.Waiters(c.ctx, name); err == nil && n > 0 {
			c.Failf("a TryLock on the held %q has returned, but %d clients are queued for it in the store", name, n)
		}
	}
	h.free()
	third.mustTry(name, "which A has unlocked; only the failed TryLock of B could be in the way").free()

	// The same where a Lock of the same client waits.
	waited := c.Name("waited")
	h = a.mustTry(waited, "which is fresh", distlock.TTL(c.long()))
	w := b.begin(waited, distlock.TTL(c.long()))
	c.awaitQueued(waited, 1)
	c.refusesAtOnce(b, waited)
	c.refusesAtOnce(third, waited) // which asks the store: nobody of its client waits
	w.cancel()
	h.free()
}

// refusesAtOnce demands that TryLock on a name that A holds does not wait.
func (c *C) refusesAtOnce(p *client, name string) {
	best := time.Duration(math.MaxInt64)
	began := c.now()
	for range 3 { // the machine may be slow once, the driver would be each time
		got := p.mustBeRefused(name)
		best = min(best, got.ret-got.call)
	}
	// Before it answers, it may have to undo what it has begun, for 100 ms (P5).
	if allowed := min(500*time.Millisecond+10*c.cal.Pair, c.Slack()); c.tooLong(began, began+best, allowed) {
		c.Failf("TryLock on the held %q took %v or longer each time, %v is allowed: it waits for something", name, best, allowed)
	}
}

func releaseVsRegister(c *C) {
	c.registers(300, func(h *lease) string {
		h.free()
		return h.p.who + " had unlocked it"
	})
}

// registers has clients take turns on a name. Each begins to wait at a random moment about the end of the hold before, which
// end brings about and tells.
func (c *C) registers(rounds int, end func(*lease) string) {
	a, b := c.openPhased("A*"), c.openPhased("B*")
	name, ttl := c.Name("registers"), distlock.TTL(c.long())
	rng := c.Rand()
	h := a.mustTry(name, "which is fresh", ttl)
	for i := range c.rounds(rounds) {
		w := b.begin(name, ttl)
		c.sleep(time.Duration(rng.Int64N(int64(c.phase()))))
		how := end(h)
		h = w.woken(c.soon(), fmt.Sprintf("%s, at a random moment of round %d (the TTL is %v: a wake-up was lost)", how, i+1, c.long()))
		a, b = b, a
	}
	h.free()
}

func notificationLost(c *C) {
	a, b := c.open("A"), c.openVia("B")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	w := b.begin(name)
	c.awaitQueued(name, 1)
	before := b.link.Fired()
	b.link.Drop(false, true)
	h.free()
	c.eventually(c.Unit()/2, func() bool { return b.link.Fired() > before })
	b.link.Heal()
	c.requireFired(1)
	// The connection is broken now, and Lock may report that; but it must not go on
	// waiting. Of its TTL, a third is the poll interval, and its place in the queue
	// has to be found again or replaced.
	bound := c.Unit() + c.timing.ExpiryLag + c.soon()
	if !w.within(bound) {
		c.Failf("B is still waiting for %q %v after A had unlocked it and the link of B was healed; its TTL is %v, so it had to look within a third of that",
			name, bound, c.Unit())
	}
	if w.a.err == nil {
		w.a.free()
		return
	}
	c.Logf("the waiter was told: %v", w.a.err)
	c.pollFor(b, name, bound, "the link was healed").free()
}

// requestsOf counts the requests of a call that is refused, at the least 1. The first call has made the connections, and its
// answer is believed for a moment (A6). A renewal or a heartbeat falls in one of the others, not in both.
func (p *client) requestsOf(call func()) int {
	call()
	least := math.MaxInt
	for range 2 {
		p.c.sleep(quiet)
		before := p.link.Requests()
		call()
		least = min(least, p.link.Requests()-before)
	}
	return max(1, least)
}

// requestsOfTry counts those of a TryLock that is granted, at the least 1. One before it has made the connections.
func (p *client) requestsOfTry() int {
	name := p.c.Name("warm-" + p.who)
	p.mustTry(name, "which is fresh").free()
	before := p.link.Requests()
	h := p.mustTry(name, "which "+p.who+" has unlocked")
	defer h.free()
	return max(1, p.link.Requests()-before)
}

func noBusyLoop(c *C) {
	a, b := c.open("A"), c.openVia("B")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	requests := b.requestsOf(func() { b.mustBeBusy(name, h) })
	const goroutines = 20
	var waiters []*pending
	for range goroutines {
		waiters = append(waiters, b.begin(name))
	}
	c.awaitQueued(name, 1)
	c.sleep(c.Unit() / 4) // a poller begins fast and backs off
	if c.harness.Caps().Push == Yes {
		c.awaitSilence(b.link.Requests)
	}
	before, began := b.link.Requests(), c.now()
	c.sleep(c.Unit())
	sent, took := b.link.Requests()-before, c.now()-began
	// A poller that has backed off asks ten times a second. With notifications it asks
	// three times a TTL. If woken for nothing it asks ten times a second: the engine
	// slows it down. Each time it sends what a TryLock that is refused sends. The rest is room for heartbeats.
	rate := 20
	if c.harness.Caps().Push == Yes {
		rate = 3
	}
	allowed := 10 + int(took.Seconds()*float64(rate*requests))
	switch {
	case sent > allowed:
		c.Failf("%d goroutines of B waited for %q and sent %d requests in %v, %d are allowed", goroutines, name, sent, took.Round(time.Millisecond), allowed)
	case sent == 0 && c.harness.Caps().Push != Yes:
		c.Failf("B waited for %q for %v without a request, and the driver declares that it is not notified: it can never learn that the name is free", name, took)
	}
	for _, w := range waiters {
		w.cancel()
	}
	h.free()
}
