package conformance

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
)

// eighths are TTLs in eighths of a unit. Neighbours are due together.
var eighths = []int{8, 9, 10, 12, 14, 16, 20, 24}

func batchOwnTTL(c *C) {
	a, b := c.openMortal("A"), c.open("B")
	c.watchStore()
	var held []*lease
	for i, e := range eighths {
		held = append(held, a.mustTry(c.Name(fmt.Sprint("n", i)), "which is fresh", distlock.TTL(c.fits(c.Unit()*time.Duration(e)/8))))
	}
	// Each has been renewed by then, the shorter ones many times.
	longest := held[len(held)-1]
	best := make([]time.Duration, len(held))
	for end := longest.ret + longest.asked*3/4; c.now() < end; c.sleep(c.Unit() / 40) {
		for i, h := range held {
			c.mustLive(h, "with locks of other TTLs beside it")
			left := h.Ends() - c.now() // in this order: a renewal may come between the two
			if limit := h.asked + c.timing.TTLGranularity; left > limit {
				c.Failf("A asked for %q with a TTL of %v, and at %s its Deadline is %v ahead; the granularity is %v", h.Name(), h.asked, millis(c.now()), left, c.timing.TTLGranularity)
			}
			if c.now() > h.ret+h.asked/4 { // the first grant is not what is looked at
				best[i] = max(best[i], left)
			}
		}
	}
	for i, h := range held {
		// A renewal that was confirmed has put it back to the whole TTL, or nearly: two
		// thirds are what is left when it is due.
		if best[i] < h.asked*3/4 && c.stood(h.ret) < c.Unit()/20 {
			c.Failf("A renews %q with a TTL of %v, but its Deadline was never more than %v ahead: was it renewed for another's TTL?", h.Name(), h.asked, best[i])
		}
	}
	c.mustShowRest(held, b)
	queue := c.queueAll(b, held)
	if !a.cutOff() {
		c.freeAll(held)
		c.lacks(capProxy, "what a dead holder leaves cannot be seen without a Proxy")
	}
	cut := c.now()
	for i, h := range held {
		h.mustEnd(queue[i], 0, cut+c.lasts(h.asked), fmt.Sprintf("it was cut off at %s, with locks of other TTLs beside it", millis(cut)))
	}
}

// mustShowRest demands that the store, if it tells, keeps each entry for as long as
// its holder believes in it, and no longer than its TTL. The store may tell that as of the
// time that it was asked at, and of a renewal that came after that: see restOf.
func (c *C) mustShowRest(held []*lease, by *client) {
	c.share(len(held), func(i int) {
		h := held[i]
		deadline, before := h.Ends(), c.now()
		st, err := by.inspect(c.ctx, h.Name())
		after := c.now()
		switch limit := c.restOf(h, before, after); {
		case err != nil || !st.Held || st.Remaining == 0: // the checks of inspect/ judge that
		case st.Remaining > limit:
			c.Failf("%s renews %q with a TTL of %v, but the store keeps it for another %v; with rounding and lag, %v are allowed",
				h.p.who, h.Name(), h.asked, st.Remaining, limit)
		case after+st.Remaining+c.timing.TTLGranularity+c.skew(h.asked) < deadline:
			c.Failf("%s believes in %q until %s, but at %s the store keeps it for another %v only",
				h.p.who, h.Name(), millis(deadline), millis(after), st.Remaining)
		}
	})
}

func batchFreshBesideOld(c *C) {
	if _, ok := c.harness.(Proxy); !ok {
		c.lacks(capProxy, "what a dead holder leaves cannot be seen without a Proxy")
	}
	c.together(2, func(i int, _ *rand.Rand) {
		a, b := c.openVia(fmt.Sprint("A", i+1)), c.open(fmt.Sprint("B", i+1))
		label := func(s string) string { return c.Name(fmt.Sprint(s, i+1)) }
		first, what := a.mustTry(label("old"), "which is fresh"), "an older lock"
		if i == 1 {
			what = "older locks, one of them extended,"
			a.mustTry(label("extended"), "which is fresh").mustExtend(c.extends(c.Unit(), 3*c.Unit()))
		}
		c.sleepUntil(first.ret + c.Unit()*3/10) // renewals are due at a third of the TTL
		fresh := a.mustTry(label("fresh"), "which is fresh")
		a.cutOff()
		cut := c.now()
		queue := c.queueAll(b, []*lease{fresh, first})
		why := fmt.Sprintf("it was held beside %s and cut off at %s, before renewals were due", what, millis(cut))
		least := max(fresh.Ends(), fresh.call+fresh.asked-c.skew(fresh.asked))
		fresh.mustEnd(queue[0], least, cut+c.lasts(fresh.asked), why)
		first.mustEnd(queue[1], first.Ends(), cut+c.lasts(first.asked), why)
	})
}
