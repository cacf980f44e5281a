package conformance

import (
	"github.com/distlock-go/distlock"
)

func wantedChecks() []Check {
	return []Check{
		{ID: "wanted/told", Clause: "P6", Needs: []Cap{capPush, capInspector}, Run: wantedTold,
			Rule: "a holder that asks is told within its interval that another client waits, and keeps the name until it unlocks"},
		{ID: "wanted/nobody", Clause: "P6", Needs: []Cap{capInspector}, Run: wantedByNobody,
			Rule: "a holder is not told that it is wanted by a TryLock that was refused, by a waiter for another name, or by one that had given up before it came"},
	}
}

func wantedTold(c *C) {
	a, b := c.open("A"), c.open("B")
	ttl := distlock.TTL(c.long()) // not lost on a machine that stands still
	h := a.mustTry(c.Name("x"), "which is fresh", ttl)
	early := a.wanted(h.Lock, c.Unit()/4)
	a.wanted(h.Lock, c.Unit()/2) // nobody listens
	w := b.begin(h.Name(), ttl)
	c.awaitQueued(h.Name(), 1)
	queued := c.now()
	if !c.within(early, c.Unit()/4+patience) {
		c.Failf("A holds %q and has asked to be told, every %v; B has waited for it since %s, and A was not told by %s",
			h.Name(), c.Unit()/4, millis(queued), millis(c.now()))
	}
	if c.sleep(c.Unit()); w.within(0) {
		c.Failf("A holds %q, was told that B waits for it, and has not unlocked it; Lock of B returned: %s", h.Name(), describe(w.a.err))
	}
	if !c.within(a.wanted(h.Lock, c.Unit()/4), c.Unit()/4+patience) {
		c.Failf("A was told that B waits for %q, and when it asked again, it was not", h.Name())
	}
	h.mustExtend(c.long())
	h.free()
	w.lease(c.soon(), "A had unlocked it").free()
}

func wantedByNobody(c *C) {
	a, b := c.open("A"), c.open("B")
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	h := a.mustTry(name, "which is fresh", ttl)
	w := b.begin(name)
	c.awaitQueued(name, 1)
	w.cancel()
	if !w.within(patience) {
		c.Inconclusivef("B's Lock has not returned since its context has ended")
	}
	h.free()
	c.sleep(quiet) // its waiter is taken out of the queue in the background
	h = c.pollFor(a, name, c.timing.CleanupBound+c.Slack(), "A had unlocked it, and B has given up", ttl)
	like := a.mustTry(c.Name("x/0"), "which is fresh", ttl)
	other := b.begin(like.Name(), ttl)
	for range 3 {
		b.mustBeRefused(name)
	}
	c.sleep(quiet)
	if c.comes(a.wanted(h.Lock, c.Unit()/8), c.Unit()) {
		c.Failf("A holds %q, and was told at %s that it is wanted; nobody waits for it: B has only tried, and had given up before A came",
			name, millis(c.now()))
	}
	h.free()
	like.free()
	other.lease(c.soon(), "A had unlocked it").free()
}
