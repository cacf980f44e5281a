package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// handoverChecks look at grants that come by another's hand: a release, an expiry or a
// wake-up decides about the successor.
func handoverChecks() []Check {
	return []Check{
		{ID: "handover/lease", Clause: "E2", Mandatory: true, Run: handoverLease, span: 60 * day,
			Rule: "a waiter gets a lease of its own TTL, counted from its grant: not that of the holder before, and not what was left of it"},
		{ID: "handover/deadline", Clause: "H3", Mandatory: true, Needs: []Cap{capProxy}, Run: handoverDeadline,
			Rule: "the Deadline of a waiter is counted from before the store granted it the name, not from when it heard of that"},
		{ID: "handover/many-names", Clause: "W1", Mandatory: true, Run: handoverManyNames,
			Rule: "releases of many names at the same moment wake the waiters of all of them, whatever the name is, and whatever term they have asked for"},
		{ID: "handover/woken-leaves", Clause: "W1", Mandatory: true, Run: wokenLeaves, span: time.Hour,
			Rule: "a wake-up that comes to a waiter on its way out is passed on to the next"},
		{ID: "handover/dead-waiter", Clause: "W1", Mandatory: true, Needs: []Cap{capProxy}, Run: deadWaiter,
			Rule: "waiters that have died neither delay the release nor keep the name from those behind them for longer than a lease of theirs"},
		{ID: "handover/undone", Clause: "W1", Mandatory: true, Needs: []Cap{capProxy}, Run: handoverUndone,
			Rule: "what undoes a grant that its client has not heard of wakes the next"},
		{ID: "handover/crowd", Clause: "A3", Mandatory: true, Heavy: true, Run: handoverCrowd, span: time.Hour,
			Rule: "however many clients wait for a name, all are served, by a fair driver in the order in which they came"},
		{ID: "handover/order-kept", Clause: "W3", Needs: []Cap{capFair, capInspector, capProxy}, Run: orderKept, span: 12 * time.Hour,
			Rule: "waiters are served in the order in which they came, however long they wait, and although some leave or die"},
		{ID: "handover/lock-does-not-barge", Clause: "W3", Needs: []Cap{capFair, capInspector}, Run: lockDoesNotBarge,
			Rule: "a Lock that comes while the name is handed over does not overtake the queue"},
	}
}

// relay is a name that goes from one client to another.
type relay struct {
	holder, waiter time.Duration // their TTLs
	wait           time.Duration // how long the waiter waits
	latency        time.Duration // of a Try over the waiter's network, both ways together
}

func handoverLease(c *C) {
	u := c.Unit()
	relays := []relay{
		{holder: c.fits(4 * u), waiter: u},
		{holder: u, waiter: c.fits(3 * u)},
		{holder: u, waiter: u, wait: u * 3 / 2},
		{holder: u, waiter: c.fits(2 * u), wait: u * 3 / 4},
	}
	if g := c.timing.TTLGranularity; g > 0 {
		relays = append(relays, relay{holder: u, waiter: min(u+g*9/10, c.longest())})
	}
	if c.Virtual() {
		relays = append(relays, relay{holder: u, waiter: c.fits(50*day + 59*time.Second)})
		relays = append(relays, relay{holder: c.fits(time.Hour), waiter: u, wait: 20 * u}, relay{holder: u, waiter: c.fits(20 * u), wait: 20 * u})
	}
	c.together(len(relays), func(i int, _ *rand.Rand) { c.handOver(i, relays[i]) })
}

func handoverDeadline(c *C) {
	u := c.Unit()
	relays := []relay{
		{holder: c.fits(4 * u), waiter: u, latency: u / 8},
		{holder: u, waiter: c.fits(2 * u), latency: u / 4},
		{holder: u, waiter: u, latency: u / 8, wait: u * 5 / 4},
	}
	c.requireFired(len(relays))
	c.together(len(relays), func(i int, _ *rand.Rand) { c.handOver(i, relays[i]) })
}

