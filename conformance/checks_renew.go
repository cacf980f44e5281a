package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
)

func renewChecks() []Check {
	return []Check{
		{ID: "renew/late-request", Clause: "H5", Mandatory: true, Needs: []Cap{capProxy}, Run: renewLateRequest,
			Rule: "a renewal that reaches the store after the lease has ended revives nothing and does not touch the next holder; one that reaches it after an Extend shortens nothing"},
		{ID: "renew/boundary", Clause: "H1", Mandatory: true, Heavy: true, Run: renewBoundary,
			Rule: "an Extend within milliseconds of the end of the lease either keeps the lock or fails, whatever a rival does meanwhile"},
		{ID: "renew/short-extends", Clause: "H5", Mandatory: true, Run: renewShortExtends,
			Rule: "a lock is renewed for its own TTL also while it is extended by less, again and again"},
	}
}

// mustNotRevive calls Extend on a lock that has expired.
func (h *lease) mustNotRevive(ttl time.Duration) {
	c := h.p.c
	ctx, cancel := c.patiently()
	defer cancel()
	call := c.now()
	if err := h.Extend(ctx, ttl); !errors.Is(err, distlock.ErrLost) {
		c.Failf("%s had %q until %s and extended it at %s; the answer must match ErrLost, it was %s",
			h.p.who, h.Name(), millis(h.gone()), millis(call), describe(err))
	}
	if h.Err() == nil {
		c.Failf("%s had %q until %s, and its Err is nil again at %s, after an Extend that failed", h.p.who, h.Name(), millis(h.gone()), millis(c.now()))
	}
}

// untouched demands that h, of a fixed term, is held still, and ends on its own
// schedule: a renewal that moves the expiry of whatever it finds leaves the owner
// as it was.
func (c *C) untouched(h *lease, probe *client, by string) {
	probe.mustBeBusyAfter(h.Name(), h, by+" had reached the store")
	h.p.cutOff()
	limit := h.gone() + c.soon()
	c.sleepUntil(h.end())
	c.pollFor(probe, h.Name(), limit-c.now(), fmt.Sprintf("the lease of %s was over, granted at %s for %v; did %s prolong it?",
		h.p.who, millis(h.ret), h.granted(), by)).free()
}

func renewLateRequest(c *C) {
	c.requireFired(2)
	ttl := c.Unit()
	if !c.Virtual() {
		// A client repeats what has no answer after some seconds, by another way. A lease that is over by then hears nothing of that,
		// and one of a unit would, where the machine or the store is late.
		ttl = c.fits(min(ttl, minUnit))
	}
	c.together(5, func(i int, _ *rand.Rand) {
		switch i {
		case 2, 3:
			c.lateLook(i == 2)
			return
		case 4:
			c.lateRenewal()
			return
		}
		who := []string{"-free", "-taken"}[i]
		a, b, third := c.openVia("A"+who), c.openMortal("B"+who), c.open("C"+who)
		h := a.mustTry(c.Name(who), "which is fresh", distlock.NoRenewal(), distlock.TTL(ttl))
		end := h.end()
		answer := h.extendLate(c.fits(4 * c.Unit()))
		c.sleepUntil(end)
		if h.Ends() > end {
			// Another copy of it has come by another way. If that is not so, the oracles convict.
			c.Inconclusivef("the renewal of %s was confirmed although a request of it was held back", a.who)
		}
		if i == 0 {
			// Longer than the lease, so that the client has cleaned up behind it.
			c.sleepUntil(h.gone() + c.Unit()/4)
			answer(fmt.Sprintf("its lease had ended at %s", millis(h.gone())))
			c.pollFor(third, h.Name(), c.soon(), "the lease of A had ended long before its renewal arrived, which must not revive it").free()
			return
		}
		next := c.pollFor(b, h.Name(), h.gone()+c.soon()-c.now(), "the lease of A had ended, its renewal being held back on the way", distlock.NoRenewal())
		answer(fmt.Sprintf("%s was granted the name at %s", b.who, millis(next.ret)))
		c.untouched(next, third, "A's late renewal")
	})
}

