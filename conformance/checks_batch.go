package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
)

// The engine renews the locks of a client in batches. A client with one lock shows
// nothing of that, so these checks hold many. They are right for every driver: what is
// promised to a lock is the same, however many there are.
func batchChecks() []Check {
	return []Check{
		{ID: "batch/each-renewed", Clause: "H5", Mandatory: true, Heavy: true, Run: batchEachRenewed,
			Rule: "a client that holds more locks than fit into one request has every one of them renewed, in the store and for its holder"},
		{ID: "batch/one-lost", Clause: "H4", Mandatory: true, Run: batchOneLost,
			Rule: "of many locks of a client one is lost: its holder learns of it within a renewal period, and all others are renewed as before; if all are lost, each holder learns of it"},
		{ID: "batch/old-and-new", Clause: "H4", Mandatory: true, Run: batchOldAndNew,
			Rule: "a client that has lost a name and acquired it again is told so of the old lock, and keeps the new one"},
		{ID: "batch/own-ttl", Clause: "E1", Mandatory: true, Run: batchOwnTTL,
			Rule: "locks of one client with different TTLs are renewed for their own each: when the client dies, each name is free after its own"},
		{ID: "batch/fresh-beside-old", Clause: "E1", Mandatory: true, Run: batchFreshBesideOld,
			Rule: "a lock that is taken while others of the client are about to be renewed has its whole TTL, and no more"},
		{ID: "batch/others-unmoved", Clause: "H6", Mandatory: true, Run: batchOthersUnmoved,
			Rule: "the end of one lock of a client, by Unlock or by expiry, does not end the others, nor do they keep it alive"},
		{ID: "batch/counted-from-request", Clause: "H3", Mandatory: true, Needs: []Cap{capProxy}, Run: batchFromRequest,
			Rule: "a renewal in the background counts from its request, never from its reply"},
		{ID: "batch/late-request", Clause: "H5", Mandatory: true, Needs: []Cap{capProxy}, Run: batchLateRequest,
			Rule: "a renewal in the background that reaches the store late revives nothing and does not touch the next holder"},
		{ID: "batch/late-answer", Clause: "H4", Mandatory: true, Needs: []Cap{capProxy}, Run: batchLateAnswer,
			Rule: "the answer to a renewal that was given up is not taken for that to a later one"},
	}
}

func batchEachRenewed(c *C) {
	n := 600
	if c.Virtual() {
		n = 1100
	}
	c.watchStore()
	a, b := c.openPhased("A"), c.open("B")
	ttl := c.fits(2 * c.Unit())
	names := c.labels(n)
	for i := 64; i < n; i += 2 { // they make a request long
		names[i] = fullLength(names[i])
	}
	held := c.takeAll(a, names, "which is fresh", distlock.TTL(ttl))
	why := fmt.Sprintf("with %d others of its client, for more than a TTL", n-1)
	c.sleepUntil(held[n-1].ret + ttl*5/4)
	c.mustShowRest(held, b)
	c.mustKeep(held, b, why)

	if c.inspector() == nil {
		c.freeAll(held)
		return
	}
	// More than one request is on its way at a time, and each has its own answer.
	var victims, rest []*lease
	for i, h := range held {
		if i%(n/8) == n/16 {
			victims = append(victims, h)
			continue
		}
		rest = append(rest, h)
	}
	for _, h := range victims {
		c.strip(h, b)
	}
	since := c.now()
	for _, h := range victims {
		h.mustLearn(since, fmt.Sprintf("the entries of %q and %d others of %d were removed from the store", h.Name(), len(victims)-1, n))
	}
	for _, h := range rest {
		c.mustLive(h, fmt.Sprintf("the entries of %d others were removed", len(victims)))
	}
	c.freeAll(rest)
}

func batchOneLost(c *C) {
	const n = 20
	a, b := c.open("A"), c.open("B")
	names := c.names(n)
	var held []*lease
	step := max(c.timing.TTLGranularity, time.Millisecond)
	if step > c.Unit()/20 {
		step = 0
	}
	// One is taken after the other, so that their order is known. Their TTLs differ by so little that they are due together: a
	// driver may group them by those.
	for i, name := range names {
		held = append(held, a.mustTry(name, "which is fresh", distlock.TTL(c.fits(c.Unit()+time.Duration(i%3)*step))))
	}
	why := ""
	for round, at := range []int{0, n / 2, n - 3, 0} { // of those left: first, amidst, last
		victim := held[at]
		held = append(append([]*lease{}, held[:at]...), held[at+1:]...)
		c.strip(victim, b)
		since := c.now()
		victim.mustLearn(since, fmt.Sprintf("the entry of %q was removed from the store", victim.Name()))
		why = fmt.Sprintf("only the entry of %q was removed, in round %d", victim.Name(), round+1)
		for _, h := range held {
			c.mustLive(h, why)
		}
		c.mustShowRest(held, b)
	}
	c.mustKeep(held, b, why)
	// Long enough for those to expire that were said to be renewed and are not.
	c.sleep(c.Unit() * 5 / 4)
	c.mustKeep(held, b, why)
	c.freeAll(held)
	for _, h := range held {
		b.mustTry(h.Name(), "which A has unlocked").free()
	}
	// An answer that tells of no lock at all is not one in which nothing was lost.
	held = c.takeAll(a, c.names(n + 3)[n:], "which is fresh")
	for _, h := range held {
		c.strip(h, b)
	}
	since := c.now()
	for _, h := range held {
		h.mustLearn(since, "the entries of all locks of A were removed from the store")
	}
}

