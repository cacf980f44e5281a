package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

// handoverCrowd has more waiters than fit into what is made for a few.
func handoverCrowd(c *C) {
	n := 18
	if c.Virtual() {
		n = 260 // more than a byte counts
	}
	c.unmodelled()
	a := c.open("A")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	fair := c.servesInOrder()
	rng := c.Rand()
	var queue []*pending
	order := ""
	for i := range n {
		p := c.open(fmt.Sprint("W", i+1))
		// Neither the text nor the TTL may decide about the order.
		w := p.begin(name, distlock.TTL(c.fits(c.long()+time.Duration(rng.Int64N(5))*c.Unit())), distlock.Holder(fmt.Sprint(rng.Int64())))
		if fair {
			queue, order = c.enqueue(queue, w), "W3"
		} else {
			queue = append(queue, w)
		}
	}
	if !fair {
		c.sleep(quiet)
	}
	c.stillWaiting(queue)
	st, err := a.inspect(c.ctx, name)
	for len(queue) > 0 {
		c.releasesSoon(h, "many waiters")
		h, queue = c.serve(queue, order, 2*c.soon(), fmt.Sprintf("%d have waited, and %s has unlocked it", n, h.p.who))
	}
	h.free()
	if fair && err == nil && st.Waiters < n {
		c.breach("O1", "%d clients waited for %q, and all were served, but by Inspect they were %d", n, name, st.Waiters)
	}
}

// orderKept has waiters of short and of long TTLs. They look again and again while the
// queue grows and moves; one leaves, one dies in it, and one takes its time to come when it is woken.
func orderKept(c *C) {
	const leaver, slow, deceased = 0, 3, 4
	a := c.open("A")
	name := c.Name("x")
	n, pause := 7, min(c.Unit()*3/5, 11*time.Second) // longer than a waiter goes without a look
	if c.Virtual() {
		n = 10                    // so that an order of chance is hardly ever the right one
		pause += 40 * time.Minute // so that one that is dropped for its age has those behind it that are not
	}
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	var queue []*pending
	var peers []*client
	for i := range n {
		open, ttl := c.open, c.long()
		if i == slow || i == deceased {
			open = c.openVia
		}
		if i%2 == 0 {
			ttl = c.Unit()
		}
		p := open(fmt.Sprint("W", i+1))
		peers = append(peers, p)
		queue = c.enqueue(queue, p.begin(name, distlock.TTL(ttl), distlock.Holder(fmt.Sprint(n-i))))
		c.sleep(pause)
	}
	c.stillWaiting(queue)
	queue[leaver].giveUp()
	peers[deceased].cutOff()
	how := fmt.Sprintf(" has unlocked it (of %d, number %d had left, number %d had died before, and a request of number %d took %v)", n, leaver+1, deceased+1, slow+1, c.Unit()/8)
	queue = slices.Delete(slices.Delete(queue, deceased, deceased+1), leaver, leaver+1)
	for len(queue) > 0 {
		late := queue[0].p == peers[slow]
		if late {
			peers[slow].link.Delay(c.Unit()/8, 0)
		}
		c.releasesSoon(h, "others in the queue")
		bound := 2*c.soon() + c.timing.CleanupBound
		switch {
		case late:
			bound += c.Unit()
		case len(queue) < n-deceased:
			bound += 2*c.atMost(c.Unit()) + c.timing.ExpiryLag
		}
		h, queue = c.serve(queue, "W3", bound, h.p.who+how)
		if late {
			peers[slow].link.Heal()
		}
		c.sleep(pause / 2)
	}
	h.free()
}

func lockDoesNotBarge(c *C) {
	a, b, third, eye := c.open("A"), c.openPhased("B"), c.openPhased("C"), c.open("D")
	c.breaksLocks()
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	rng := c.Rand()
	for i := range c.rounds(20) {
		h := c.pollFor(a, name, c.soon(), "everybody had unlocked it", ttl)
		w := b.begin(name, ttl)
		c.enqueue(nil, w)
		early, late := time.Duration(rng.Int64N(int64(c.phase()))), time.Duration(rng.Int64N(int64(c.phase())))
		p := third
		if i%2 == 1 { // the one that has had it, just after
			p, late = a, early+late/8
		}
		ended := make(chan struct{})
		c.Go(func() {
			defer close(ended)
			c.sleep(early)
			h.ended(eye, i%3 == 2)
		})
		c.sleep(late)
		rival := p.begin(name, ttl)
		c.eventually(c.soon(), func() bool { return c.within(w.done, 0) || c.within(rival.done, 0) })
		if c.within(rival.done, 0) && !c.within(w.done, 0) && rival.a.err == nil {
			c.Failf("%s asked for %q at %s and got it at %s, in round %d, although B had been queued for it before, and is waiting still",
				rival.p.who, name, millis(rival.a.call), millis(rival.a.ret), i+1)
		}
		c.within(ended, patience) // an operator may need longer than the name
		w.woken(c.soon(), "A had unlocked it, or its lock was broken").free()
		rival.woken(c.soon(), "B had unlocked it").free()
		_ = h.unlock() // ErrLost if it was broken
	}
}
