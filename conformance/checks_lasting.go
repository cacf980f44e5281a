package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// lastingChecks follow one lock for longer than others do, or look at it while its
// client is busy with something else.
func lastingChecks() []Check {
	return []Check{
		{
			ID: "time/extend-early", Clause: "H5", Mandatory: true, Run: extendEarly,
			Rule: "Extend makes a lock last for its TTL from the call on, also if almost all of the lease is left, and if the extension before it was made a moment ago",
		},
		{
			ID: "time/extend-stairs", Clause: "H5", Mandatory: true, Run: extendStairs, span: 30 * day,
			Rule: "the second Extend does what the first does, and a long one counts to the millisecond",
		},
		{
			ID: "time/months", Clause: "H5", Mandatory: true, Run: renewedForMonths, span: 70 * day,
			Rule: "a lock is renewed for as long as nobody unlocks it, be it two months, and can be broken or unlocked as on the first day",
		},
		{
			ID: "wait/for-days", Clause: "A3", Mandatory: true, Run: waitForDays, span: 10 * day,
			Rule: "Lock waits for as long as its context allows, be it days, and is served then",
		},
		{
			ID: "wait/holder-undisturbed", Clause: "H5", Mandatory: true, Run: holderUndisturbed, span: day,
			Rule: "a holder is renewed and extended as ever while others wait for its name",
		},
		{
			ID: "expiry/busy-client", Clause: "E1", Mandatory: true, Run: busyClient,
			Rule: "a fixed term ends with its TTL, whatever else its client does meanwhile: wait, ask, look, take and free other names",
		},
		{
			ID: "batch/extend-one", Clause: "E1", Mandatory: true, Needs: []Cap{capProxy}, Run: extendOne,
			Rule: "Extend makes one lock last longer, and none that its client holds beside it",
		},
	}
}

// lasted has p take over from the dead h, which was extended last from call to ret.
// That must succeed neither before the TTL has passed, nor long after.
func (h *lease) lasted(p *client, call, ret, ttl time.Duration, how string) {
	c, deadline := h.p.c, h.Ends()
	if deadline < call+c.leastShown(ttl) {
		c.Failf("%s extended %q by %v at %s, Extend returned nil, but the Deadline is %s: %s", h.p.who, h.Name(), ttl, millis(call), millis(deadline), how)
	}
	h.p.cutOff()
	limit := ret + c.atMost(ttl) + c.timing.ExpiryLag + c.soon()
	next := c.succession(p, h.Name(), call+ttl, ret+c.atMost(ttl), limit, how)
	if next.ret < call+ttl-c.skew(ttl) {
		c.Failf("%s was granted %q at %s, %v before the lease of %s could end: it had extended it by %v at %s, and Extend returned nil; %s",
			p.who, h.Name(), millis(next.ret), call+ttl-next.ret, h.p.who, ttl, millis(call), how)
	}
	next.free()
}

func extendEarly(c *C) {
	b, u := c.open("B"), c.Unit()
	parts := []time.Duration{64, 24, 12, 9}
	c.side(len(parts), func(i int) {
		a := c.openMortal(fmt.Sprint("A", i+1))
		h := a.mustTry(c.Name(fmt.Sprint(i)), "which is fresh", distlock.NoRenewal())
		c.sleepUntil(h.ret + u/parts[i])
		first, _ := h.mustExtend(u)
		c.sleep(u / parts[i])
		call, ret := h.mustExtend(u)
		h.lasted(b, call, ret, u, fmt.Sprintf("it had asked for %v at %s, and extended it by as much at %s before", u, millis(h.call), millis(first)))
	})
}

func extendStairs(c *C) {
	b, u := c.open("B"), c.Unit()
	last := []time.Duration{c.fits(3 * u)}
	if c.Virtual() {
		for _, ttl := range []time.Duration{time.Hour, 25 * time.Hour, 20 * day} {
			last = append(last, c.fits(ttl+59*time.Second+999*time.Millisecond))
		}
	}
	c.side(len(last), func(i int) {
		a := c.openMortal(fmt.Sprint("A", i+1))
		h := a.mustTry(c.Name(fmt.Sprint(i)), "which is fresh", distlock.NoRenewal())
		if _, _, ok := h.mayExtend(c.fits(2 * u)); !ok {
			return // a fixed term that the store cannot keep
		}
		c.sleep(u / 4)
		call, ret, ok := h.mayExtend(last[i])
		if !ok {
			return
		}
		h.lasted(b, call, ret, last[i], "it had extended it once before")
	})
}

// forLong returns a TTL, and a time many times as long where years cost nothing.
func (c *C) forLong(d time.Duration) (ttl, total time.Duration) {
	if c.Virtual() {
		return c.fits(6 * time.Hour), d
	}
	return c.Unit(), 2 * c.Unit()
}

