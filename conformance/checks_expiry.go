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

func expiryChecks() []Check {
	return []Check{
		{ID: "expiry/not-early", Clause: "E1", Mandatory: true, Run: notEarly,
			Rule: "a holder that dies blocks the others for its whole TTL, whatever they try"},
		{ID: "expiry/granted-honest", Clause: "E2", Mandatory: true, Run: grantedHonest,
			Rule: "what is granted is at least what was asked for, and Deadline, counted from before the request, never lies after the end that the store sees"},
		{ID: "expiry/ttl-atomic", Clause: "E1", Mandatory: true, Needs: []Cap{capProxy}, Run: ttlAtomic,
			Rule: "wherever a client dies on its way to a lock, the name is free again after the TTL: ownership and expiry are written in one step"},
		{ID: "expiry/odd-ttl", Clause: "E2", Mandatory: true, Run: oddTTL,
			Rule: "a TTL is granted, rounded up at the most, or refused with ErrInvalid: never for ever, never less"},
		{ID: "expiry/granted-unheard", Clause: "E2", Mandatory: true, Needs: []Cap{capProxy}, Run: grantedUnheard,
			Rule: "a grant that is heard of late, since its first reply was lost, has its whole TTL from then on in the store as well"},
		{ID: "expiry/server-clock-judges", Clause: "H3", Needs: []Cap{capServerClock}, Alone: true, Run: serverClockJudges,
			Rule: "the clocks of client and server may differ by any amount: no instant of one is compared with one of the other; names can be locked and tokens rise although the server's clock jumps"},
		{ID: "expiry/killed-holder", Clause: "E1", Mandatory: true, Needs: []Cap{capChild}, Run: killedHolder,
			Rule: "the lock of a process that is killed is free after its TTL and the driver's ExpiryLag, and not before"},
		{ID: "expiry/mass-expiry", Clause: "E1", Needs: []Cap{capProxy}, Heavy: true, Run: massExpiry,
			Rule: "the bound on expiry holds as well for a client that dies with hundreds of locks"},
		{ID: "expiry/past-deadline-grant", Clause: "H3", Needs: []Cap{capProxy}, Run: pastDeadlineGrant,
			Rule: "a grant whose reply took longer than its lease is not a lock"},
	}
}

// stalk has p try for a name until it gets it, most often around the instant when the lease of its holder can end at the
// earliest. If p has not got it by until and the declared lag, that is a breach of clause; empty for that of the check.
func (c *C) stalk(clause string, p *client, name string, from, until time.Duration, how string, opts ...distlock.Option) *lease {
	began, refused, limit := c.now(), time.Duration(0), until+c.timing.ExpiryLag+c.soon()
	opts = append([]distlock.Option{distlock.TTL(c.long())}, opts...)
	for {
		late := c.past(limit-c.soon(), limit)
		a := p.try(name, opts...)
		switch {
		case a.err == nil:
			a.refused = refused
			return a.lease
		case late:
			c.doubt(limit-c.soon(), limit)
			c.breach(clause, "%s still cannot have %q at %s, %s; it had to be free by %s, that is by %s, plus the ExpiryLag of %v and %v for the machine and for waking: %v",
				p.who, name, millis(c.now()), how, millis(limit), millis(until), c.timing.ExpiryLag, c.soon(), a.err)
		case a.busy():
			refused = a.call
		}
		c.sleep(c.untilLook(began, from, until, limit))
	}
}

func notEarly(c *C) {
	b := c.open("B")
	asked := []time.Duration{
		c.Unit(),
		c.Unit() + c.timing.TTLGranularity/3, // has to be rounded up, never down
		c.Unit() + 999*time.Microsecond,
	}
	c.together(len(asked), func(i int, _ *rand.Rand) { c.diesHolding(c.openMortal("A"), b, c.Name(fmt.Sprint("x", i)), asked[i]) })
}

// diesHolding lets a get a fixed term and die, and b take the name over.
func (c *C) diesHolding(a, b *client, name string, ttl time.Duration) {
	h := a.mustTry(name, "which is fresh", distlock.TTL(ttl), distlock.NoRenewal())
	h.dies()
	c.outlives(b, h, h.call+ttl, h.ret+h.granted(), fmt.Sprintf("A asked for %v at %s and died holding it", ttl, millis(h.call)))
}

