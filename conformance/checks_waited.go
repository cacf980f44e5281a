package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// waitedChecks look at names that somebody waits for, and at holds that were ended or
// are stuck behind the back of their holder.
func waitedChecks() []Check {
	return []Check{
		{ID: "names/waited-apart", Clause: "N1", Mandatory: true, Run: waitedApart,
			Rule: "a waiter for a name does not keep others from one alike"},
		{ID: "names/left-apart", Clause: "N1", Mandatory: true, Run: leftApart,
			Rule: "a waiter that gives up ends no hold of a name alike, and no wait for one"},
		{ID: "fair/expiry-does-not-barge", Clause: "W3", Needs: []Cap{capFair, capInspector, capProxy}, Run: expiryDoesNotBarge,
			Rule: "a TryLock does not overtake the queue when a lease has run out, before the first of them has heard of it"},
		{ID: "fault/repeated-release", Clause: "H6", Needs: []Cap{capProxy}, Run: repeatedRelease,
			Rule: "a release that arrives a second time, when the name has gone to the next in the queue, ends nothing and hands nothing on"},
		{ID: "isolate/stuck-holder", Clause: "H3", Mandatory: true, Run: isolateStuckHolder,
			Rule: "a lock whose entry is stuck is not taken for renewed because others of its client were"},
		{ID: "leak/pile", Clause: "C1", Mandatory: true, Run: leakPile,
			Rule: "goroutines do not pile up with the locks taken"},
	}
}

func waitedApart(c *C) {
	a, b, third := c.open("A"), c.open("B"), c.open("C")
	ttl := distlock.TTL(c.long())
	h := a.mustTry(c.Name("x"), "which is fresh", ttl)
	w := b.begin(h.Name(), ttl)
	c.awaitQueued(h.Name(), 1)
	for _, like := range append([]string{"X", "x ", " x", "x/", "x/y", "/x", "x%", "%", "_", "x\x00", "xx", "", "ẋ", "x:1"}, queueKeys("x")...) {
		why := fmt.Sprintf("which nobody holds; B waits for %q", h.Name())
		third.mustTry(c.Name(like), why, ttl).free()
		third.mustUse(oracle.OpLock, c.Name(like), why)
		if w.within(0) {
			c.Failf("A holds %q; C took and freed %q, and the Lock of B, which waits for the first, returned: %s", h.Name(), c.Name(like), describe(w.a.err))
		}
	}
	h.free()
	w.woken(c.soon(), "A had unlocked it").free()
}

// queueKeys are names by which a driver may call the queue of a name in its store.
func queueKeys(name string) (keys []string) {
	for _, end := range []string{":queue", ":q", ":wait", ":waiters", ":notify", "/0", "#1"} {
		keys = append(keys, name+end)
	}
	return append(keys, "{"+name+"}:queue", "queue:"+name)
}

func leftApart(c *C) {
	a, b, third := c.open("A"), c.open("B"), c.open("C")
	ttl := distlock.TTL(c.long())
	h := a.mustTry(c.Name("x"), "which is fresh", ttl)
	var held []*lease
	var waiting []*pending
	for _, like := range append([]string{"X", "x/", "x/y", "xx", "x:1", ""}, queueKeys("x")...) {
		l := b.mustTry(c.Name(like), "which is fresh", ttl)
		held, waiting = append(held, l), append(waiting, b.begin(l.Name(), ttl), third.begin(l.Name(), ttl))
	}
	w := b.begin(h.Name(), ttl)
	c.awaitQueued(h.Name(), 1)
	w.giveUp()
	b.mustBeBusy(h.Name(), h)
	c.sleep(quiet) // what is undone in the background is through
	for i, l := range held {
		why := fmt.Sprintf("B had waited for %q, and given up", h.Name())
		a.mustBeBusyAfter(l.Name(), l, why)
		l.free()
		for queue := waiting[2*i : 2*i+2]; len(queue) > 0; {
			next, left := c.serve(queue, "", c.soon(), fmt.Sprintf("%s; B has then unlocked %q", why, l.Name()))
			next.free()
			queue = left
		}
	}
	h.free()
}

func expiryDoesNotBarge(c *C) { c.queueOutlivesHolder("", func() {}) }