// lateLook has a look of a waiter arrive when it has been granted the name, and has extended or unlocked its lock. In virtual time,
// where what the client sends behind it goes on.
func (c *C) lateLook(extended bool) {
	if _, ok := can[Proxy](c, capProxy); !ok || !c.Virtual() {
		return
	}
	who := map[bool]string{true: "-look", false: "-look at the past"}[extended]
	a, b, third := c.open("A"+who), c.openVia("B"+who), c.open("C"+who)
	ttl := c.Unit()
	h := a.mustTry(c.Name(who), "which is fresh", distlock.TTL(c.long()))
	w := b.begin(h.Name(), distlock.TTL(ttl))
	c.awaitQueued(h.Name(), 1)
	before := b.link.Fired()
	b.link.HoldRequest(1)
	c.eventually(ttl/2, func() bool { return b.link.Fired() > before })
	c.sleep(ttl/3 + c.soon()) // for which B waits for the answer
	h.free()
	got := w.woken(ttl/2, "A had unlocked it")
	if !extended {
		got.free()
		b.link.Release()
		c.sleep(quiet)
		third.mustTry(h.Name(), "which B had waited for and has unlocked; then a look of B arrived that was sent before", distlock.TTL(ttl)).free()
		return
	}
	got.mustExtend(c.fits(4 * ttl))
	end := got.Ends()
	b.link.Release()
	c.sleep(quiet)
	b.cutOff()
	next := c.pollFor(third, h.Name(), c.atMost(c.fits(4*ttl))+c.timing.ExpiryLag+c.soon(), "B had extended its lock, and died")
	if next.ret < end {
		c.breach("H5", "C was granted %q at %s, but B, which had extended it, has it until %s: an earlier request of B, made when it waited, has arrived since", h.Name(), millis(next.ret), millis(end))
	}
	next.free()
}

// lateRenewal has a renewal arrive when the lock was extended meanwhile. Where a connection is all that a client has, the Extend is
// behind it, and there is nothing to see.
func (c *C) lateRenewal() {
	a, third := c.openVia("A-renewal"), c.open("C-renewal")
	h := a.mustTry(c.Name("-renewal"), "which is fresh")
	c.sleep(quiet) // as in extendLate
	before := a.link.Fired()
	a.link.HoldRequest(1)
	if !c.eventually(c.Unit(), func() bool { return a.link.Fired() > before }) {
		a.link.Release()
		c.Inconclusivef("no renewal of %s was sent within a unit", a.who)
	}
	ctx, cancel := c.patiently()
	defer cancel()
	ttl := c.extends(c.Unit(), 2*c.Unit())
	if err := h.Extend(ctx, ttl); err != nil {
		c.Logf("a renewal of %s was held back, and its Extend not confirmed: %v", a.who, err)
		a.link.Release()
		return
	}
	end := h.Ends()
	a.link.Release()
	c.sleep(quiet)
	a.cutOff()
	next := c.pollFor(third, h.Name(), c.atMost(ttl)+c.timing.ExpiryLag+c.soon(), "A had extended its lock, and died")
	if next.ret < end {
		c.Failf("C was granted %q at %s, but A, which had extended it, has it until %s: a renewal of A that was sent before has arrived since", h.Name(), millis(next.ret), millis(end))
	}
	next.free()
}

