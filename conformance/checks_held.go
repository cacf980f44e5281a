package conformance

import (
	"context"
	"errors"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
	"github.com/distlock-go/distlock/driver"
)

// heldChecks look at what a refusal says besides "held".
func heldChecks() []Check {
	return []Check{
		{ID: "held/woken", Clause: "W1", Needs: []Cap{capPush}, Run: heldWoken,
			Rule: "a driver with notifications says to a waiter that it will be woken, as long as the store is in order"},
	}
}

// heldError returns what an ErrHeld says.
func (a answer) heldError(p *client, name string) *distlock.HeldError {
	held, ok := errors.AsType[*distlock.HeldError](a.err)
	if !ok {
		p.c.Failf("%s was refused %q by an error in which errors.As finds no *distlock.HeldError: %v", p.who, name, a.err)
	}
	return held
}

// mustBeTold has p refused a name that h holds, and compares what that says. A driver
// need not know text and token, nor the rest of the lease. While somebody waits for the
// name, the rest may be that of a waiter's place, which is less.
func (p *client) mustBeTold(h *lease, text, when string, waited bool) {
	c, until, deadline := p.c, h.end(), h.Ends()
	a := p.try(h.Name())
	switch {
	case a.err == nil:
		c.intruded(a, h, until, "")
	case !a.busy():
		c.refused(p, a, h.Name(), "which is held")
	}
	held := a.heldError(p, h.Name())
	wrong := func(what string, args ...any) {
		c.mustLive(h, when) // else another may have it by now
		c.Failf("%s holds %q as %q with token %d, %s; %s was refused it at %s and told that "+what+". The whole answer: %+v",
			append(append([]any{h.p.who, h.Name(), text, h.Token(), when, p.who, millis(a.ret)}, args...), *held)...)
	}
	grain := c.timing.TTLGranularity + c.skew(h.asked)
	most := c.restOf(h, a.call, a.ret)
	if h.fixed && h.longest == 0 {
		most = min(most, h.gone()+c.skew(h.asked)-a.call)
	}
	switch {
	case held.Holder != "" && held.Holder != text:
		wrong("the holder is %q", held.Holder)
	case held.Token != 0 && held.Token != h.Token():
		wrong("the holder's token is %d", held.Token)
	case held.Remaining < 0 || held.Remaining > most:
		wrong("the name stays taken for %v; that can be %v at the most, rounding and lag included", held.Remaining, most)
	case held.Remaining > 0 && !waited && a.ret+held.Remaining+grain < deadline:
		wrong("the name stays taken for %v, although its holder may believe in it for %v more", held.Remaining, deadline-a.ret)
	}
}

// noWake reports whether a refusal says that nothing will wake the claim.
func noWake(err error) bool {
	held, ok := errors.AsType[*driver.Held](err)
	return ok && held.NoWake
}

func heldWoken(c *C) {
	a, b := c.open("A"), c.open("B")
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	h := a.mustTry(name, "which is fresh", ttl)
	// The first attempts may come before there is a subscription.
	ask := func() bool {
		ctx, cancel := context.WithTimeout(c.ctx, c.Unit()/8)
		defer cancel()
		got := b.acquire(ctx, oracle.OpLock, name, ttl)
		return errors.Is(got.err, distlock.ErrHeld) && !noWake(got.err)
	}
	if !c.eventually(patience, ask) {
		c.Failf("A holds %q and B waits for it again and again, but for %v each refusal says NoWake, although the driver declares Push", name, patience)
	}
	h.free()
}