func ttlAtomic(c *C) {
	const requests = 6
	b := c.open("B")
	c.requireFired(2)
	c.together(requests, func(i int, _ *rand.Rand) { c.dieAt(i+1, b) })
}

// dieAt lets A die on its way to a lock: its k-th request and all that it sends
// later never arrive. If it needs fewer requests, it dies as a holder.
func (c *C) dieAt(k int, b *client) {
	a := c.openVia("A")
	name := c.Name("x" + string(rune('0'+k)))
	fired := a.link.Fired()
	a.link.HoldRequest(k)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = a.acquire(ctx, oracle.OpTry, name) // dying, it has nothing to say
	}()
	c.eventually(c.Slack(), func() bool { return isDone(over) || a.link.Fired() > fired })
	a.link.Drop(true, true)
	a.link.CutAll() // what is held back must not arrive later
	death := c.now()
	cancel()
	<-over

	next := c.stalk("", b, name, death+c.Unit(), death+c.atMost(c.Unit()),
		fmt.Sprintf("a client having died at %s while it asked for the name with a TTL of %v: request %d and what came after it never arrived, so that an entry without expiry may be left",
			millis(death), c.Unit(), k))
	c.observe(boundExpiry, max(next.refused-(death+c.Unit()), 0))
	next.free()
}

func serverClockJudges(c *C) {
	clock, ok := c.harness.(ServerClock)
	if !ok {
		c.lacks(capServerClock, "the harness is no ServerClock")
	}
	off := time.Duration(0)
	jump := func(d time.Duration) {
		if err := clock.Jump(c.ctx, d); err != nil {
			c.Inconclusivef("the server's clock could not be set: %v", err)
		}
		off += d
	}
	defer func() { _ = clock.Jump(c.ctx, -off) }() // if that fails, the harness has said so before
	lasting := c.open("D")                         // it lives through the jumps
	first := lasting.mustTry(c.Name("tokens"), "which is fresh")
	first.free()
	last := first.Token()
	for _, d := range []time.Duration{time.Hour, -2 * time.Hour} {
		jump(d) // while nothing is held: what a jump does to a lease is another matter
		c.Logf("the server's clock is %v ahead of the clients'", off)
		a, b := c.openMortal("A"), c.open("B")
		c.under("F1", func() {
			h := c.pollFor(lasting, c.Name("tokens"), patience+c.soon(), "everybody had unlocked it, and the server's clock had jumped")
			c.rises(&last, h, "a jump of the clock by "+d.String())
			h.free()
		})
		c.diesHolding(a, b, c.Name("fixed"+off.String()), c.Unit())
		name := c.Name("renewed" + off.String())
		h, when := b.mustTry(name, "which is fresh", distlock.Holder("of B")), fmt.Sprintf("the server's clock being %v ahead", off)
		d := c.open("C")
		_, err := d.inspect(c.ctx, name)
		see, looks, sweeps := &sight{h: h, holder: "of B"}, !errors.Is(err, distlock.ErrUnsupported), situation{needs: canSweep}.there(d)
		for range 4 {
			before := ""
			if d.mustBeTold(h, "of B", when, false); looks {
				see.check(d, when)
			}
			if sweeps {
				d.sweep(time.Minute) // longer ago than anything here, so that the tokens of what is free stay
				before = "C has swept the store"
			}
			d.mustBeBusyAfter(name, h, before)
			c.mustHold(h, when)
			c.sleep(c.Unit() / 2)
		}
		c.handsOnByServerClock(h, d, looks, when)
	}
}

// handsOnByServerClock has eye wait for what h holds. Its lease has to be by the clock that judges it, too.
func (c *C) handsOnByServerClock(h *lease, eye *client, looks bool, when string) {
	w := eye.begin(h.Name(), distlock.TTL(c.long()))
	c.awaitQueued(h.Name(), 1)
	h.free()
	next := w.woken(c.soon(), h.p.who+" had unlocked it, "+when)
	for range 2 {
		h.p.mustBeBusyAfter(h.Name(), next, when)
		if looks && len(eye.list(h.Name())) != 1 {
			c.mustLive(next, when)
			c.breach("O1", "%s holds %q, %s, and List does not return it", eye.who, h.Name(), when)
		}
		c.sleep(c.Unit() / 2)
	}
	next.free()
}