// handOver lets A unlock a name that B waits for, and B die with it. What C gets, and
// when, shows the lease that the store has given to B.
func (c *C) handOver(i int, r relay) {
	a, b, third := c.open(fmt.Sprint("A", i+1)), c.openMortal(fmt.Sprint("B", i+1)), c.open(fmt.Sprint("C", i+1))
	name := c.Name(fmt.Sprint(i))
	latency := r.latency
	if b.link != nil {
		latency /= time.Duration(b.requestsOfTry()) // of a request
	}
	first := a.mustTry(name, "which is fresh", distlock.TTL(r.holder))
	w := b.begin(name, distlock.TTL(r.waiter), distlock.NoRenewal())
	c.awaitQueued(name, 1)
	joining := c.now() - w.began
	if latency > 0 {
		b.link.Delay(latency, 0)
	}
	c.sleep(r.wait)
	freed := c.now()
	first.free()
	h := w.woken(c.soon()+4*r.latency, fmt.Sprintf("%s had unlocked it", a.who))
	b.cutOff()

	how := fmt.Sprintf("%s waited for it with a TTL of %v and got it when %s unlocked it, at %s, which had it with a TTL of %v; %s heard of that by %s and died",
		b.who, r.waiter, a.who, millis(freed), r.holder, b.who, millis(h.ret))
	deadline := h.Ends()
	if deadline < freed+r.waiter/2 {
		// A request that was sent before the release may have been answered after it: it is right to count from that.
		if stood := max(joining, c.stood(w.began)); stood > r.waiter/4 {
			c.Inconclusivef("%s needed %v for a request about %q, so one that was sent before the release may be the one that was granted", b.who, stood, name)
		}
		c.Failf("the Deadline of %s for %q is %s, %v after it can have been granted at the earliest: %s", b.who, name, millis(deadline), deadline-freed, how)
	}
	if most := h.ret + c.atMost(r.waiter); deadline > most {
		c.Failf("the Deadline of %s for %q is %s, %v after it had it: %s", b.who, name, millis(deadline), deadline-h.ret, how)
	}
	c.takenFrom(h, third, freed, r, how)
}

// takenFrom lets another client take the name of the dead h as soon as it can. The
// store has granted it to h at the instant freed at the earliest. If entries live by
// something renewed before, it is up to a quarter of a TTL sooner.
func (c *C) takenFrom(h *lease, third *client, freed time.Duration, r relay, how string) {
	due := freed + r.waiter*3/4
	next := c.stalk("", third, h.Name(), max(due, h.Ends()), h.ret+h.granted(), how)
	deadline := h.Ends()
	switch {
	case next.ret < due-c.skew(r.waiter):
		c.Failf("%s was granted %q at %s, %v after the hand-over: the lease of who had waited for it was shorter than its TTL; %s",
			third.who, h.Name(), millis(next.ret), next.ret-freed, how)
	case next.ret < deadline:
		c.breach("H3", "%s was granted %q at %s, but %s was told a Deadline of %s, which lies %v after the end that the store saw: it must be counted from before the grant, which may be older than its news; %s",
			third.who, h.Name(), millis(next.ret), h.p.who, millis(deadline), deadline-next.ret, how)
	}
	next.free()
}

// handoverManyNames has names of every kind, and as many as the store takes in a second. Every other waiter asks for a fixed term.
func handoverManyNames(c *C) {
	a, b, third := c.open("A"), c.open("B"), c.open("C")
	ttl := distlock.TTL(c.long())
	names := c.labels(300)
	if !c.Virtual() {
		names = names[:min(122, max(8, int(time.Second/max(c.cal.Pair, 1))))]
	}
	for _, like := range []string{"日本語/ключ", "😀 {x}", "a*b?[c]\\", "\"'`;--", "\n\t\x7f"} {
		names = append(names, c.Name(like))
	}
	for _, length := range []int{128, 256, distlock.MaxName} {
		names = append(names, padded(c.Name(""), length))
	}
	if c.Virtual() {
		for _, alike := range collisions() { // a channel's name may be a hash
			names = append(names, alike...)
		}
	}
	held := c.takeAll(a, names, "which is fresh", ttl)
	var queue []*pending
	for i, h := range held {
		opts := []distlock.Option{ttl}
		if i%2 == 1 {
			opts = append(opts, distlock.NoRenewal())
		}
		queue = append(queue, b.begin(h.Name(), opts...))
	}
	for _, h := range held {
		if c.inspector() == nil || !c.awaitQueued(h.Name(), 1) {
			break // waiters are not seen
		}
	}
	left := names[:min(len(names), 80)] // more than are queued for a few workers
	third.leavesAll(left)
	freed := c.now()
	c.together(len(held), func(i int, _ *rand.Rand) { held[i].free() })
	for _, w := range queue {
		w.lease(max(freed+2*c.soon()-c.now(), 0), fmt.Sprintf("A had unlocked it, together with %d others", len(held)-1)).free()
	}
	for _, name := range left {
		c.pollFor(a, name, c.timing.CleanupBound+c.soon(), fmt.Sprintf("B has unlocked it, and C, which waited for %d names, has given up", len(left)), ttl).free()
	}
}

