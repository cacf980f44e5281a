package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

func stressChecks() []Check {
	return []Check{
		{ID: "stress/counter", Clause: "H1", Mandatory: true, Heavy: true, Run: stressCounter,
			Rule: "a counter that is read and written under the lock loses no addition"},
		{ID: "stress/random-history", Clause: "H1", Mandatory: true, Heavy: true, Run: stressRandom,
			Rule: "whatever clients do at random, every answer can be explained by one lock with leases"},
		{ID: "stress/boundary-history", Clause: "H1", Mandatory: true, Heavy: true, Run: stressBoundary,
			Rule: "the same holds where locks are unlocked and extended within milliseconds of their end"},
		{ID: "stress/sequence", Clause: "H1", Mandatory: true, Run: stressSequence,
			Rule: "the same holds for calls that do not overlap, where only one answer is right"},
		{ID: "stress/pool-starvation", Clause: "W2", Mandatory: true, Heavy: true, Run: stressPool,
			Rule: "fifty waiters of a client do not keep it from extending and unlocking what it holds, and keep no connections of their own"},
		{ID: "stress/herd", Clause: "W2", Needs: []Cap{capProxy, capPush}, Heavy: true, Run: stressHerd,
			Rule: "a release wakes the next waiter alone: the requests per hand-off do not grow with the waiters"},
	}
}

func stressCounter(c *C) {
	const clients, goroutines, adds = 4, 8, 50
	var peers []*client
	for i := range clients {
		peers = append(peers, c.open(fmt.Sprint("C", i+1)))
	}
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	var k counter
	c.together(goroutines, func(i int, rng *rand.Rand) {
		p := peers[i%clients]
		for range c.rounds(adds) {
			a := p.lock(name, patience+goroutines*c.soon(), ttl)
			if a.err != nil {
				c.unheard(a.err, p.who, name)
				c.breach("A3", "%s waited for %q since %s and was told at %s: %v", p.who, name, millis(a.call), millis(a.ret), a.err)
			}
			k.add(func() { c.sleep(time.Duration(rng.Int64N(int64(time.Millisecond)))) })
			c.mustLive(a.lease, "while it was renewed in the background")
			a.free()
		}
	})
	if n := k.lost(); n > 0 {
		c.Failf("%d of %d additions made under the lock were overwritten: the name had two holders at once", n, k.added.Load())
	}
	c.Logf("%d additions", k.added.Load())
}

// traffic is what the clients of a random history do.
type traffic struct {
	ttl   time.Duration
	names int
	aimed bool // a third of the holds end within milliseconds of their lease
}

const trafficClients, trafficRounds = 5, 60

func (c *C) drive(t traffic) {
	var peers []*client
	for i := range trafficClients {
		peers = append(peers, c.openPhased(fmt.Sprint("C", i+1)))
	}
	until := c.now() + max(4*time.Second, 3*t.ttl)
	c.together(trafficClients, func(i int, rng *rand.Rand) {
		for round := 0; round < trafficRounds && (c.Virtual() || c.now() < until); round++ {
			c.takeAndUse(peers[i], t, rng)
		}
	})
}

// random returns a time between nothing and d.
func random(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}

// takeAndUse asks for a lock and does something with it if it is granted. Errors are
// answers like any other here: the oracles judge them.
func (c *C) takeAndUse(p *client, t traffic, rng *rand.Rand) {
	name := c.Name(fmt.Sprint("n", rng.IntN(t.names)))
	opts := []distlock.Option{distlock.TTL(t.ttl)}
	if t.aimed || rng.IntN(3) > 0 {
		opts = append(opts, distlock.NoRenewal())
	}
	var a answer
	switch rng.IntN(4) {
	case 0:
		a = p.lock(name, random(rng, 2*t.ttl)+time.Millisecond, opts...)
	default:
		a = p.try(name, opts...)
	}
	if a.err != nil {
		c.sleep(random(rng, 4*c.phase()))
		return
	}
	extend := func() {
		ctx, cancel := context.WithTimeout(c.ctx, patience)
		defer cancel()
		_ = a.lease.Extend(ctx, t.ttl)
	}
	switch {
	case t.aimed && rng.IntN(3) == 0:
		end := a.lease.Ends()
		c.sleepUntil(end - 6*time.Millisecond + random(rng, 8*time.Millisecond))
		if rng.IntN(2) == 0 {
			extend()
			c.sleep(random(rng, 10*time.Millisecond))
		}
	case rng.IntN(12) == 0: // a forgotten lock: its late Unlock must be harmless
		c.sleep(t.ttl + random(rng, t.ttl/2))
	default:
		c.sleep(random(rng, 2*c.phase()))
		if rng.IntN(4) == 0 {
			extend()
		}
	}
	_ = a.unlock()
}

func stressRandom(c *C) { c.drive(traffic{ttl: c.short(), names: 3}) }

func stressBoundary(c *C) { c.drive(traffic{ttl: c.short(), names: 2, aimed: true}) }

func stressSequence(c *C) {
	peers := []*client{c.open("A"), c.open("B"), c.open("C")}
	rng := c.Rand()
	t := traffic{ttl: c.short(), names: 2}
	var open []*lease
	began := c.now()
	for step := 0; step < 150 && (c.Virtual() || c.now()-began < 3*time.Second+t.ttl); step++ {
		name := c.Name(fmt.Sprint("n", rng.IntN(t.names)))
		switch action := rng.IntN(6); {
		case action < 2 || len(open) == 0:
			a := peers[rng.IntN(len(peers))].try(name, distlock.TTL(t.ttl), distlock.NoRenewal())
			if a.err == nil {
				open = append(open, a.lease)
			}
		case action == 2:
			ctx, cancel := context.WithTimeout(c.ctx, patience)
			_ = open[rng.IntN(len(open))].Extend(ctx, t.ttl)
			cancel()
		case action == 3:
			i := rng.IntN(len(open))
			_ = open[i].unlock()
			if rng.IntN(4) > 0 { // one in four is kept, to be unlocked or extended again
				open = append(open[:i], open[i+1:]...)
			}
		default:
			c.sleep(random(rng, t.ttl/2))
		}
	}
}

