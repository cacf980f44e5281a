package conformance

import (
	"errors"

	"github.com/distlock-go/distlock"
)

func maxHoldChecks() []Check {
	return []Check{
		{ID: "maxhold/cap", Clause: "P3", Mandatory: true, Run: maxHoldCap,
			Rule: "a lock that is renewed ends at its cap, its holder is told a tenth before, and nobody else has the name until then"},
		{ID: "maxhold/unnoticed", Clause: "P3", Mandatory: true, Run: maxHoldUnnoticed,
			Rule: "a lock under a cap that it does not reach is renewed and unlocked like any other"},
	}
}

func maxHoldCap(c *C) {
	c.unjudged("the lock under a cap is not in the history")
	a, b := c.open("A"), c.open("B")
	name, longest := c.Name("x"), 2*c.Unit()
	c.watchStore()
	call := c.now()
	stuck := a.take(a.maxHold(longest), name, patience, "nobody has ever held it")
	granted := c.now()
	waiter := b.begin(name)
	c.sleepUntil(granted + longest*19/20)
	// It is half-way between the moment when it must have been told and the cap.
	if err := stuck.Err(); !errors.Is(err, distlock.ErrLost) {
		c.Failf("A was not told: it holds %q since %s with a cap of %v, and at %s its Err is %s; it must match ErrLost",
			name, millis(granted), longest, millis(c.now()), describe(err))
	}
	if !c.within(stuck.Done(), c.soon()) {
		c.Failf("A's Err says that its time with %q is over, and Done is not closed", name)
	}
	next := waiter.lease(granted+longest+c.soon()-c.now(), "A's cap was over")
	if next.ret < call+longest-c.skew(longest) {
		c.excuse(call, c.Unit(), name, stuck.Err()) // it is renewed until its cap
		c.Failf("B got %q at %s, although A, which had a cap of %v, was granted it at %s or later and has not unlocked it",
			name, millis(next.ret), longest, millis(call))
	}
	next.free()
}

func maxHoldUnnoticed(c *C) {
	c.unjudged("the lock under a cap is not in the history")
	a, b := c.open("A"), c.open("B")
	name := c.Name("x")
	held := a.take(a.maxHold(100*c.Unit()), name, patience, "nobody has ever held it")
	c.sleep(c.Unit() * 3 / 2)
	c.alive(held, "after one and a half of its TTL, far from its cap")
	b.mustBeRefused(name)
	a.giveBack(held)
	c.pollFor(b, name, c.timing.CleanupBound+c.Slack(), "A had unlocked it").free()
}
