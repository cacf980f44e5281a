package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

func fairChecks() []Check {
	return []Check{
		{ID: "fair/within-client", Clause: "W2", Mandatory: true, Run: fairWithinClient,
			Rule: "goroutines that wait on one client get the name in the order in which they came"},
		{ID: "fair/try-does-not-barge", Clause: "W3", Needs: []Cap{capFair, capInspector}, Run: tryDoesNotBarge,
			Rule: "a TryLock does not overtake the queue"},
		{ID: "fair/cancelled-skipped", Clause: "W3", Needs: []Cap{capFair, capInspector}, Run: fairCancelledSkipped,
			Rule: "waiters that leave the queue do not change the order of the others"},
	}
}

// servesInOrder reports whether waiters of all processes are served first come, first served, and the store shows its queue.
func (c *C) servesInOrder() bool { return c.harness.Caps().Fair == Yes && c.inspector() != nil }

// enqueue adds to the waiters for a name one that has just begun to wait, when it stands in the queue of the store behind
// the others. An order that nobody has seen must not be demanded: on a slow machine they may have come in another one.
func (c *C) enqueue(queue []*pending, w *pending) []*pending {
	queue = append(queue, w)
	if !c.awaitQueued(w.name, len(queue)) {
		if n, err := c.inspector().Waiters(c.ctx, w.name); err == nil && n < 0 {
			c.Failf("the driver is declared to be fair, but the Inspector says that its store keeps no queue (Waiters returned %d)", n)
		}
		if c.Virtual() {
			c.breach("W3", "%s waits for %q, behind %d others, but is not to be seen in the queue of the store", w.p.who, w.name, len(queue)-1)
		}
		c.Inconclusivef("%s waits for %q, but is not to be seen in the queue of the store", w.p.who, w.name)
	}
	c.stillWaiting(queue)
	return queue
}

// stillWaiting ends the check if one of the waiters has its answer already.
func (c *C) stillWaiting(queue []*pending) {
	for _, w := range queue {
		if !c.within(w.done, 0) {
			continue
		}
		if w.a.err == nil {
			c.Failf("%s was granted %q, which is held", w.p.who, w.name)
		}
		c.unheard(w.a.err, w.p.who, w.name)
		c.Failf("%s waits for %q, and Lock returned: %v", w.p.who, w.name, w.a.err)
	}
}

// serve returns the lock of the waiter that gets the name for the reason why, and those who wait still. Order is the clause
// that is broken if it is not the first of them; empty if the order is not known.
func (c *C) serve(queue []*pending, order string, bound time.Duration, why string) (*lease, []*pending) {
	at := c.firstDone(queue, bound)
	w, first := queue[at], queue[0]
	switch {
	case !isDone(w.done):
		c.breach("W1", "%s, and nobody of the %d who wait for %q has got it within %v", why, len(queue), w.name, bound)
	case w.a.err != nil:
		return w.lease(0, why), nil // it ends the check
	case order != "" && at > 0:
		c.doubt(first.began, first.began+c.Unit()/2) // a waiter that is as late as its TTL has no place any more
		c.breach(order, "%s; then %s has got %q before %s, who came before it and has lost its place: %d are waiting still", why, w.p.who, w.name, first.p.who, len(queue)-1)
	}
	return w.a.lease, append(queue[:at:at], queue[at+1:]...)
}