// extendLate calls Extend and holds its request back. The function returned lets it
// go and demands that it is not confirmed, for the reason that it is given.
func (h *lease) extendLate(ttl time.Duration) func(because string) {
	c, link := h.p.c, h.p.link
	c.sleep(quiet) // or what the grant has left to do, such as a named lock, may be held back in its place
	link.HoldRequest(1)
	answered := make(chan struct{})
	var err error
	c.Go(func() {
		defer close(answered)
		err = h.Extend(c.ctx, ttl)
	})
	if !c.eventually(c.Unit()/2, func() bool { return link.Fired() > 0 }) {
		link.Release()
		c.Inconclusivef("the renewal of %s was not sent within half a unit", h.p.who)
	}
	if c.within(answered, quiet) && err == nil {
		c.Inconclusivef("another request of %s was held back, and its renewal was not", h.p.who)
	}
	return func(because string) {
		// On a busy machine its answer may have taken longer than that.
		if c.within(answered, 0) && err == nil {
			c.Inconclusivef("another request of %s was held back, and its renewal was not", h.p.who)
		}
		link.Release()
		if !c.within(answered, patience) {
			c.Failf("%s's Extend has not returned %v after the end of its lease", h.p.who, patience)
		}
		if err == nil {
			c.Failf("%s's Extend of %q returned nil although %s", h.p.who, h.Name(), because)
		}
		c.sleep(quiet) // for the late renewal to take effect, if it does
	}
}

// renewBoundary aims renewals at the last milliseconds of leases, half of them just
// too late, with a rival that asks all the time. What they answer is for the
// oracles to judge.
func renewBoundary(c *C) {
	const names, least, aim = 25, 2, 5 * time.Millisecond
	a, b := c.openPhased("A"), c.openPhased("B")
	ttl := c.short()
	rounds := max(least, min(8, int(4*time.Second/ttl)))
	var extended atomic.Int64
	c.together(names, func(i int, rng *rand.Rand) {
		for range rounds {
			if c.renewAtEnd(a, b, c.Name(fmt.Sprint("n", i)), ttl, time.Duration(rng.Int64N(int64(2*aim)))-aim) {
				extended.Add(1)
			}
		}
	})
	c.Logf("%d of %d renewals at the end of the lease succeeded", extended.Load(), names*rounds)
}

// renewAtEnd takes the name, renews it at its deadline plus offset while b asks for
// it, and reports whether the renewal was granted.
func (c *C) renewAtEnd(a, b *client, name string, ttl, offset time.Duration) bool {
	h := c.pollFor(a, name, 3*ttl+c.timing.ExpiryLag+c.soon(), "the leases of both had ended", distlock.TTL(ttl), distlock.NoRenewal())
	deadline := h.Ends()
	c.sleepUntil(deadline - 4*time.Millisecond)
	rival := make(chan struct{})
	c.Go(func() {
		defer close(rival)
		for c.now() < deadline+20*time.Millisecond {
			if got := b.try(name, distlock.TTL(ttl), distlock.NoRenewal()); got.err == nil {
				c.sleep(5 * time.Millisecond)
				_ = got.unlock()
				return
			}
			c.sleep(500 * time.Microsecond)
		}
	})
	c.sleepUntil(deadline + offset)
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	err := h.Extend(ctx, ttl)
	if !c.within(rival, patience) {
		c.Inconclusivef("a TryLock of B has not returned within %v", patience)
	}
	_ = h.unlock() // nil or ErrLost: the oracles judge it
	return err == nil
}

func renewShortExtends(c *C) {
	ttl := c.extends(c.Unit(), c.Unit()/4)
	h := c.open("A").mustTry(c.Name("x"), "which is fresh")
	most := time.Duration(0)
	for began := h.ret; c.now() < began+3*c.Unit(); c.sleep(c.Unit() / 16) {
		call, _ := h.mustExtend(ttl)
		if call > began+c.Unit() { // what was granted at first is over
			most = max(most, h.Ends()-call)
		}
	}
	if most < c.Unit()/2 {
		c.Failf("A has %q with a TTL of %v and extended it by %v again and again; after the first TTL, its Deadline was never more than %v ahead: it is not renewed for its own TTL any more",
			h.Name(), h.asked, ttl, most)
	}
	h.free()
}
