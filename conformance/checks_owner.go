package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

func ownerChecks() []Check {
	return []Check{
		{ID: "owner/stale-unlock-free", Clause: "H6", Mandatory: true, Run: staleUnlockFree,
			Rule: "Unlock and Extend of a lock that has run out return ErrLost, also if nobody has taken the name since, revive nothing, and Err and Done say so"},
		{ID: "owner/same-client-stale", Clause: "H6", Mandatory: true, Run: sameClientStale,
			Rule: "a lock belongs to one acquisition: what is left of an earlier lock of the same client cannot end a later one"},
		{ID: "owner/unlock-cancelled-ctx", Clause: "H6", Mandatory: true, Run: unlockCancelledCtx,
			Rule: "Unlock with a context that is already done returns at once and releases all the same"},
		{ID: "owner/unlock-late", Clause: "H6", Mandatory: true, Run: unlockLate,
			Rule: "Unlock just before the end of a lease frees the name there and then"},
		{ID: "owner/twin-processes", Clause: "H2", Needs: []Cap{capChild}, Run: twinProcesses,
			Rule: "processes that look alike, with the same program, environment and user, are different owners"},
	}
}

// mustBeLost unlocks a lock after the end of its lease.
func (c *C) mustBeLost(stale *lease) {
	who, name := stale.p.who, stale.Name()
	if err := stale.Err(); !errors.Is(err, distlock.ErrLost) {
		c.Failf("%s had %q until %s and was told nothing since, but at %s its Err is %s; it must match ErrLost",
			who, name, millis(stale.end()), millis(c.now()), describe(err))
	}
	for range 2 {
		if err := stale.unlock(); !errors.Is(err, distlock.ErrLost) {
			c.Failf("%s unlocked %q at %s, but its lease had ended at %s; Unlock must match ErrLost, but returned %s",
				who, name, millis(c.now()), millis(stale.end()), describe(err))
		}
	}
}

// undisturbed watches h for as long as requests that were late may take to arrive.
func (c *C) undisturbed(d *client, h *lease, why string) {
	for end := c.now() + c.timing.CleanupBound + c.Slack()/2; c.now() < end; c.sleep(20 * c.poll()) {
		a := d.try(h.Name())
		if a.err == nil {
			c.intruded(a, h, h.end(), why)
		}
	}
	d.mustBeBusy(h.Name(), h)
	c.mustHold(h, "although "+why)
}

// staleUnlockFree asks a lock whose lease has ended for all that there is, by its holder, when nobody has taken the name
// since. Its very first answer must be right, also if no timer has run.
func staleUnlockFree(c *C) {
	a, b := c.openMortal("A"), c.open("B")
	stale := a.mustTry(c.Name("x"), "which is fresh", distlock.NoRenewal())
	a.cutOff()
	c.sleepUntil(stale.Ends())
	if err := stale.Err(); !errors.Is(err, distlock.ErrLost) {
		c.breach("H4", "the Deadline of A's lock, %s, has passed; its Err must match ErrLost, it is %s", millis(stale.Ends()), describe(err))
	}
	first := stale.Done()
	if !c.within(first, 0) {
		c.breach("H4", "A's lock of %q is lost and Err says so, but the channel that Done returns afterwards is open", stale.Name())
	}
	c.sleepUntil(max(stale.gone(), stale.end()) + c.skew(stale.asked))
	a.revive()
	c.under("H5", func() { stale.mustNotRevive(c.fits(4 * c.Unit())) })
	c.mustBeLost(stale)
	if stale.Done() != first {
		c.breach("H4", "Done of A's lock returned another channel than before")
	}
	c.pollFor(b, stale.Name(), c.soon(), "the lease of A was over, and A had extended and unlocked").free()
}