func renewedForMonths(c *C) {
	c.unjudged("a lock is broken, whose holder may believe in it for a renewal period")
	a, b, stalls := c.open("A"), c.open("B"), c.stalls()
	ttl, total := c.forLong(60 * day)
	kept := a.mustTry(c.Name("kept"), "which is fresh", distlock.TTL(ttl))
	broken := a.mustTry(c.Name("broken"), "which is fresh", distlock.TTL(ttl))
	for c.now() < kept.ret+total {
		c.sleep(total / 60)
		c.mustKeep([]*lease{kept, broken}, b, stalls, fmt.Sprintf("with a TTL of %v, after it had been renewed for %v", ttl, c.now()-kept.ret))
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience+c.Slack())
	defer cancel()
	switch err := b.breakHold(ctx, broken.Name(), broken.Token()); {
	case errors.Is(err, distlock.ErrUnsupported):
		broken.free()
	case err != nil:
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
	if c.harness.Caps().Push != Yes {
		total = min(total, 90*time.Minute) // each poll costs the machine something, also in virtual time
	}
	stalls := c.stalls()
	h := a.mustTry(c.Name("x"), "which is fresh", distlock.TTL(ttl))
	w := b.begin(h.Name(), distlock.TTL(ttl))
	c.awaitQueued(h.Name(), 1)
	if w.within(total) {
		c.mustLive(h, stalls, "while B waited for it") // B is served once A has lost it
		c.Failf("B waits for %q, which A holds, and its context has not ended, but Lock returned at %s, it had waited for %v: %s",
			h.Name(), millis(c.now()), w.a.ret-w.a.call, describe(w.a.err))
	}
	h.free()
	w.woken(c.soon(), fmt.Sprintf("A had unlocked it, after %v", total)).free()
}

func holderUndisturbed(c *C) {
	a, dead, b, stalls := c.open("A"), c.openMortal("D"), c.open("B"), c.stalls()
	u, rounds := c.Unit(), 4
	if c.Virtual() {
		rounds = 20
	}
	renewed := a.mustTry(c.Name("renewed"), "which is fresh")
	fixed := dead.mustTry(c.Name("fixed"), "which is fresh", distlock.NoRenewal())
	queue := c.queueAll(b, []*lease{renewed, fixed})
	ttl := c.fits(3 * u)
	call, ret, ok := fixed.mayExtend(ttl)
	if !ok {
		ttl = u
		call, ret = fixed.mustExtend(ttl)
	}
	dead.cutOff()
	queue[1].mustInherit(fixed, call+ttl, ret+c.atMost(ttl), fmt.Sprintf("it was extended by %v at %s, when B was waiting for it", ttl, millis(call)))
	for i := range rounds {
		c.sleepUntil(renewed.ret + time.Duration(i+1)*u)
		c.mustLive(renewed, stalls, fmt.Sprintf("its TTL being %v, while B waits for it", u))
		if queue[0].within(0) {
			c.Failf("A holds %q, and B, which waits for it, got from Lock at %s: %s", renewed.Name(), millis(queue[0].a.ret), describe(queue[0].a.err))
		}
	}
	renewed.free()
	queue[0].woken(c.soon(), "A had unlocked it").free()
}

// mustInherit demands that w gets the name of the dead h within these bounds.
func (w *pending) mustInherit(h *lease, least, most time.Duration, how string) {
	c := h.p.c
	next := w.lease(most+c.timing.ExpiryLag+c.soon()-c.now(), fmt.Sprintf("its dead holder, %s, had it until %s at the latest: %s", h.p.who, millis(most), how))
	if next.ret < least-c.skew(least) {
		c.Failf("%s was granted %q at %s, %v before the lease of %s could end: %s", w.p.who, h.Name(), millis(next.ret), least-next.ret, h.p.who, how)
	}
	next.free()
}

func busyClient(c *C) {
	a, b, third := c.openMortal("A"), c.open("B"), c.open("C")
	held := b.mustTry(c.Name("held"), "which is fresh", distlock.TTL(c.long()))
	h := a.mustTry(c.Name("fixed"), "which is fresh", distlock.NoRenewal())
	a.begin(held.Name())
	c.awaitQueued(held.Name(), 1)
	// A client that lives cleans up behind its own terms, so it dies in the end.
	for i := 0; c.now() < h.end()-c.Unit()/4; i++ {
		a.mustTry(c.Name(fmt.Sprint("free", i)), "which is fresh").free()
		if got := a.try(held.Name()); got.err == nil {
			c.Failf("A was granted %q, which B holds", held.Name())
		}
		ctx, cancel := context.WithTimeout(c.ctx, patience+c.Slack())
		_, _ = a.inspect(ctx, h.Name()) // whatever it says, it changes nothing
		_, _ = a.listed(ctx, c.Name(""))
		cancel()
		c.sleep(c.Unit() / 16)
	}
	a.cutOff()
	cut := c.now()
	c.sleepUntil(h.end())
	c.pollFor(third, h.Name(), max(h.gone()-c.now(), 0)+c.soon(), fmt.Sprintf("A had taken it for a fixed term of %v, had gone on to take, wait for and look at other names, and died at %s; the term ended at %s",
		h.asked, millis(cut), millis(h.gone()))).free()
	held.free()
}

func extendOne(c *C) {
	a, b := c.openVia("A"), c.open("B")
	names := []string{c.Name("extended"), c.Name("beside"), c.Name("other")}
	held := c.takeAll(a, names, "which is fresh")
	ttl := c.fits(8 * c.Unit())
	c.sleep(c.Unit() / 8)
	call, _, ok := held[0].mayExtend(ttl)
	if !ok {
		c.Skipf("the store cannot make a lock last for %v", ttl)
	}
	c.sleep(c.Unit() / 8)
	cut := c.now()
	a.cutOff()
	c.unjudged("a store may make the extended lock last for less, as its Deadline shows")
	for _, h := range held[1:] {
		limit := cut + c.atMost(h.asked) + c.timing.ExpiryLag + c.soon()
		c.stalk(b, h.Name(), h.end(), limit, fmt.Sprintf("A having held it with a TTL of %v until it died at %s; it had extended %q, and no other, by %v at %s",
			h.asked, millis(cut), held[0].Name(), ttl, millis(call))).free()
	}
	a.revive()
}
