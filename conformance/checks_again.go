package conformance

import (
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// againChecks come back to a name, after a long time and again and again.
func againChecks() []Check {
	return []Check{
		{ID: "fence/over-idle", Clause: "F1", Mandatory: true, Run: fenceOverIdle, span: 1200 * day,
			Rule: "the token rises over any time in which nobody has held the name"},
		{ID: "fence/many", Clause: "F1", Mandatory: true, Run: fenceMany, span: day,
			Rule: "the token rises over any number of grants, also beyond what a small integer can count"},
	}
}

func fenceOverIdle(c *C) {
	pauses := []time.Duration{0, c.Unit() / 4, c.Unit(), 30 * time.Second}
	if c.Virtual() {
		pauses = append(pauses, time.Hour+time.Minute, 25*time.Hour, 8*day, 32*day, 366*day/2, 2*366*day)
	}
	a, b := c.open("A"), c.open("B")
	unlocked, expired := c.Name("unlocked"), c.Name("expired")
	var first, second int64
	free := time.Duration(0) // since then
	for i, pause := range pauses {
		c.sleepUntil(free + pause)
		p := a
		if i%2 == 1 {
			p = b
		}
		h := p.mustTry(unlocked, "which everybody has unlocked")
		c.rises(&first, h, fmt.Sprintf("%v in which nobody held it", pause))
		term := c.pollFor(p, expired, c.timing.ExpiryLag+c.soon(), "its last holder had a fixed term, which is over", distlock.NoRenewal())
		c.rises(&second, term, fmt.Sprintf("%v in which nobody held it", pause))
		h.free()
		free = term.gone()
	}
}

func fenceMany(c *C) {
	n := 300 // more than a byte counts
	if c.Virtual() && !c.samples() {
		n = 1<<16 + 10
	}
	a, b := c.open("A"), c.open("B")
	name, last := c.Name("x"), int64(0)
	for i := range n { // past the history: it is too much for the oracles, and one rule says all
		l, err := []*client{a, b}[i%2].locker.TryLock(c.ctx, name, distlock.TTL(c.long()))
		if err != nil {
			c.unheard(err, "the next", name)
			c.Failf("grant %d of %q, which everybody has unlocked, was refused: %v", i+1, name, err)
		}
		if l.Token() <= last {
			c.Failf("grant %d of %q had token %d, and the one before it %d", i+1, name, l.Token(), last)
		}
		last = l.Token()
		if err := l.Unlock(c.ctx); err != nil {
			c.unheard(err, "its holder", name)
			c.Failf("Unlock after grant %d of %q returned: %v", i+1, name, err)
		}
	}
}

// rises demands that a grant has a higher token than all before it.
func (c *C) rises(last *int64, h *lease, over string) {
	if h.Token() <= *last {
		c.Failf("%s was granted %q with token %d; the last token, before %s, was %d", h.p.who, h.Name(), h.Token(), over, *last)
	}
	*last = h.Token()
}