func batchOldAndNew(c *C) {
	const n = 4
	c.unjudged("entries are removed behind the back of their holder, which may believe in them for a renewal period")
	a, b := c.open("A"), c.open("B")
	var old, kept, left []*lease
	for i := range n {
		old = append(old, a.mustTry(c.Name(fmt.Sprint("n", i)), "which is fresh"))
	}
	stripped := make([]time.Duration, n)
	for i, h := range old {
		c.strip(h, b)
		stripped[i] = c.now()
		next := c.pollFor(a, h.Name(), c.soon(), "the entry of A's lock was removed from the store")
		if next.Token() <= h.Token() {
			c.Failf("the entry of %q, with token %d, was removed and A was granted the name again, with token %d; it must be greater", h.Name(), h.Token(), next.Token())
		}
		if i%2 == 0 {
			kept = append(kept, next)
			continue
		}
		next.free()
		left = append(left, next)
	}
	for i, h := range old {
		h.mustLearn(stripped[i], fmt.Sprintf("the entry of A's lock of %q, with token %d, was removed from the store and A acquired the name anew", h.Name(), h.Token()))
		if err := h.unlock(); !errors.Is(err, distlock.ErrLost) {
			c.Failf("A's lock of %q with token %d was lost, but its Unlock returned %s; it must match ErrLost", h.Name(), h.Token(), describe(err))
		}
	}
	for _, h := range left {
		b.mustTry(h.Name(), "whose entry was removed, and which A took and unlocked after that: has a renewal of the first brought it back?").free()
	}
	c.sleepUntil(stripped[n-1] + c.Unit()*3/2)
	c.mustKeep(kept, b, "another lock of A on the same name had been lost before")
	c.freeAll(kept)
}

// extendsEach extends terms of p at one time, each by another TTL: they may go along in one request.
func (c *C) extendsEach(p, eye *client) {
	var terms []*lease
	for i := range 3 {
		terms = append(terms, p.mustTry(c.Name(fmt.Sprint("term", i)), "which is fresh", distlock.NoRenewal()))
	}
	c.together(len(terms), func(i int, _ *rand.Rand) { terms[i].mustExtend(c.extends(c.Unit(), time.Duration(i+2)*c.Unit())) })
	c.mustShowRest(terms, eye)
	c.freeAll(terms)
}

func batchOthersUnmoved(c *C) {
	a, b := c.open("A"), c.open("B")
	held := c.takeAll(a, c.names(8), "which is fresh")
	fixed := a.mustTry(c.Name("fixed"), "which is fresh", distlock.NoRenewal())
	why := "another lock of its client was unlocked"
	for _, i := range []int{0, 3, 6} {
		held[i].free()
		b.mustTry(held[i].Name(), "which A has unlocked while it holds others", distlock.TTL(c.short())).free()
	}
	rest := []*lease{held[1], held[2], held[4], held[5], held[7]}
	c.mustKeep(rest, b, why)
	c.sleepUntil(fixed.gone() + c.skew(c.Unit()))
	c.pollFor(b, fixed.Name(), c.soon(), "the lease of A, which was not to be renewed, was over, while A renews others").free()
	c.sleepUntil(fixed.gone() + c.Unit()/2)
	c.mustKeep(rest, b, why+", and a third one has expired")
	for _, i := range []int{0, 3, 6} {
		b.mustTry(held[i].Name(), "which everybody has unlocked while A renews others").free()
	}
	c.extendsEach(a, b)
	last := a.mustTry(c.Name("last"), "which is fresh", distlock.NoRenewal(), distlock.TTL(c.long()))
	c.freeAll(rest)
	b.mustBeBusyAfter(last.Name(), last, "A has unlocked all its locks but this one, of a fixed term")
	if err := last.unlock(); err != nil {
		c.unheard(err, "A", last.Name())
		c.Failf("A unlocked all its renewed locks, and then %q, of a fixed term that runs for long: %v", last.Name(), err)
	}
}
