package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

func fenceChecks() []Check {
	return []Check{
		{
			ID: "fence/increases", Clause: "F1", Mandatory: true, Run: fenceIncreases,
			Rule: "the token rises from grant to grant, in whatever hands the name is",
		},
		{
			ID: "fence/over-expiry", Clause: "F1", Mandatory: true, Run: fenceOverExpiry,
			Rule: "the token rises over a lease that has run out",
		},
		{
			ID: "fence/over-break", Clause: "F1", Needs: []Cap{capInspector}, Run: fenceOverBreak,
			Rule: "the token rises over an entry that an operator has removed",
		},
		{
			ID: "fence/over-cleanup", Clause: "F1", Needs: []Cap{capInspector}, Run: fenceOverCleanup,
			Rule: "the token rises although the store was cleaned of what was left of the name",
		},
		{
			ID: "fence/over-restart", Clause: "F1", Needs: []Cap{capProcess}, Alone: true, Run: fenceOverRestart,
			Rule: "the token rises over a restart of the server",
		},
		{
			ID: "fence/stable-in-hold", Clause: "F1", Mandatory: true, Run: fenceStable,
			Rule: "the token of a lock does not change while it is held, extended and renewed",
		},
		{
			ID: "fence/unknown-gap", Clause: "F1", Needs: []Cap{capProxy}, Run: fenceUnknownGap,
			Rule: "the token rises over attempts with an unknown outcome; gaps are fine",
		},
		{
			ID: "fence/end-to-end", Clause: "F1", Mandatory: true, Run: fenceEndToEnd,
			Rule: "a store that refuses lower tokens refuses the write of a holder that has been succeeded",
		},
	}
}

// rises demands that a grant has a higher token than all before it.
func (c *C) rises(last *int64, h *lease, over string) {
	if h.Token() <= *last {
		c.Failf("%s was granted %q with token %d; the last token, before %s, was %d", h.p.who, h.Name(), h.Token(), over, *last)
	}
	*last = h.Token()
}

func fenceIncreases(c *C) {
	peers := []*client{c.open("A"), c.open("B"), c.open("C")}
	name, last := c.Name("x"), int64(0)
	for i := range c.rounds(100) {
		h := peers[i%len(peers)].mustTry(name, "which nobody has")
		c.rises(&last, h, "a grant that was unlocked")
		h.free()
	}
}

func fenceOverExpiry(c *C) {
	a, b := c.openMortal("A"), c.open("B")
	name, last := c.Name("x"), int64(0)
	ttl := c.short()
	for range 3 {
		h := a.mustTry(name, "which nobody has", distlock.TTL(ttl), distlock.NoRenewal())
		c.rises(&last, h, "a grant that was unlocked")
		a.cutOff()
		next := c.pollFor(b, name, h.gone()+c.soon()-c.now(), "the lease of the dead A had ended")
		c.rises(&last, next, "a lease that ran out")
		next.free()
		if a.link != nil {
			a.link.Heal()
			c.sleepUntil(h.gone()) // the dead A wakes up and cleans up behind itself
		}
		c.warm(a)
	}
}

// warm makes sure that a client has new connections after a fault.
func (c *C) warm(p *client) {
	name := c.Name("warm-" + p.who)
	c.pollFor(p, name, patience, "nothing keeps it from its store any more").free()
}

func fenceOverBreak(c *C) {
	c.unjudged("an entry is removed behind the back of its holder")
	a, b := c.open("A"), c.open("B")
	name, last := c.Name("x"), int64(0)
	for range 3 {
		h := a.mustTry(name, "which nobody has")
		c.rises(&last, h, "a grant that was unlocked")
		if err := c.inspector().Delete(c.ctx, name); err != nil {
			c.Failf("the harness could not delete the entry of %q, which A holds: %v", name, err)
		}
		next := c.pollFor(b, name, c.soon(), "the entry of A was removed")
		c.rises(&last, next, "the removal of an entry")
		_ = h.unlock() // ErrLost, or nil: A may not know yet
		next.free()
	}
}

