package conformance

import (
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// handoverCrowd has more waiters than fit into what is made for a few.
func handoverCrowd(c *C) {
	n := 18
	if c.Virtual() {
		n = 140
	}
	c.unmodelled()
	a := c.open("A")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	fair := c.harness.Caps().Fair == Yes && c.inspector() != nil
	rng := c.Rand()
	var queue []*pending
	for i := range n {
		p := c.open(fmt.Sprint("W", i+1))
		// Neither the text nor the TTL may decide about the order.
		queue = append(queue, p.begin(name, distlock.TTL(c.fits(c.long()+time.Duration(rng.Int64N(5))*c.Unit())), distlock.Holder(fmt.Sprint(rng.Int64()))))
		if fair && !c.awaitQueued(name, i+1) {
			c.Inconclusivef("%s waits for %q, but is not to be seen in the queue of the store", p.who, name)
		}
	}
	if !fair {
		c.sleep(quiet)
	}
	c.stillWaiting(queue)
	st, err := a.inspect(c.ctx, name)
	for len(queue) > 0 {
		c.releasesSoon(h, "many waiters")
		h, queue = c.nextOf(h, queue, fair, n)
	}
	h.free()
	if fair && err == nil && st.Waiters < n {
		c.breach("O1", "%d clients waited for %q, and all were served, but by Inspect they were %d", n, name, st.Waiters)
	}
}

// nextOf returns the lock of the waiter served next, and the waiters left.
func (c *C) nextOf(h *lease, queue []*pending, fair bool, n int) (*lease, []*pending) {
	served := -1
	if !c.eventually(2*c.soon(), func() bool {
		for i, w := range queue {
			if c.within(w.done, 0) {
				served = i
				return true
			}
		}
		return false
	}) {
		c.breach("W1", "%s has unlocked %q and nobody of the %d who wait has got it within %v; %d have waited", h.p.who, h.Name(), len(queue), 2*c.soon(), n)
	}
	w := queue[served]
	if w.a.err != nil {
		c.Failf("%s waited for %q together with %d others, and Lock returned: %v", w.p.who, w.name, n-1, w.a.err)
	}
	if fair && served > 0 {
		c.breach("W3", "%s has got %q before %s, who came before it: %d have waited, and %d are waiting still", w.p.who, h.Name(), queue[0].p.who, n, len(queue))
	}
	return w.a.lease, append(queue[:served:served], queue[served+1:]...)
}

// orderKept has waiters of short and of long TTLs. They look again and again while the
// queue grows and moves; one leaves, and one dies in it.
func orderKept(c *C) {
	const n, leaver, deceased = 7, 2, 4
	a := c.open("A")
	name := c.Name("x")
	pause := min(c.Unit()*3/5, 11*time.Second) // longer than a waiter goes without a look
	if c.Virtual() {
		pause += 40 * time.Minute // so that one that is dropped for its age has those behind it that are not
	}
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	var queue []*pending
	var peers []*client
	for i := range n {
		p := c.open(fmt.Sprint("W", i+1))
		ttl := c.long()
		switch {
		case i == deceased:
			p = c.openVia(fmt.Sprint("W", i+1))
			ttl = c.Unit()
		case i%2 == 0:
			ttl = c.Unit()
		}
		peers = append(peers, p)
		queue = append(queue, p.begin(name, distlock.TTL(ttl), distlock.Holder(fmt.Sprint(n-i))))
		if !c.awaitQueued(name, i+1) {
			c.Inconclusivef("%s waits for %q, but is not to be seen in the queue of the store", p.who, name)
		}
		c.stillWaiting(queue)
		c.sleep(pause)
	}
	c.stillWaiting(queue)
	queue[leaver].giveUp()
	peers[deceased].cutOff()
	for i, w := range queue {
		if i == leaver || i == deceased {
			continue
		}
		c.releasesSoon(h, "others in the queue")
		bound := 2*c.soon() + c.timing.CleanupBound
		if i > deceased {
			bound += 2*c.atMost(c.Unit()) + c.timing.ExpiryLag
		}
		if !c.eventually(bound, func() bool { return c.within(w.done, 0) || c.overtaken(queue, i, leaver, deceased) }) {
			c.breach("W1", "%s has unlocked %q and %s, who is next in the queue, has not got it within %v (number %d had left, number %d had died, before)",
				h.p.who, name, w.p.who, bound, leaver+1, deceased+1)
		}
		if !c.within(w.done, 0) {
			c.doubt(w.began, w.began+c.Unit()/2) // a waiter that is as late as its TTL has no place any more
			c.Failf("%s, who is next in the queue, was number %d of those who waited for %q and is waiting still; one who came after it has got it (number %d had left, number %d had died, before)",
				w.p.who, i+1, name, leaver+1, deceased+1)
		}
		h = w.lease(0, "it was the next")
		c.sleep(pause / 2)
	}
	h.free()
}

// overtaken reports whether one behind the i-th has been served. One that has given up, as its
// store did not answer, has overtaken nobody.
func (c *C) overtaken(queue []*pending, i, leaver, deceased int) bool {
	for j := i + 1; j < len(queue); j++ {
		if j != leaver && j != deceased && c.within(queue[j].done, 0) && queue[j].a.err == nil {
			return true
		}
	}
	return false
}

func lockDoesNotBarge(c *C) {
	a, b, third := c.open("A"), c.openPhased("B"), c.openPhased("C")
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	rng := c.Rand()
	for i := range c.rounds(20) {
		h := c.pollFor(a, name, c.soon(), "everybody had unlocked it", ttl)
		w := b.begin(name, ttl)
		if !c.awaitQueued(name, 1) {
			c.Inconclusivef("B waits for %q, but is not to be seen in the queue of the store", name)
		}
		early, late := time.Duration(rng.Int64N(int64(c.phase()))), time.Duration(rng.Int64N(int64(c.phase())))
		c.Go(func() {
			c.sleep(early)
			h.free()
		})
		c.sleep(late)
		rival := third.begin(name, ttl)
		c.eventually(c.soon(), func() bool { return c.within(w.done, 0) || c.within(rival.done, 0) })
		if c.within(rival.done, 0) && !c.within(w.done, 0) && rival.a.err == nil {
			c.Failf("C asked for %q at %s and got it at %s, in round %d, although B had been queued for it before, and is waiting still",
				name, millis(rival.a.call), millis(rival.a.ret), i+1)
		}
		w.woken(c.soon(), "A had unlocked it").free()
		rival.woken(c.soon(), "B had unlocked it").free()
	}
}
