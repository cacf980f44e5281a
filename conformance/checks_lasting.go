package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// lastingChecks follow one lock for longer than others do, or look at it while its
// client is busy with something else.
func lastingChecks() []Check {
	return []Check{
		{ID: "time/months", Clause: "H5", Mandatory: true, Run: renewedForMonths, span: 70 * day,
			Rule: "a lock is renewed for as long as nobody unlocks it, be it two months, and can be broken or unlocked as on the first day"},
		{ID: "wait/for-days", Clause: "A3", Mandatory: true, Run: waitForDays, span: 10 * day,
			Rule: "Lock waits for as long as its context allows, be it days, and is served then"},
	}
}

// forLong returns a TTL, and a time many times as long: d where years cost nothing, else longer than half a minute, which is
// what many clients of stores give up after.
func (c *C) forLong(d time.Duration) (ttl, total time.Duration) {
	if c.Virtual() {
		return c.fits(6 * time.Hour), d
	}
	return c.Unit(), 40 * time.Second
}

func renewedForMonths(c *C) {
	c.unjudged("a lock is broken, whose holder may believe in it for a renewal period")
	a, b := c.open("A"), c.open("B")
	ttl, total := c.forLong(60 * day)
	kept := a.mustTry(c.Name("kept"), "which is fresh", distlock.TTL(ttl))
	broken := a.mustTry(c.Name("broken"), "which is fresh", distlock.TTL(ttl))
	for c.now() < kept.ret+total {
		c.sleep(total / 60)
		c.mustKeep([]*lease{kept, broken}, b, fmt.Sprintf("with a TTL of %v, after it had been renewed for %v", ttl, c.now()-kept.ret))
	}
	ctx, cancel := c.patiently()
	defer cancel()
	switch err := b.breakHold(ctx, broken.Name(), broken.Token()); {
	case errors.Is(err, distlock.ErrUnsupported):
		broken.free()
	case err != nil:
		c.unheard(err, "B", broken.Name())
		c.breach("O2", "A holds %q with token %d for %v; B broke it with that token, and Break returned: %v", broken.Name(), broken.Token(), c.now()-broken.ret, err)
	default:
		b.mustFollow(broken).free()
	}
	kept.free()
	b.mustTry(kept.Name(), "which A has unlocked").free()
}

func waitForDays(c *C) {
	a, b := c.open("A"), c.open("B")
	ttl, total := c.forLong(7 * day)
	if c.sparse { // a waiter looks every few seconds, for safety
		total = min(total, 2*day)
	}
	if c.harness.Caps().Push != Yes {
		total = min(total, 90*time.Minute) // each poll costs the machine something, also in virtual time
	}
	h := a.mustTry(c.Name("x"), "which is fresh", distlock.TTL(ttl))
	w := b.begin(h.Name(), distlock.TTL(ttl))
	c.awaitQueued(h.Name(), 1)
	if c.comes(w.done, total) {
		c.mustLive(h, "while B waited for it") // B is served once A has lost it
		if w.a.err != nil {
			c.unheard(w.a.err, "B", h.Name()) // a waiter gives up on a store that is silent for its TTL
		}
		c.Failf("B waits for %q, which A holds, and its context has not ended, but Lock returned at %s, it had waited for %v: %s",
			h.Name(), millis(c.now()), w.a.ret-w.a.call, describe(w.a.err))
	}
	h.free()
	w.woken(c.soon(), fmt.Sprintf("A had unlocked it, after %v", total)).free()
}