func fenceOverCleanup(c *C) {
	a, b := c.open("A"), c.open("B")
	name, last := c.Name("x"), int64(0)
	const idle = 10 * time.Millisecond
	for range 3 {
		h := a.mustTry(name, "which nobody has")
		c.rises(&last, h, "a grant that was unlocked")
		h.free()
		c.sleep(10 * idle)
		n, err := b.sweepIdle(c.ctx, idle)
		switch {
		case errors.Is(err, distlock.ErrUnsupported):
			c.Skipf("the driver is no Sweeper: its store keeps nothing that could be swept")
		case err != nil:
			c.Failf("B swept the store of what was idle for %v: %v", idle, err)
		}
		c.Logf("swept %d names", n)
		h = b.mustTry(name, "which was swept")
		c.rises(&last, h, "a sweep")
		h.free()
	}
}

func fenceOverRestart(c *C) {
	name, last := c.Name("x"), int64(0)
	a := c.open("A")
	for range 3 {
		h := a.mustTry(name, "which nobody has")
		c.rises(&last, h, "a grant that was unlocked")
		h.free()
	}
	c.restart()
	h := c.pollFor(c.open("B"), name, patience+c.soon(), "the server was killed and restarted")
	c.rises(&last, h, "the restart")
	h.free()
}

func fenceStable(c *C) {
	a := c.open("A")
	h := a.mustTry(c.Name("x"), "which is fresh")
	token := h.Token()
	for range 5 {
		c.sleep(c.Unit() / 4)
		h.mustExtend(c.Unit())
		if now := h.Token(); now != token {
			c.Failf("A's lock was granted with token %d, which has become %d", token, now)
		}
	}
	h.free()
}

func fenceUnknownGap(c *C) {
	a, b := c.openVia("A"), c.open("B")
	name, last := c.Name("x"), int64(0)
	ttl := c.short()
	for k := range 4 {
		c.warm(a)
		a.link.CutReply(k + 1)
		got := a.try(name, distlock.TTL(ttl), distlock.NoRenewal())
		a.link.Heal()
		if got.err == nil {
			c.rises(&last, got.lease, "an attempt without an answer")
			_ = got.unlock()
		}
		h := c.pollFor(b, name, ttl+c.timing.ExpiryLag+c.soon(), "the attempt of A, whose reply was lost, and its lease were over")
		c.rises(&last, h, "an attempt without an answer")
		h.free()
	}
	c.requireFired(1)
}

func fenceEndToEnd(c *C) {
	a, b := c.openMortal("A"), c.open("B")
	name := c.Name("x")
	store := new(register)
	h := a.mustTry(name, "which is fresh", distlock.NoRenewal(), distlock.TTL(c.short()))
	if err := store.write("A, on time", h.Token()); err != nil {
		c.Failf("the first write was refused: %v", err)
	}
	a.cutOff()
	next := c.pollFor(b, name, h.gone()+c.soon()-c.now(), "the lease of A had ended")
	if err := store.write("B", next.Token()); err != nil {
		c.Failf("B holds %q and writes with token %d: %v", name, next.Token(), err)
	}
	if err := store.write("A, late", h.Token()); err == nil {
		c.Failf("A, whose lease has ended, writes with token %d after B has written with %d, and nothing tells the two apart: %s",
			h.Token(), next.Token(), fmt.Sprint(store.writes))
	}
	next.free()
}

// restart kills the server and brings it back on its data.
func (c *C) restart() {
	p := c.harness.(Process) // the check names capProcess in Needs
	ctx, cancel := context.WithTimeout(c.ctx, 4*patience)
	defer cancel()
	if err := p.Kill(ctx); err != nil {
		c.Inconclusivef("the harness could not kill the server: %v", err)
	}
	if err := p.Restart(ctx); err != nil {
		c.Inconclusivef("the harness could not restart the server: %v", err)
	}
}