// queueOutlivesHolder demands that a TryLock does not overtake a queue when the name
// has no holder any more: the lease has run out, and the first in the queue has not
// heard of it yet. between is called before each TryLock. B may have asked just before the end, and
// be served at once: then there was no such time, and it is tried again where the end is exact.
func (c *C) queueOutlivesHolder(what string, between func()) {
	c.requireFired(2)
	for i := range 3 {
		if c.outlivesHolder(fmt.Sprint("x", i), what, between) || c.timing.ExpiryLag > 0 {
			return
		}
	}
}

// outlivesHolder does so for one name, and reports whether anybody has looked at it in that time.
func (c *C) outlivesHolder(name, what string, between func()) (seen bool) {
	dead, b, third := c.openVia("A-"+name), c.openVia("B-"+name), c.open("C-"+name)
	fourth, rival := c.open("D-"+name), (*pending)(nil) // a Lock must not overtake B either
	ttl, latency := distlock.TTL(c.long()), c.Unit()/4
	latency /= time.Duration(b.requestsOfTry()) // of a request
	h := dead.mustTry(c.Name(name), "which is fresh", distlock.NoRenewal())
	w := b.begin(h.Name(), ttl)
	if !c.awaitQueued(h.Name(), 1) {
		c.Inconclusivef("B is not to be seen in the queue of %q", h.Name())
	}
	dead.cutOff()
	b.link.Delay(latency, 0)
	limit := h.gone() + 4*latency + c.soon()
	c.sleepUntil(h.end() - c.Unit()/20)
	freed := h.gone() + c.skew(h.asked)
	for !w.within(0) && c.now() < limit {
		between()
		looked := c.now() // before the answer: it tells what was so by then
		st, err := third.inspect(c.ctx, h.Name())
		unheard := err == nil && looked > freed && st.Token <= h.Token()
		if unheard && st.Held {
			c.breach("O1", "the lease of the dead A on %q, with token %d, was over at %s at the latest; B, who waits for it, has not come yet, and Inspect says %+v", h.Name(), h.Token(), millis(freed), st)
		}
		seen = seen || unheard && !w.within(0)
		if rival == nil && looked > freed {
			rival = fourth.begin(h.Name(), ttl)
		}
		if rival != nil && rival.within(0) && rival.a.err == nil && !w.within(0) {
			c.Failf("the lease of the dead A on %q ended; D's Lock was granted it at %s, although B had been queued for it for long; a request of B takes %v%s", h.Name(), millis(rival.a.ret), latency, what)
		}
		switch got := third.try(h.Name(), ttl); {
		case w.within(0):
		case got.err == nil:
			c.Failf("the lease of the dead A on %q ended; C's TryLock was granted it at %s, although B had been queued for it for long; a request of B takes %v%s", h.Name(), millis(got.ret), latency, what)
		case got.busy() && got.call > freed && got.heldError(third, h.Name()).Token == h.Token():
			c.breach("A6", "the lease of the dead A on %q, with token %d, was over at %s at the latest; C was refused it at %s, rightly, as B comes first, but was told that the holder has token %d still",
				h.Name(), h.Token(), millis(freed), millis(got.ret), h.Token())
		}
		c.sleep(c.poll())
	}
	next := w.awaited(c.check.Clause, freed, limit-freed, "the lease of the dead A was over"+what)
	if next.Token() <= h.Token() {
		c.Failf("A held %q with token %d, and B, which had waited for it, was granted it with token %d%s", h.Name(), h.Token(), next.Token(), what)
	}
	b.link.Heal()
	next.free()
	if rival != nil {
		rival.woken(c.soon(), "B had unlocked it").free()
	}
	return seen
}

func repeatedRelease(c *C) {
	c.requireFired(1)
	a, link := c.openRough("A")
	b, third, probe := c.open("B"), c.open("C"), c.open("D")
	ttl := distlock.TTL(c.long())
	h := a.mustTry(c.Name("x"), "which is fresh", ttl)
	queue, order := make([]*pending, 0, 3), ""
	for i, p := range []*client{b, third, c.open("E")} {
		w := p.begin(h.Name(), ttl)
		if c.servesInOrder() {
			queue, order = c.enqueue(queue, w), "W3"
			continue
		}
		queue = append(queue, w)
		c.awaitQueued(h.Name(), i+1)
	}
	link.Repeat(1)
	h.free()
	next, left := c.serve(queue, "", c.soon(), "A has unlocked it")
	link.Release()
	c.sleep(quiet)
	after := "A's Unlock of its lock before had arrived a second time"
	if other := left[0]; other.within(0) {
		c.Failf("%s holds %q, and %s; then Lock of %s, which waits for it, returned: %s", next.p.who, h.Name(), after, other.p.who, describe(other.a.err))
	}
	probe.mustBeBusyAfter(h.Name(), next, after)
	next.mustExtend(c.long())
	for next.free(); len(left) > 0; next.free() {
		next, left = c.serve(left, order, c.soon(), "the one before had unlocked it; "+after)
	}
	h = a.mustTry(c.Name("y"), "which is fresh", ttl)
	w := b.begin(h.Name(), ttl)
	c.awaitQueued(h.Name(), 1)
	a.link.CutRequest(1)
	h.free()
	w.woken(c.soon(), "A had unlocked it, by a second request, as the first was lost").free()
}

