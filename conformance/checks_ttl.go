package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

func grantedHonest(c *C) {
	b := c.open("B")
	asked := []time.Duration{c.timing.MinTTL, 1500 * time.Millisecond, 2001 * time.Millisecond, c.Unit()}
	c.together(len(asked), func(i int, _ *rand.Rand) {
		if asked[i] >= c.timing.MinTTL { // expiry/odd-ttl asks for less
			c.honest(b, c.Name(fmt.Sprint("x", i)), asked[i])
		}
	})
}

// honest asks for a lock over a slow network. The store counts the TTL from somewhere
// between request and reply, and a deadline counted from the reply is later than its
// end. B gets the name at that end.
func (c *C) honest(b *client, name string, ttl time.Duration) {
	a := c.openMortal("A")
	if a.link != nil {
		a.mustTry(c.Name("warm "+name), "which is fresh").free() // connect before the network is slow
		// Enough that the way back alone exceeds any margin for safety of a hundredth
		// of the TTL, and little enough for a driver of many requests.
		a.link.Delay(ttl/20, 0)
	}
	got := a.try(name, distlock.TTL(ttl), distlock.NoRenewal())
	switch {
	case errors.Is(got.err, distlock.ErrInvalid):
		c.Failf("a TTL of %v is refused, although MinTTL is declared as %v: %v", ttl, c.timing.MinTTL, got.err)
	case got.err != nil && ttl < c.Unit():
		return // a very short lease may have ended before the answer came
	case got.err != nil && a.link != nil:
		c.Inconclusivef("over a network with a latency of %v, a twentieth of the TTL, no lock was to be had: %v", ttl/20, got.err)
	case got.err != nil:
		c.refused(a, got, name, "which is fresh")
	}
	h := got.lease
	deadline := h.Ends()
	if deadline < h.call+ttl/2 {
		c.Failf("A asked for %v at %s and got a lock that lasts until %s, %v after the call: less than was asked for, by more than a margin for safety",
			ttl, millis(h.call), millis(deadline), deadline-h.call)
	}
	next := c.stalk("", b, name, h.call+ttl, h.ret+h.granted(), fmt.Sprintf("A having got it at %s for %v", millis(h.ret), ttl))
	switch {
	case next.ret < h.call+ttl-c.skew(ttl):
		c.Failf("A asked for %v at %s, but B was granted %q at %s: the store kept it for less than was asked for", ttl, millis(h.call), name, millis(next.ret))
	case next.ret < deadline:
		// It shows by itself where it was counted from: a holder takes a hundredth of
		// the TTL off.
		from := "it must be counted from before the request was sent"
		if counted := deadline - ttl + ttl/100; counted > (h.call+h.ret)/2 && counted < h.ret+ttl/50 {
			from += ", not from the reply"
		}
		c.breach("H3", "B was granted %q at %s, but A was told a Deadline of %s: that lies %v after the end that the store saw, and %v after A had called, with a TTL of %v; %s (call at %s, reply at %s)",
			name, millis(next.ret), millis(deadline), deadline-next.ret, deadline-h.call, ttl, from, millis(h.call), millis(h.ret))
	}
	next.free()
}

func oddTTL(c *C) {
	const century = 100 * 365 * 24 * time.Hour
	a, b := c.open("A"), c.open("B")
	for _, ttl := range []time.Duration{0, -1, -time.Hour, century, distlock.MaxTTL + 1} {
		name := c.Name("invalid " + ttl.String())
		got := a.try(name, distlock.TTL(ttl))
		if !errors.Is(got.err, distlock.ErrInvalid) {
			c.Failf("a TTL of %v was answered with %s; it is not allowed anywhere and must be refused with ErrInvalid", ttl, describe(got.err))
		}
		b.mustTry(name, "for which a TTL was refused", distlock.TTL(c.long())).free()
	}
	c.beyondMaxTTL(a, b)
	asked := []time.Duration{1, c.timing.MinTTL - 1, 999 * time.Millisecond, time.Second + 1}
	c.together(len(asked), func(i int, _ *rand.Rand) { c.honoured(b, asked[i]) })
}

// beyondMaxTTL asks for more than the store can promise, where one may ask for more.
func (c *C) beyondMaxTTL(a, b *client) {
	limit := c.timing.MaxTTL
	if limit <= 0 || limit >= distlock.MaxTTL {
		return
	}
	name, ttl := c.Name("beyond"), distlock.TTL(limit+1)
	if got := a.try(name, ttl, distlock.NoRenewal()); !errors.Is(got.err, distlock.ErrInvalid) {
		c.Failf("a fixed term of %v, beyond the MaxTTL of %v, was answered with %s; it must be refused with ErrInvalid", limit+1, limit, describe(got.err))
	}
	h := a.mustTry(name, "for which a fixed term was refused", ttl)
	if deadline := h.Ends(); deadline > h.ret+c.rounded(limit) {
		c.Failf("A asked for more than the MaxTTL of %v, and was told a Deadline %v after the grant", limit, deadline-h.ret)
	}
	h.free()
	b.mustTry(name, "which A has unlocked", distlock.TTL(c.long())).free()
}

// honoured asks for a TTL that the driver may refuse or round up, but not down.
func (c *C) honoured(b *client, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	a, name := c.openMortal("A"), c.Name("odd "+ttl.String())
	got := a.try(name, distlock.TTL(ttl), distlock.NoRenewal())
	switch {
	case errors.Is(got.err, distlock.ErrInvalid) && ttl < c.timing.MinTTL:
		return
	case errors.Is(got.err, distlock.ErrInvalid):
		c.Failf("a TTL of %v was refused, although MinTTL is declared as %v: %v", ttl, c.timing.MinTTL, got.err)
	case got.err != nil && got.slow():
		return // the lease had ended before the answer came
	case got.err != nil:
		c.unheard(got.err, "A", name)
		c.Failf("A was refused %q, which is fresh, with a TTL of %v: %v", name, ttl, got.err)
	}
	h := got.lease
	h.dies()
	next := c.stalk("", b, name, h.call+ttl, h.ret+h.granted(),
		fmt.Sprintf("A having got it at %s with a TTL of %v and died", millis(h.ret), ttl))
	if next.ret < h.call+ttl-c.skew(ttl) {
		c.Failf("A asked for %v at %s, but B was granted %q at %s: the TTL was not rounded up", ttl, millis(h.call), name, millis(next.ret))
	}
	next.free()
}

func pastDeadlineGrant(c *C) {
	a, b := c.openVia("A"), c.open("B")
	a.mustTry(c.Name("warm"), "which is fresh").free() // connect before the network is slow
	name, ttl := c.Name("x"), c.Unit()
	trip := 4*ttl + c.timing.ExpiryLag
	a.link.Delay(trip, 0)
	got := a.acquire(c.ctx, oracle.OpTry, name, distlock.NoRenewal())
	if got.err == nil {
		if deadline := got.Ends(); deadline < got.call+trip {
			c.Failf("A asked for %q with a TTL of %v over a network that takes %v for a round trip, and was given a lock whose Deadline, %s, had passed before the reply could come",
				name, ttl, trip, millis(deadline))
		}
	}
	c.requireFired(1)
	a.link.Heal()
	// If A believes in a lock, B's grant shows that it is wrong: the oracle looks.
	c.stalk("", b, name, c.now(), c.now()+c.atMost(ttl)+trip+c.timing.CleanupBound, fmt.Sprintf("A's request of %s having led to nothing that lasts", millis(got.call)))
}