// leavesAll has p wait for all names, and give up all at a time.
func (p *client) leavesAll(names []string) {
	var all []*pending
	for _, name := range names {
		all = append(all, p.begin(name, distlock.TTL(p.c.long())))
	}
	p.c.sleep(quiet)
	for _, w := range all {
		w.cancel()
	}
}

func wokenLeaves(c *C) {
	c.breaksLocks()
	a, b, third, eye := c.openPhased("A"), c.openPhased("B"), c.openPhased("C"), c.openPhased("D")
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	rng := c.Rand()
	moment := func() time.Duration { return time.Duration(rng.Int64N(int64(c.phase()))) }
	for i := range c.rounds(150) {
		h := c.abandoned(a, name, ttl)
		first := b.begin(name, ttl)
		c.awaitQueued(name, 1)
		second := third.begin(name, ttl)
		c.awaitQueued(name, 2)
		early, late := moment(), moment()
		c.Go(func() { c.sleep(early); first.cancel() })
		c.sleep(late)
		how := h.ended(eye, i%3 == 0)
		first.left(c.now())
		if first.a.err == nil {
			first.a.free()
		}
		second.lease(c.timing.CleanupBound+c.soon(),
			fmt.Sprintf("%s and B, who was before C, had left just then, in round %d (the TTL is %v: the wake-up was lost with B)", how, i+1, c.long())).free()
		_ = h.unlock() // ErrLost if it was broken
	}
}

func deadWaiter(c *C) {
	const many = 3
	a, third := c.open("A"), c.open("C")
	name, ttl := c.Name("x"), c.Unit()
	if c.Virtual() {
		ttl = c.ending(c.Unit() / 8) // so short that C, which looks by itself now and then, is told in time when to look
	}
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	var dead []*client
	seen := true
	for i := range many {
		p := c.openVia(fmt.Sprint("B", i+1))
		p.begin(name, distlock.TTL(ttl))
		seen = c.awaitQueued(name, i+1) && seen
		dead = append(dead, p)
	}
	w := third.begin(name, distlock.TTL(c.long()))
	c.awaitQueued(name, many+1)
	for _, p := range dead {
		p.cutOff()
	}
	cut := c.now()
	c.releasesSoon(h, "a waiter that had died")
	// The places of the dead live by their TTL, all at a time, or the first by a hold of that
	// length, handed to it. Without a queue the wake-up may be lost with it: then C looks by
	// itself, after a third of its own TTL.
	bound, clause := 2*c.atMost(ttl), "W3"
	if c.harness.Caps().Fair != Yes || !seen {
		bound, clause = max(bound, c.long()/3), "W1"
	}
	w.awaited(clause, c.now(), bound+c.timing.ExpiryLag+c.soon(), fmt.Sprintf("A had unlocked it; the %d clients B, which were before C in the queue with a TTL of %v, had died at %s", many, ttl, millis(cut))).free()
}

// releasesSoon unlocks h. That must not have to wait for the successor.
func (c *C) releasesSoon(h *lease, next string) {
	began := c.now()
	h.free()
	if took := c.now() - began; c.tooLong(began, began+took, c.Slack()) {
		c.breach("H6", "Unlock of %q by %s took %v, with %s as the next in the queue; the slack is %v", h.Name(), h.p.who, took, next, c.Slack())
	}
}

// handoverUndone has A get a name without being told so, while B waits for it.
func handoverUndone(c *C) {
	a, b := c.openVia("A"), c.open("B")
	for _, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
		name := c.Name(string(op))
		c.warm(a)
		var got answer
		_, told := a.meets(a.link.DropReply, c.Unit()/4, func() {
			ctx, cancel := context.WithTimeout(c.ctx, c.Unit()/2)
			defer cancel()
			got = a.acquire(ctx, op, name, distlock.TTL(c.long()))
		})
		w := b.begin(name, distlock.TTL(c.long()))
		c.awaitQueued(name, 1)
		<-told
		a.link.Heal()
		if got.err == nil { // of many servers one more need not answer
			got.free()
		}
		w.woken(c.timing.CleanupBound+c.soon(), fmt.Sprintf("%s by A had returned %s: the reply to it was lost", op, describe(got.err))).free()
	}
	c.requireFired(1)
}