func sameClientStale(c *C) {
	a, d := c.openMortal("A"), c.open("C")
	name, ttl := c.Name("x"), distlock.TTL(c.long())

	// A retry of the release, because its reply was lost, comes when the same
	// client holds the name again.
	first := a.mustTry(name, "which is fresh", ttl)
	w := a.begin(name, ttl)
	c.awaitQueued(name, 1)
	if a.link != nil {
		a.link.CutReply(1)
	}
	if err := first.unlock(); errors.Is(err, distlock.ErrLost) {
		c.Failf("A unlocked a lock that it held, and was told: %v", err)
	}
	bound := c.timing.CleanupBound + c.soon()
	if !w.within(bound) {
		c.Failf("A's second call is still waiting for %q %v after its first lock on it was unlocked", name, bound)
	}
	second := w.a.lease
	if w.a.err != nil { // the lost reply may have been one that the waiter needed
		second = c.pollFor(a, name, bound, "A had unlocked its first lock", ttl)
	}
	_ = first.unlock() // whatever it says: after/frees looks at that
	c.undisturbed(d, second, "A has unlocked an older lock of its own on the name once more")
	second.free()

	// The same with a lock that has run out.
	stale := a.mustTry(name, "which A has unlocked", distlock.TTL(c.short()), distlock.NoRenewal())
	c.sleepUntil(stale.gone())
	third := c.pollFor(a, name, c.soon(), "A's own lease was over")
	c.mustBeLost(stale)
	c.undisturbed(d, third, "A has unlocked a lock of its own on the name that had run out")
	c.sleepUntil(third.ret + c.Unit()*5/4) // it is renewed as before
	c.mustLive(third, "A having unlocked an older lock of its own on the name")
	d.mustBeBusyAfter(name, third, "A had unlocked a lock of its own on the name that had run out")
	third.free()
}

func unlockCancelledCtx(c *C) {
	a, b := c.open("A"), c.open("B")
	for i, ctx := range []context.Context{done(c.ctx), late(c.ctx)} {
		name := c.Name("x" + string(rune('0'+i)))
		h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
		call := c.now()
		err := h.Unlock(ctx)
		took := c.now() - call
		if err != nil && !errors.Is(err, ctx.Err()) {
			c.Failf("A held %q and unlocked it with a context that was done: Unlock must return nil or match %q, but returned: %v", name, ctx.Err(), err)
		}
		if c.tooLong(call, call+took, c.Slack()) {
			c.Failf("Unlock with a context that was done took %v; it must return at once (slack %v)", took, c.Slack())
		}
		c.pollFor(b, name, c.timing.CleanupBound+c.Slack(), "A had unlocked it, with a context that was done").free()
		if err := h.Err(); !errors.Is(err, distlock.ErrUnlocked) {
			c.Failf("after Unlock, Err returned %s; it must match ErrUnlocked", describe(err))
		}
	}
}

// done returns a context that has been cancelled.
func done(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	cancel()
	return ctx
}

// late returns a context with a deadline in the past.
func late(parent context.Context) context.Context {
	ctx, cancel := context.WithDeadline(parent, time.Now().Add(-time.Second))
	cancel() // the deadline has ended it already
	return ctx
}

func twinProcesses(c *C) {
	a, twins := c.open("A"), [2]*process{c.spawn("twin 1"), c.spawn("twin 2")}
	name := c.Name("x")
	try := childRequest{Op: "trylock", Name: name, TTL: c.long()}
	for round := range 20 {
		first, second := twins[round%2], twins[1-round%2]
		first.must(try, fmt.Sprintf("was refused %q, which its twin has unlocked", name))
		if r, _, _ := second.ask(try); r.OK {
			c.Failf("%s was granted %q while %s holds it: the two were taken for one owner", second.who, name, first.who)
		}
		// The handle that it has is of an earlier round, and long unlocked.
		if r, _, _ := second.ask(childRequest{Op: "unlock"}); r.Lost {
			c.Failf("%s unlocked an old lock again and was told: %s", second.who, r.Err)
		}
		if got := a.try(name); got.err == nil {
			c.Failf("A was granted %q, which %s holds, after %s had unlocked an old lock of its own", name, first.who, second.who)
		}
		first.must(childRequest{Op: "unlock"}, fmt.Sprintf("held %q and unlocked it, but Unlock returned", name))
	}
}

func unlockLate(c *C) {
	a, b := c.open("A"), c.open("B")
	moments := []time.Duration{48} // in sixty-fourths of the lease
	if c.Virtual() {
		moments = []time.Duration{56, 60, 62, 63}
	}
	for _, m := range moments {
		h := a.mustTry(c.Name(fmt.Sprint(m)), "which is fresh", distlock.NoRenewal())
		c.sleepInto(h, m)
		h.free()
		b.mustTry(h.Name(), fmt.Sprintf("which A has unlocked before the end of its lease at %s", millis(h.Ends()))).free()
	}
}
