package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
)

func sweepChecks() []Check {
	return []Check{
		{ID: "sweep/held", Clause: "O4", Mandatory: true, Run: sweepHeld,
			Rule: "Sweep touches nothing that is held or waited for, however short the idle time and however long ago it was acquired"},
		{ID: "sweep/tokens", Clause: "O4", Mandatory: true, Run: sweepTokens,
			Rule: "no token falls, whatever was swept and however short a time before"},
		{ID: "sweep/waited-only", Clause: "O4", Needs: []Cap{capFair, capInspector, capProxy}, Run: sweepWaitedOnly,
			Rule: "Sweep touches nothing of a name that has waiters and no holder: they keep their places"},
		{ID: "sweep/beside-traffic", Clause: "O4", Mandatory: true, Run: sweepBesideTraffic,
			Rule: "names that are taken and freed while the store is swept, by two at a time, stay exclusive, and their tokens rise"},
	}
}

// sweep calls Sweep, and skips the check if the driver cannot.
func (p *client) sweep(idle time.Duration) int {
	ctx, cancel := context.WithTimeout(p.c.ctx, 2*patience+p.c.Slack())
	defer cancel()
	n, err := p.sweepIdle(ctx, idle)
	switch {
	case errors.Is(err, distlock.ErrUnsupported):
		p.c.Skipf("the driver is no Sweeper: its store keeps nothing that could be swept")
	case err != nil:
		p.c.unheard(err, p.who, "Sweep")
		p.c.Failf("%s swept the store of what was idle for %v: %v", p.who, idle, err)
	case n < 0:
		p.c.Failf("%s swept the store of what was idle for %v, and was told that %d names were removed", p.who, idle, n)
	}
	return n
}

func sweepHeld(c *C) {
	a, b, third := c.open("A"), c.open("B"), c.open("C")
	third.sweep(time.Hour)
	waited := a.mustTry(c.Name("waited"), "which is fresh", distlock.TTL(c.long()))
	w := b.begin(waited.Name(), distlock.TTL(c.long()))
	c.awaitQueued(waited.Name(), 1)
	inherited := c.takenOver(a)
	held := []*lease{
		a.mustTry(c.Name("renewed"), "which is fresh"),
		a.mustTry(c.Name("fixed"), "which is fresh", distlock.NoRenewal(), distlock.TTL(c.fits(4*c.Unit()))),
		a.mustTry(c.Name("extended"), "which is fresh", distlock.NoRenewal()),
		waited,
	}
	call, _ := held[2].mustExtend(c.extends(c.Unit(), 4*c.Unit()))
	span := min(c.Unit()*3/2, (held[2].Ends()-call)*7/8) // one that can be extended by little ends before that
	held = append(held, inherited)
	for i := range 4 {
		c.sleepUntil(call + time.Duration(i)*span/3)
		for _, idle := range []time.Duration{time.Nanosecond, time.Millisecond, c.Unit() / 4} {
			third.sweep(idle)
			c.mustKeep(held, third, fmt.Sprintf("the store was swept of what was idle for %v", idle))
		}
	}
	held[2].free()
	waited.free()
	next := w.woken(c.soon(), "A had unlocked it, and the store was swept while it waited")
	if next.Token() <= waited.Token() {
		c.Failf("A held %q with token %d; the store was swept meanwhile, and B was granted it with token %d", waited.Name(), waited.Token(), next.Token())
	}
	next.free()
	c.freeAll(append(held[:2:2], inherited))
	c.sweepsAlike(a, third)
}

// takenOver has p take a name when the lease of a dead holder is over: the entry may have been free for a moment.
func (c *C) takenOver(p *client) *lease {
	dead := c.openMortal("D")
	h := dead.mustTry(c.Name("inherited"), "which is fresh", distlock.NoRenewal(), distlock.TTL(c.short()))
	h.dies()
	c.sleepUntil(h.gone() + c.skew(h.asked))
	return c.pollFor(p, h.Name(), c.soon(), "the lease of its dead holder was over")
}

// sweepsAlike sweeps names that are free while others are held that look like them: first the names that are like the others, then
// the others.
func (c *C) sweepsAlike(a, third *client) {
	const half = 10
	names := c.labels(2 * half)
	held := c.takeAll(a, names, "which is fresh", distlock.TTL(c.long()))
	for i := range 2 {
		free, kept := held[:half], held[half:]
		c.freeAll(free)
		c.sleep(c.poll())
		third.sweep(time.Nanosecond)
		c.mustKeep(kept, third, fmt.Sprintf("the store was swept after %q and other names had been unlocked", free[0].Name()))
		held = append(kept, c.takeAll(a, names[i*half:(i+1)*half], "which was unlocked, and perhaps swept", distlock.TTL(c.long()))...)
	}
	c.freeAll(held)
}