func stressPool(c *C) {
	waiters := 50
	if c.harness.Caps().Push != Yes && c.cal.Pair > 0 {
		// So many that ask all the time are answered in a quarter of the slack, and in half of what an Unlock waits for (H6).
		waiters = min(waiters, max(2, 2*int(min(c.Slack()/4, 2500*time.Millisecond)/c.cal.Pair)))
	}
	a, b := c.open("A"), c.openMortal("B")
	ttl := distlock.TTL(c.long())
	own := b.mustTry(c.Name("own"), "which is fresh", ttl)
	held := make([]*lease, waiters)
	for i := range held {
		held[i] = a.mustTry(c.Name(fmt.Sprint("n", i)), "which is fresh", ttl)
	}
	var queue []*pending
	var conns [2]int // with half of the waiters, and with all
	for i := range conns {
		for few := range slices.Chunk(held[i*waiters/2:][:waiters/2], 5) { // a pool may grow to as many as ask at once
			queue = append(queue, b.crowd(few, ttl)...)
		}
		c.sleep(quiet) // until they wait, and no longer ask
		conns[i] = b.connections()
	}
	allowed := conns[0]
	if c.harness.Caps().Push != Yes {
		allowed = max(allowed, waiters) // they all may ask at once, again and again
	}
	if conns[1] > allowed+12 {
		c.Failf("B had %d connections while %d goroutines waited for a name each, and %d with %d: a waiter must not keep one", conns[0], waiters/2, conns[1], waiters)
	}
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"extend a lock it holds", func() { own.mustExtend(c.long()) }},
		{"unlock it", own.free},
		{"take another name", func() { c.under("A3", func() { b.mustTry(c.Name("other"), "which is fresh", ttl).free() }) }},
	} {
		began := c.now()
		step.do()
		if took := c.now() - began; c.tooLong(began, began+took, c.Slack()) {
			c.Failf("while %d goroutines of B waited for other names, it took B %v to %s (allowed: %v); do waiters keep pooled connections?",
				waiters, took, step.what, c.Slack())
		}
	}
	for i, h := range held {
		h.free()
		queue[i].lease(c.soon(), fmt.Sprintf("A had unlocked it; B waited for it and for %d other names", waiters-1)).free()
	}
}

// crowd has p wait for each of some locks, and returns when all do.
func (p *client) crowd(held []*lease, opts ...distlock.Option) (queue []*pending) {
	for _, h := range held {
		queue = append(queue, p.begin(h.Name(), opts...))
	}
	for _, h := range held {
		if !p.c.awaitQueued(h.Name(), 1) { // nothing shows it, and time has passed instead
			break
		}
	}
	return queue
}

// connections counts those of p, if it has a link.
func (p *client) connections() int {
	if p.link == nil {
		return 0
	}
	return p.link.Connections()
}

func stressHerd(c *C) {
	few := c.handOffs(3, 12)
	began := c.now()
	many := c.handOffs(20, 2)
	took := c.now() - began
	c.Logf("%.1f requests per hand-off among 3 waiting clients, %.1f among 20", few, many)
	// What a hand-off costs depends on the driver and its protocol, and how long it
	// takes on the machine; so the few are the measure for the many. A herd sends at
	// least one request of each client: several times as many.
	allowed := 2*few + 2
	if many > allowed && took > c.long()/3 {
		c.Inconclusivef("the hand-offs took %v: by a third of the TTL of %v, all who wait have looked by themselves, and %.1f requests a hand-off say nothing",
			took, c.long(), many)
	}
	if many > allowed {
		c.Failf("a hand-off among 3 waiting clients took %.1f requests, and among 20 it took %.1f, %.1f are allowed: a release wakes more than the next",
			few, many, allowed)
	}
}

// handOffs has a name go round among clients with some waiting goroutines each, and
// returns how many requests a hand-off took.
func (c *C) handOffs(clients, each int) float64 {
	name, ttl := c.Name(fmt.Sprint("n", clients)), distlock.TTL(c.long())
	h := c.open(fmt.Sprint("A", clients)).mustTry(name, "which is fresh", ttl)
	var peers []*client
	var queue []*pending
	for i := range clients {
		p := c.openVia(fmt.Sprintf("W%d-%d", clients, i+1))
		if c.Virtual() {
			p.link.Delay(virtualLatency, virtualLatency)
		}
		peers = append(peers, p)
	}
	for range each {
		for _, p := range peers {
			queue = append(queue, p.begin(name, ttl))
		}
	}
	c.awaitQueued(name, clients)
	requests := func() (n int) {
		for _, p := range peers {
			n += p.link.Requests()
		}
		return n
	}
	before := c.awaitSilence(requests)
	h.free()
	c.together(len(queue), func(i int, _ *rand.Rand) {
		h := queue[i].lease(c.soon()*time.Duration(len(queue)), fmt.Sprintf("A had unlocked it, with %d others waiting", len(queue)-1))
		c.sleep(min(2*c.phase(), quiet)) // time to look for all those woken in vain
		h.free()
	})
	return float64(requests()-before) / float64(len(queue))
}
