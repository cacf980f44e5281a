package conformance

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// plainChecks take and use locks as programs do: with a name and nothing else, and from
// several goroutines.
func plainChecks() []Check {
	return []Check{
		{ID: "core/no-options", Clause: "E2", Mandatory: true, Run: noOptions,
			Rule: "a call without options gives a lock with a TTL of the Locker's own, which is kept like one that was asked for"},
		{ID: "renew/at-once", Clause: "H5", Mandatory: true, Run: callsAtOnce,
			Rule: "calls on one lock at the same time do what each would do alone: every Extend extends, and no Unlock returns nil before the name is free"},
	}
}

// noOptions judges by Deadline: only that tells which TTL the Locker has chosen.
func noOptions(c *C) {
	c.unjudged("the model has to know the TTL of a lock, and nobody has named one")
	a, b := c.openMortal("A"), c.open("B")
	for _, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
		name := c.Name(string(op))
		call := c.now()
		h, err := a.plainly(op, name)
		if err != nil {
			c.unheard(err, a.who, name)
			c.Failf("%s(%q) without an option, of a name which is fresh, returned: %v", op, name, err)
		}
		ttl := h.Ends() - call
		if now := c.now(); now > call+ttl/2 {
			c.Inconclusivef("the answer took %v of a lease that ends %v after the call", now-call, ttl)
		}
		if err := h.Err(); err != nil || ttl > distlock.MaxTTL+c.timing.TTLGranularity {
			c.Failf("%s(%q) without an option gave a lock that ends after %v; its Err returned: %v", op, name, ttl, err)
		}
		if _, err := b.plainly(oracle.OpTry, name); !(answer{err: err}).busy() {
			c.Failf("B tried for %q without an option, which A holds; the answer must match ErrHeld, it was %s", name, describe(err))
		}
		if c.Virtual() && ttl < day && a.cutOff() {
			c.endsByDeadline(b, name, h.Ends(), ttl)
			a.revive()
		} else if err := h.Unlock(c.ctx); err != nil {
			c.unheard(err, a.who, name)
			c.Failf("A held %q and unlocked it, but Unlock returned: %v", name, err)
		}
	}
}

// endsByDeadline demands that b gets a name after the Deadline of its holder, which has
// died, and before twice the time that this has promised.
func (c *C) endsByDeadline(b *client, name string, deadline, ttl time.Duration) {
	if next := c.pollFor(b, name, 2*ttl+c.timing.ExpiryLag+c.soon(), "its holder, which had named no TTL, has died"); next.ret < deadline {
		c.Failf("B was granted %q at %s; its holder had named no TTL, and its Deadline was at %s", name, millis(next.ret), millis(deadline))
	}
}

// plainly calls Lock or TryLock with no option, and a context without a deadline.
func (p *client) plainly(op oracle.Op, name string) (h *oracle.Hold, err error) {
	ctx, cancel := context.WithCancel(p.c.ctx)
	defer cancel()
	return p.call(ctx, op, name, nil)
}

// callsAtOnce delays requests where it can, so that the calls meet.
func callsAtOnce(c *C) {
	const callers = 4
	a, b := c.openMortal("A"), c.open("B")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	if a.link != nil {
		a.link.Delay(quiet, 0)
	}
	c.together(callers, func(int, *rand.Rand) {
		if err := h.Extend(c.ctx, c.long()); err != nil {
			if c.now() > h.call+c.long()/2 {
				c.Inconclusivef("by %s, when Extend returned, the lease of A may have ended: %v", millis(c.now()), err)
			}
			c.unheard(err, a.who, name)
			c.Failf("A holds %q and extends it in several goroutines; one of the calls returned: %v", name, err)
		}
	})
	var asked atomic.Bool // not a sync.Once: virtual time would stand still while others wait for it
	c.together(callers, func(int, *rand.Rand) {
		if err := h.unlock(); err != nil {
			c.unheard(err, a.who, name)
			c.Failf("A held %q and unlocked it in several goroutines; one of the calls returned: %v", name, err)
		}
		if asked.Swap(true) {
			return
		}
		if got := b.try(name); got.busy() {
			c.breach("H6", "A unlocked %q in several goroutines, and one of the calls had returned nil at %s, but B was told that the name is held", name, millis(got.call))
		}
	})
}

// mustTick demands that the Deadline lies on the monotonic clock. In virtual time there is
// none.
func (h *lease) mustTick(when string) {
	if d := h.Deadline(); !monotonic(d) && monotonic(time.Now()) {
		h.p.c.breach("H3", "the Deadline of %q %s is %v, without a reading of the monotonic clock: it moves when the machine's clock is set", h.Name(), when, d)
	}
}

func monotonic(t time.Time) bool { return t != t.Round(0) }
