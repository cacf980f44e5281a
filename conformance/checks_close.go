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

func closeChecks() []Check {
	return []Check{
		{ID: "close/idempotent", Clause: "C1", Mandatory: true, Run: closeIdempotent,
			Rule: "Close may be called several times, also at once, and succeeds each time; the names are free when any of them returns"},
		{ID: "close/frees-held", Clause: "C1", Mandatory: true, Run: closeFreesHeld,
			Rule: "Close unlocks what the client holds: the names are free when it returns, and Unlock says so afterwards"},
		{ID: "close/waiters", Clause: "C1", Mandatory: true, Run: closeWaiters,
			Rule: "Close makes waiting calls fail with ErrClosed, promptly, and leaves nothing of them"},
		{ID: "close/use-after-close", Clause: "C1", Mandatory: true, Run: useAfterClose,
			Rule: "Lock, TryLock, Inspect, List and Break on a closed client fail with ErrClosed"},
		{ID: "close/race-with-grant", Clause: "C1", Mandatory: true, Run: closeRacesGrant,
			Rule: "a call that is in flight when its client is closed leaves nothing held"},
		{ID: "close/dead-server", Clause: "C1", Mandatory: true, Needs: []Cap{capProxy}, Run: closeDeadServer,
			Rule: "Close returns within some ten seconds although the server does not answer, and says what it could not release"},
	}
}

// connections is what Close may take for them, when all else is over (C1).
const connections = 2 * time.Second

func closeIdempotent(c *C) {
	a, b := c.openPhased("A"), c.open("B")
	names, ttl := c.names(5), distlock.TTL(c.long())
	c.takeAll(a, names, "which is fresh", ttl)
	c.together(len(names), func(i int, _ *rand.Rand) {
		if err := a.close(); err != nil {
			c.Failf("one of five calls to Close, made at the same time, returned: %v", err)
		}
		b.mustTry(names[i], "which A held; one of five calls of A's Close, made at the same time, has returned", ttl).free()
	})
	if err := a.close(); err != nil {
		c.Failf("a client that was closed was closed again: %v", err)
	}
}

func closeFreesHeld(c *C) {
	a, b := c.open("A"), c.open("B")
	n := 130
	if c.Virtual() {
		n = 600
	}
	names, ttl := c.labels(n), distlock.TTL(c.long())
	held := append(c.takeAll(a, names[:n/2], "which is fresh", ttl), c.takeAll(a, names[n/2:], "which is fresh", ttl, distlock.NoRenewal())...)
	a.mustClose()
	c.share(len(held), func(i int) {
		h := held[i]
		if err := h.Err(); !errors.Is(err, distlock.ErrUnlocked) {
			c.Failf("A held %q and closed its client; the Err of the lock must match ErrUnlocked, it is %s", h.Name(), describe(err))
		}
		if !c.within(h.Done(), 0) {
			c.Failf("A held %q and closed its client; the Done of the lock is open", h.Name())
		}
		b.mustTry(h.Name(), "which A held when its client was closed", distlock.TTL(c.long()))
		if err := h.unlock(); err != nil {
			c.Failf("A's client was closed, which released %q; Unlock must report the same, it returned: %v", h.Name(), err)
		}
		if err := h.Lock.Extend(c.ctx, c.long()); !errors.Is(err, distlock.ErrUnlocked) {
			c.breach("H5", "A's client was closed, which released %q; A's Extend must match ErrUnlocked, it returned %s", h.Name(), describe(err))
		}
	})
}

func closeWaiters(c *C) {
	a, b, third := c.open("A"), c.open("B"), c.open("C")
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	h := a.mustTry(name, "which is fresh", ttl)
	var queue []*pending
	for range 3 {
		queue = append(queue, b.begin(name, ttl))
	}
	c.awaitQueued(name, 1)
	began := c.now()
	b.mustClose()
	if took := c.now() - began; c.tooLong(began, began+took, connections+c.Slack()) {
		c.Failf("Close of a client with 3 waiting calls took %v (slack %v)", took, c.Slack())
	}
	for _, w := range queue {
		if !w.within(c.Slack()) {
			c.Failf("B's client was closed, but its call for %q has not returned %v later", name, c.now()-began)
		}
		if !errors.Is(w.a.err, distlock.ErrClosed) {
			c.Failf("B's client was closed while it waited for %q; the error must match ErrClosed, it is %s", name, describe(w.a.err))
		}
	}
	h.free()
	c.pollFor(third, name, c.timing.CleanupBound+c.Slack(), "A had unlocked it and B, which waited for it, had been closed", ttl).free()
}

func useAfterClose(c *C) {
	a, b := c.open("A"), c.open("B")
	held := b.mustTry(c.Name("held"), "which is fresh")
	a.mustClose()
	for _, name := range []string{c.Name("free"), held.Name()} {
		for _, op := range []oracle.Op{oracle.OpLock, oracle.OpTry} {
			ctx, cancel := context.WithTimeout(c.ctx, patience)
			got := a.acquire(ctx, op, name)
			cancel()
			if !errors.Is(got.err, distlock.ErrClosed) {
				c.Failf("%s(%q) on a closed client: the error must match ErrClosed, it is %s", op, name, describe(got.err))
			}
		}
	}
	_, inspected := a.inspect(c.ctx, held.Name())
	_, listed := a.listed(c.ctx, c.Name(""))
	_, swept := a.sweepIdle(c.ctx, time.Hour)
	for op, err := range map[string]error{"Inspect": inspected, "List": listed, "Sweep": swept, "Break": a.breakHold(c.ctx, held.Name(), held.Token())} {
		if !errors.Is(err, distlock.ErrClosed) && !errors.Is(err, distlock.ErrUnsupported) {
			c.Failf("%s on a closed client: the error must match ErrClosed, it is %s", op, describe(err))
		}
	}
	b.mustTry(c.Name("free"), "for which only a closed client has asked").free()
	held.free()
}

func closeRacesGrant(c *C) {
	b := c.open("B")
	ttl := distlock.TTL(c.long())
	rng := c.Rand()
	for i := range 10 {
		name := c.Name(fmt.Sprint("n", i))
		p := c.openPhased(fmt.Sprint("A", i+1))
		w := p.begin(name, ttl)
		c.sleep(random(rng, c.phase()))
		p.mustClose()
		closed := c.now()
		if !w.within(c.Slack()) {
			c.Failf("%s was closed, but its call for %q has not returned %v later", p.who, name, c.now()-closed)
		}
		if w.a.err == nil && w.a.Err() == nil {
			c.Failf("%s was closed at %s, and holds %q, which Lock has returned to it", p.who, millis(closed), name)
		}
		c.pollFor(b, name, c.timing.CleanupBound+c.Slack(), fmt.Sprintf("%s was closed while its call for it was in flight (the TTL is %v)", p.who, c.long()), ttl).free()
	}
}

func closeDeadServer(c *C) {
	a, b := c.openVia("A"), c.open("B")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh")
	a.cutOff()
	c.requireFired(1)
	began := c.now()
	err := a.close()
	took := c.now() - began
	if h.Err() == nil {
		c.Failf("A's client is closed, but A still believes in its lock of %q", name)
	}
	// A lock that has run out meanwhile was not left held by anybody.
	if err == nil && took < c.Unit() {
		c.Failf("A's network swallows everything and its lock of %q cannot have been released, but Close returned nil after %v", name, took)
	}
	c.pollFor(b, name, h.granted()+c.timing.ExpiryLag+c.soon(), "A was closed without being able to release it").free()
}