// serveInOrder unlocks h and then each waiter, one after the other, and demands that the name goes to them in the order of
// the queue, although rivals, and the one that has had it, try.
func (c *C) serveInOrder(h *lease, queue []*pending, rivals ...*client) {
	for h.free(); len(queue) > 0; h.free() {
		first := queue[0]
		for i, p := range append(rivals[:len(rivals):len(rivals)], h.p) {
			opts := []distlock.Option{distlock.TTL(c.long()), distlock.NoRenewal()}
			if p == first.p {
				continue // it overtakes nobody else
			}
			a := p.try(first.name, opts[:1+i%2]...)
			switch {
			case a.err == nil && !isDone(first.done):
				c.doubt(first.began, first.began+c.Unit()/2)
				c.breach("W3", "%s has unlocked %q, and the TryLock of %s got it at %s, before %s, who came before it", h.p.who, first.name, p.who, millis(a.ret), first.p.who)
			case a.busy() && !slices.ContainsFunc(queue, func(w *pending) bool { return w.p == p }) && a.heldError(p, first.name).Token == h.Token():
				c.breach("A6", "%s has unlocked %q, and after that %s was told that the holder has token %d still", h.p.who, first.name, p.who, h.Token())
			}
		}
		h, queue = c.serve(queue, "W3", c.soon(), h.p.who+" has unlocked it")
	}
}

func fairWithinClient(c *C) {
	a, b := c.open("A"), c.open("B")
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	h := a.mustTry(name, "which is fresh", ttl)
	began := c.now()
	var queue []*pending
	for range 5 {
		queue = append(queue, b.begin(name, ttl))
		// Nobody can look into the queue of a process. But to come to its end
		// takes no request, only some CPU, and a machine that keeps a goroutine
		// from that for so long is caught standing still.
		c.sleep(quiet)
	}
	c.stillWaiting(queue)
	for h.free(); len(queue) > 0; h.free() {
		first := queue[0]
		h, queue = c.serve(queue, "", c.soon(), h.p.who+" has unlocked it")
		if isDone(first.done) {
			continue
		}
		if late := c.stood(began); late >= quiet/4 {
			c.Inconclusivef("the waiters were not served in their order, but the machine stood still for %v while they came", late)
		}
		c.Failf("one of the goroutines of B that wait for %q has got it before another that came before it", name)
	}
}

func tryDoesNotBarge(c *C) {
	a, b, third, eye := c.open("A"), c.openPhased("B"), c.openPhased("C"), c.open("D")
	c.breaksLocks()
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	for i := range c.rounds(20) {
		h := a.mustTry(name, "which nobody has", ttl)
		w := b.begin(name, ttl)
		c.enqueue(nil, w)
		var barged answer
		stop := make(chan struct{})
		c.Go(func() {
			defer close(stop)
			for !c.within(w.done, 0) && c.ctx.Err() == nil {
				if barged = third.try(name, ttl); barged.lease != nil {
					return
				}
			}
		})
		how := h.ended(eye, i%2 == 1)
		if !c.within(w.done, c.soon()) && !c.within(stop, 0) {
			c.Failf("B is still waiting for %q %v after %s, while C tries for it", name, c.soon(), how)
		}
		_ = h.unlock() // ErrLost if it was broken
		w.stop(stop)
		// C may have had it after B only if B has unlocked it, and it has not.
		if barged.lease != nil {
			c.Failf("C's TryLock, called at %s, was granted %q at %s in round %d, although B had been queued for it before %s",
				millis(barged.call), name, millis(barged.ret), i+1, how)
		}
		w.lease(c.soon(), how).free()
	}
}

// stop waits for a helper of the check that ends by itself.
func (w *pending) stop(helper <-chan struct{}) {
	if !w.c.within(helper, patience+w.c.Slack()) {
		w.c.Inconclusivef("a TryLock has not returned within %v", patience+w.c.Slack())
	}
}

func fairCancelledSkipped(c *C) {
	a := c.open("A")
	var peers []*client
	for i := range 6 {
		peers = append(peers, c.open(fmt.Sprint("W", i+1)))
	}
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	h := a.mustTry(name, "which is fresh", ttl)
	var queue []*pending
	for _, p := range peers {
		queue = c.enqueue(queue, p.begin(name, ttl))
	}
	for _, i := range []int{0, 2, 3} { // the first, and two in a row
		queue[i].giveUp()
	}
	c.serveInOrder(h, []*pending{queue[1], queue[4], queue[5]})
}