// grantedUnheard loses the reply to the request that makes a waiter the holder, and for a while everything.
func grantedUnheard(c *C) {
	a, b, d := c.openVia("A"), c.open("B"), c.open("C")
	name, ttl := c.Name("x"), c.fits(2*c.Unit())
	first := b.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	w := a.begin(name, distlock.TTL(ttl), distlock.NoRenewal())
	c.awaitQueued(name, 1)
	c.sleep(quiet)
	a.link.Drop(false, true)
	first.free()
	c.sleep(ttl / 4)
	a.link.Heal()
	if !w.within(ttl + c.soon()) {
		c.Failf("B has unlocked %q, and A, to whom no reply came for %v, waits for it still", name, ttl/4)
	}
	if w.a.err != nil {
		c.Inconclusivef("A, to whom no reply came for %v, has given up: %v", ttl/4, w.a.err)
	}
	h := w.a.lease
	deadline := h.Ends()
	a.cutOff()
	next := c.stalk("", d, name, deadline, h.ret+h.granted()+ttl/4, fmt.Sprintf("A having heard at %s that it holds it for %v, and died", millis(h.ret), ttl))
	if next.ret < deadline {
		c.breach("H3", "C was granted %q at %s, but A, which had asked for %v and heard of its grant at %s, was told a Deadline of %s: it holds an entry that was granted before, and that was not prolonged when A asked again",
			name, millis(next.ret), ttl, millis(h.ret), millis(deadline))
	}
	next.free()
}

func killedHolder(c *C) {
	b := c.open("B")
	c.together(2, func(i int, _ *rand.Rand) { c.killed(b, i == 0) })
}

func (c *C) killed(b *client, fixed bool) {
	who := map[bool]string{true: "fixed", false: "renewed"}[fixed]
	child, name := c.spawn("child "+who), c.Name(who)
	_, call, ret := child.must(childRequest{Op: "trylock", Name: name, TTL: c.Unit(), Fixed: fixed}, fmt.Sprintf("was refused the fresh name %q", name))
	due, from := call+c.Unit(), ret
	if !fixed {
		c.sleep(2 * c.Unit())
		alive := c.now()
		if r, _, _ := child.ask(childRequest{Op: "err"}); !r.OK {
			c.Inconclusivef("a child process that renews lost %q before it was killed: %s", name, r.Err)
		}
		// Its lease was good then, and so had at least a moment to last.
		due, from = alive, c.now()
	}
	child.kill()
	from = max(from, c.now())
	next := c.stalk("", b, name, due, from+c.atMost(c.Unit()), fmt.Sprintf("the process that held it, with a TTL of %v, having been killed at %s", c.Unit(), millis(from)))
	if next.ret < due-c.skew(c.Unit()) {
		c.Failf("B was granted %q at %s, but the process that was killed held it, by its own TTL of %v, until %s at least", name, millis(next.ret), c.Unit(), millis(due))
	}
	c.observe(boundExpiry, max(next.refused-(from+c.Unit()), 0))
	next.free()
}

func massExpiry(c *C) {
	const locks = 500
	a, b := c.openVia("A"), c.open("B")
	ttl := 2 * c.Unit() // taking so many must not take as long as the lease
	c.share(locks, func(i int) {
		name := c.Name(fmt.Sprint(i))
		if got := a.try(name, distlock.TTL(ttl)); got.err != nil {
			c.refused(a, got, name, "which is fresh")
		}
	})
	a.cutOff()
	death := c.now()
	c.sleepUntil(death + ttl)
	c.share(locks, func(i int) {
		name := c.Name(fmt.Sprint(i))
		next := c.stalk("", b, name, death+ttl, death+c.atMost(ttl), fmt.Sprintf("its holder having died at %s with %d locks and a TTL of %v", millis(death), locks, ttl))
		c.observe(boundExpiry, max(next.refused-(death+c.rounded(ttl)), 0))
	})
}
