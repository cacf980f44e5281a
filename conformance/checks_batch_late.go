package conformance

import (
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

func batchFromRequest(c *C) {
	c.requireFired(1)
	a, b := c.openVia("A"), c.open("B")
	held := c.takeAll(a, c.names(3), "which is fresh")
	queue := c.queueAll(b, held)
	slow := c.Unit() / 8 / time.Duration(a.requestsOf(func() { a.mustBeBusy(held[0].Name(), held[0]) }))
	granted := held[0].Deadline()
	a.link.Delay(slow, 0)
	if !c.eventually(2*c.Unit(), func() bool { return held[0].Deadline().After(granted) || held[0].Err() != nil }) || held[0].Err() != nil {
		c.Inconclusivef("A's lock was not renewed while its link took %v for a request and its reply: %s", slow, describe(held[0].Err()))
	}
	// A reply has just come; what is under way now is lost.
	a.cutOff()
	cut := c.now()
	for i, h := range held {
		end := h.Ends()
		h.mustEnd(queue[i], end, cut+c.lasts(h.asked),
			fmt.Sprintf("its last renewal took %v for request and reply, after which it believes in the lock until %s", slow, millis(end)))
	}
}

func batchLateRequest(c *C) {
	c.requireFired(1)
	a, b, third := c.openVia("A"), c.openMortal("B"), c.open("C")
	held := c.takeAll(a, c.names(5), "which is fresh")
	a.link.HoldRequest(1)
	if !c.eventually(c.Unit(), func() bool { return a.link.Fired() > 0 }) {
		a.link.Release()
		c.Inconclusivef("no renewal of A was sent within a unit")
	}
	// The releases are lost, as they would be held up where requests share a connection: the leases end.
	a.link.Drop(true, false)
	for _, h := range held {
		c.Go(func() { _ = h.unlock() })
	}
	var taken, left []*lease
	untaken := held[4]
	c.sleepUntil(max(untaken.gone(), untaken.Ends()+c.timing.ExpiryLag) + c.skew(untaken.asked))
	for i, h := range held[:4] {
		p := []*client{b, third}[i%2]
		got := c.pollFor(p, h.Name(), h.gone()+c.Unit()+c.soon()-c.now(), "A had called Unlock, and its lease had ended", distlock.NoRenewal(), distlock.TTL(c.fits(2*c.Unit())))
		if i%2 == 0 {
			taken = append(taken, got)
			continue
		}
		got.free()
		left = append(left, got)
	}
	a.link.Release()
	c.sleep(quiet)
	for _, h := range left {
		third.mustTry(h.Name(), "which everybody has unlocked, before a renewal of A arrived that had been held up on its way", distlock.TTL(c.short())).free()
	}
	third.mustTry(untaken.Name(), "which nobody has taken since the lease of A had ended, before a renewal of A arrived that had been held up on its way", distlock.TTL(c.short())).free()
	for _, h := range taken[1:] {
		third.mustBeBusyAfter(h.Name(), h, "a renewal of A, the holder before, had arrived late")
	}
	c.untouched(taken[0], third, "a late renewal of A, the holder before,")
}

func batchLateAnswer(c *C) {
	c.requireFired(1)
	a, b := c.openVia("A"), c.open("B")
	c.watchStore()
	ttl := distlock.TTL(c.fits(c.Unit() * 3 / 2))
	var held []*lease
	for i := range 4 {
		held = append(held, a.mustTry(c.Name(fmt.Sprint("n", i)), "which is fresh", ttl))
	}
	// The request is in time, and the reply comes when nobody waits for it any more: a renewal is given up after two
	// thirds of what is left. The next one is answered at once.
	first := held[0]
	period := first.asked / 3
	c.sleepUntil(first.ret + period*9/10)
	before := a.link.Requests()
	a.link.Delay(first.asked*54/100, 0)
	if !c.eventually(period, func() bool { return a.link.Requests() > before }) {
		c.Inconclusivef("no renewal of A was sent within a renewal period")
	}
	sent := c.now()
	c.sleepUntil(sent + first.asked*33/100) // it has reached the store, and its reply is on the way back
	a.link.Delay(0, 0)
	c.sleepUntil(sent + first.asked*60/100) // that has come
	victim := held[2]
	c.strip(victim, b)
	since := c.now()
	victim.mustLearn(since, fmt.Sprintf("the entry of %q was removed from the store after a renewal had been applied whose answer came late", victim.Name()))
	c.sleepUntil(since + first.asked*5/4)
	rest := []*lease{held[0], held[1], held[3]}
	c.mustKeep(rest, b, "one answer to a renewal came late")
	c.freeAll(rest)
}