func sweepWaitedOnly(c *C) {
	p := c.open("D")
	p.sweep(time.Hour)
	c.queueOutlivesHolder("; the store was swept meanwhile", func() { p.sweep(time.Nanosecond) })
}

// openApart opens a client, and reports whether only this check has names in its
// store.
func (c *C) openApart(who string) (p *client, apart bool) {
	if _, ok := c.harness.(Namespaces); ok {
		return c.openIn(who, "apart"), true
	}
	_, ok := c.harness.(Scoped)
	return c.open(who), ok
}

func sweepTokens(c *C) {
	c.breaksLocks()
	names := []string{c.Name("x"), padded(c.Name("x"), distlock.MaxName)}
	if !c.Virtual() {
		i := c.Rand().IntN(len(names))
		names = names[i : i+1]
	}
	for i, name := range names {
		c.sweptTokens(i, name)
	}
}

// sweptTokens is sweepTokens of one name; n tells its clients from those of others.
func (c *C) sweptTokens(n int, name string) {
	a, b, dead := c.open(fmt.Sprint("A", n)), c.open(fmt.Sprint("B", n)), c.openMortal(fmt.Sprint("C", n))
	last := int64(0)
	over := "nobody had held it"
	for i := range c.rounds(20) {
		p := []*client{a, b}[i/2%2]
		if i%4 == 3 {
			p = c.open(fmt.Sprint("D", n, "-", i))
		}
		h := p.mustTry(name, over)
		c.rises(&last, h, over)
		over = c.ends(h, i%4, b, &last) + ", and a sweep"
		c.sleep(c.poll())
		a.sweep(time.Nanosecond)
	}
	h := dead.mustTry(name, "which was unlocked", distlock.NoRenewal(), distlock.TTL(c.short()))
	c.rises(&last, h, "a sweep")
	h.dies()
	c.sleepUntil(h.gone() + c.skew(c.short()))
	b.sweep(time.Nanosecond)
	h = c.pollFor(a, name, c.soon(), "the lease of its dead holder was over, and the store was swept")
	c.rises(&last, h, "a sweep right after a lease had run out")
	h.free()
}

// ends ends a hold in one of four ways, and returns how.
func (c *C) ends(h *lease, way int, by *client, last *int64) string {
	switch way {
	case 1:
		how := h.ended(by, true)
		_ = h.unlock() // ErrLost if it was broken
		return how
	case 2:
		w := by.begin(h.Name(), distlock.TTL(c.long()))
		c.awaitQueued(h.Name(), 1)
		h.free()
		next := w.woken(c.soon(), h.p.who+" had unlocked it")
		c.rises(last, next, "a hand-over")
		next.free()
		return by.who + ", which had waited for it, had unlocked it"
	case 3:
		if err := h.p.close(); err != nil {
			c.breach("C1", "%s held %q and was closed: %v", h.p.who, h.Name(), err)
		}
		return h.p.who + " was closed"
	}
	h.free()
	return h.p.who + " had unlocked it"
}

func sweepBesideTraffic(c *C) {
	a, b, sweepers := c.openPhased("A"), c.openPhased("B"), []*client{c.openPhased("C"), c.openPhased("D")} // one sweep may hinder another
	sweepers[0].sweep(time.Hour)
	end := c.now() + time.Second
	names := c.names(3)
	c.together(6, func(i int, rng *rand.Rand) {
		for c.now() < end {
			if i >= 4 {
				sweepers[i-4].sweep(time.Nanosecond)
				c.sleep(time.Millisecond)
				continue
			}
			p, name := []*client{a, b}[i%2], names[rng.IntN(len(names))]
			h := p.lock(name, patience+c.soon(), distlock.TTL(c.long()))
			if h.err != nil {
				c.unheard(h.err, p.who, name)
				c.Failf("%s waited for %q, which others take and free while the store is swept, and was told: %v", p.who, name, h.err)
			}
			c.sleep(time.Duration(rng.Int64N(int64(2 * time.Millisecond))))
			h.free()
		}
	})
}