func isolateStuckHolder(c *C) {
	blocker, ok := c.harness.(NameBlocker)
	if !ok {
		c.Skipf("the harness is no NameBlocker")
	}
	c.unjudged("what is granted behind the back of a holder that believes too long is judged by this check itself")
	a, b := c.open("A"), c.open("B")
	held := c.takeAll(a, c.labels(12), "which is fresh")
	c.sleep(c.Unit() / 2) // let them be renewed before
	unblock := c.blockNames(blocker, held[0].Name())
	defer func() { _ = unblock() }()
	blocked := c.now()
	c.sleepUntil(blocked + c.atMost(c.Unit()) + c.timing.ExpiryLag + c.soon())
	deadline := held[0].Ends()
	if err := unblock(); err != nil {
		c.Inconclusivef("the harness could not end that %q was stuck: %v", held[0].Name(), err)
	}
	for end := min(deadline, c.now()+c.soon()); c.now() < end; c.sleep(c.poll()) {
		if got := b.try(held[0].Name()); got.err == nil && got.ret < deadline {
			c.Failf("%q was stuck from %s, and B was granted it at %s, when that was over; but A was told a Deadline of %s, as if it had been renewed meanwhile, like others of its client",
				held[0].Name(), millis(blocked), millis(got.ret), millis(deadline))
		}
	}
}

func leakPile(c *C) {
	label := c.Name("leak")
	c.together(1, func(int, *rand.Rand) {
		pprof.Do(c.ctx, pprof.Labels("conformance", label), func(context.Context) {
			a, b := c.open("A"), c.open("B")
			c.exercise(a, b, 9)
			c.sleep(quiet)
			before := countLabelled(label)
			c.exercise(a, b, 45)
			c.ask(a, b, 40)
			// A pool may grow by a few connections, with goroutines for each.
			after := 0
			if !c.eventually(c.Slack()+c.timing.CleanupBound, func() bool { after = countLabelled(label); return after <= before+20 }) {
				c.Failf("A and B had started %d goroutines that were running after 9 rounds of locking and cancelling, and %d after 45 more, and 40 of refusals, looks, waits and extensions", before, after)
			}
		})
	})
}

// ask makes all calls that change nothing, or end in nothing, and may leave something behind in the process.
func (c *C) ask(p, rival *client, rounds int) {
	name, ttl := c.Name("ask"), distlock.TTL(c.long())
	h := rival.mustTry(name, "which is fresh", ttl)
	for i := range rounds {
		p.mustBeBusy(name, h)
		ctx, cancel := c.patiently()
		_, _ = p.inspect(ctx, name) // they may not be supported
		_, _ = p.listed(ctx, name)
		_ = p.breakHold(ctx, name, h.Token()+1)
		_, _ = p.sweepIdle(ctx, time.Hour)
		cancel()
		w := p.begin(name, ttl)
		c.sleep(time.Millisecond)
		w.giveUp()
		h.mustExtend(c.long())
		if i%2 == 1 && c.harness.Caps().Push != Yes { // it takes longer there
			continue
		}
		w = p.begin(name, ttl)
		c.awaitQueued(name, 1)
		h.free()
		w.woken(c.soon(), "the rival had unlocked it").free()
		h = rival.mustTry(name, "which was unlocked", ttl)
	}
	h.free()
}

// countLabelled counts the goroutines with this label.
func countLabelled(label string) (n int) {
	for line := range strings.Lines(labelled(label)) { // "3 @ 0x..." stands for three alike
		if count, _, ok := strings.Cut(line, " @ "); ok {
			k, _ := strconv.Atoi(count)
			n += k
		}
	}
	return n
}
