package conformance

import (
	"github.com/distlock-go/distlock"
)

func semChecks() []Check {
	return []Check{
		{ID: "sem/bounded", Clause: "P4", Mandatory: true, Run: semBounded,
			Rule: "of a semaphore of n, n are held at a time, over all processes, and no more; one that comes back goes to one that waits"},
		{ID: "sem/dead-holder", Clause: "P4", Mandatory: true, Run: semDeadHolder,
			Rule: "the permit of a holder that has died comes back with the end of its lease, also to one that waits for it already"},
	}
}

func semBounded(c *C) {
	const n = 3
	a, b := c.open("A"), c.open("B")
	name := c.Name("x")
	sa, sb := a.semaphore(n), b.semaphore(n)
	var held []distlock.Lock
	for i := range n {
		p, s := a, sa
		if i%2 == 1 {
			p, s = b, sb
		}
		held = append(held, p.take(s, name, patience, "not all permits are taken"))
	}
	b.mustNotTake(sb, name, "all permits are taken", held...)
	a.mustNotTake(sa, name, "all permits are taken", held...)
	got := make(chan distlock.Lock, 1)
	waiting := make(chan struct{})
	c.Go(func() {
		close(waiting)
		got <- b.take(sb, name, c.Unit(), "A has given a permit back while B was waiting")
	})
	<-waiting
	c.sleep(quiet)
	for _, lock := range held {
		c.alive(lock, "although it is renewed")
	}
	a.giveBack(held[0])
	select {
	case lock := <-got:
		b.giveBack(lock)
	case <-c.ctx.Done():
		return
	}
	a.giveBack(held[2])
	b.giveBack(held[1])
}

func semDeadHolder(c *C) {
	a, b := c.open("A"), c.open("B")
	name, ttl := c.Name("x"), c.fits(c.Unit())
	sa, sb := a.semaphore(2), b.semaphore(2)
	// Neither renewed nor unlocked: so a dead holder looks to the store.
	call := c.now()
	a.take(sa, name, patience, "nobody has ever held it", distlock.NoRenewal(), distlock.TTL(ttl))
	dies := c.now()
	kept := b.take(sb, name, patience, "one of two permits is free", distlock.TTL(c.fits(4*c.Unit())))
	back := b.take(sb, name, dies+c.atMost(ttl)+c.timing.ExpiryLag-c.now(), "the lease of a dead holder is over", distlock.TTL(c.fits(4*c.Unit())))
	if at := c.now(); at < call+ttl-c.skew(ttl) {
		c.Failf("B got a third permit of two at %s, although A's lease of %v began at %s or later", millis(at), ttl, millis(call))
	}
	b.giveBack(kept)
	b.giveBack(back)
}
