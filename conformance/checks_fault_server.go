package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// serverFaultChecks disturb the server itself. They run alone.
func serverFaultChecks() []Check {
	return []Check{
		{ID: "fault/paused-server-short", Clause: "H5", Needs: []Cap{capProcess}, Alone: true, Run: pausedServerShort,
			Rule: "a lock survives a server that hangs for a part of its TTL"},
		{ID: "fault/paused-server-long", Clause: "H4", Needs: []Cap{capProcess}, Alone: true, Run: pausedServerLong,
			Rule: "a holder whose server hangs for longer than its TTL learns of the loss meanwhile, and the name is to be had afterwards"},
		{ID: "fault/killed-server", Clause: "H1", Needs: []Cap{capProcess}, Alone: true, Run: killedServer,
			Rule: "a server that was killed and restarted still has its locks, if the driver declares so, and serves again in any case"},
		{ID: "fault/long-outage", Clause: "H6", Needs: []Cap{capProxy}, Alone: true, Run: longOutage,
			Rule: "after an outage longer than a TTL and the lag, every name that was given up meanwhile, by Unlock, a loss, a cancelled wait or Close, is free within a TTL and the lag, and no entry is left"},
		{ID: "fault/failover", Clause: "H1", Needs: []Cap{capFailover}, Alone: true, Run: failover,
			Rule: "a failover to a server that the latest writes have not reached loses no lock, if the driver declares so, and lets no token fall in any case"},
	}
}

// process returns that of the harness, for checks that name it in Needs.
func (c *C) process() Process { p, _ := c.harness.(Process); return p }

// serverPaused runs f while the server hangs, and goes on when it answers again. It returns for how long it may have hung
// besides: to stop a container, and to let it go on, takes the engine a while.
func (c *C) serverPaused(f func()) (besides time.Duration) {
	began, hung := c.now(), time.Duration(0)
	c.without(4*patience, "pause", c.process().Pause, "resume", c.process().Resume, func() {
		paused := c.now()
		f()
		hung = c.now() - paused
	})
	return c.now() - began - hung
}

// without runs f between two requests to the server's process, all within limit. The second comes also if f ends the check.
func (c *C) without(limit time.Duration, stopping string, stop func(context.Context) error, starting string, start func(context.Context) error, f func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), limit)
	defer cancel()
	if err := stop(ctx); err != nil {
		c.Inconclusivef("the harness could not %s the server: %v", stopping, err)
	}
	started := false
	defer func() {
		if !started {
			_ = start(ctx)
		}
	}()
	f()
	started = true
	if err := start(ctx); err != nil {
		c.Inconclusivef("the harness could not %s the server: %v", starting, err)
	}
}

func pausedServerShort(c *C) {
	a, b := c.open("A"), c.open("B")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh")
	for range 3 {
		c.sleep(c.Unit() / 3)
		c.noteStall(c.serverPaused(func() { c.sleep(c.Unit() / 4) }))
		b.timeStore()
		c.mustLive(h, "the server having hung for a quarter of its TTL")
		b.mustBeBusy(name, h)
	}
	c.sleep(c.Unit())
	c.mustLive(h, "after the server had recovered")
	h.free()
	c.warm(b)
}

func pausedServerLong(c *C) {
	a, b := c.open("A"), c.open("B")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh")
	w := b.begin(name)
	c.awaitQueued(name, 1)
	granted := h.granted()
	c.serverPaused(func() {
		paused := c.now()
		c.sleep(granted + c.Unit())
		if err := h.Err(); !errors.Is(err, distlock.ErrLost) {
			c.Failf("the server has not answered since %s, and at %s A's Err is %s; it had to be ErrLost from %s on, when the last lease ended",
				millis(paused), millis(c.now()), describe(err), millis(paused+granted))
		}
		if !c.within(h.done, c.Slack()) {
			c.Failf("the server has not answered since %s, A's Err is set, but its Done is not closed by %s", millis(paused), millis(c.now()))
		}
	})
	bound := granted + c.timing.ExpiryLag + c.soon() + patience
	if !w.within(bound) {
		c.Failf("the server answers again, and B, which waited for %q all the time, has not got it within %v", name, bound)
	}
	if w.a.err == nil {
		_ = w.a.unlock()
	} else { // a waiter is told if its session or lease has ended
		c.Logf("the waiter was told: %v", w.a.err)
	}
	_ = c.pollFor(b, name, bound, "the server answered again, A having lost it").unlock()
	c.warm(a)
}

func killedServer(c *C) {
	durable := c.harness.Caps().Durable == Yes
	if !durable {
		c.unjudged("the server forgets its locks in a crash, as the driver declares")
	}
	a, b := c.open("A"), c.open("B")
	name := c.Name("x")
	before := a.mustTry(c.Name("free"), "which is fresh")
	before.free()
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	c.without(4*patience, "kill", c.process().Kill, "restart", c.process().Restart, func() {})
	back := c.now()
	if durable {
		var got answer
		// Until B has new connections, its calls may fail; but none may succeed.
		if !c.eventually(patience, func() bool { got = b.try(name); return got.err == nil || got.busy() }) {
			c.Failf("the server is back since %s, but B cannot ask it for %q: %v", millis(back), name, got.err)
		}
		if got.err == nil {
			c.intruded(got, h, h.end(), "the server was killed and restarted")
		}
	}
	bound := 2*h.granted() + c.timing.ExpiryLag + c.soon() + patience
	after := c.pollFor(b, before.Name(), bound, "the server was killed and restarted")
	after.free()
	_ = h.unlock() // nil or ErrLost
	var next *lease
	c.under("H6", func() {
		next = c.pollFor(b, name, bound, "A had unlocked it, the server having been killed and restarted before")
	})
	c.under("F1", func() {
		held, free := h.Token(), before.Token()
		c.rises(&held, next, "the restart")
		c.rises(&free, after, "the restart")
	})
	_ = next.unlock()
	c.warm(a)
}

// outage runs f while no client can reach the store. The server is killed and restarted
// where the harness can do that. Elsewhere the links of the clients are cut.
func (c *C) outage(clients []*client, f func()) {
	if _, ok := can[Process](c, capProcess); !ok {
		for _, p := range clients {
			p.cutOff()
		}
		f()
		for _, p := range clients {
			p.revive()
		}
		return
	}
	c.without(8*patience, "kill", c.process().Kill, "restart", c.process().Restart, f)
}

// longOutage is long enough for every release to be given up. What was not released may
// not live on because its client comes back, or because the server knows nothing of the
// time that it was away.
func longOutage(c *C) {
	a, b, d := c.openVia("A"), c.openVia("B"), c.openVia("D")
	unlocked, lost := a.mustTry(c.Name("unlocked"), "which is fresh"), a.mustTry(c.Name("lost"), "which is fresh")
	waited, closed := a.mustTry(c.Name("waited"), "which is fresh"), d.mustTry(c.Name("closed"), "which is fresh")
	w := b.begin(waited.Name())
	c.awaitQueued(waited.Name(), 1)
	given := unlocked.granted() + c.timing.ExpiryLag
	closing := make(chan struct{})
	c.outage([]*client{a, b, d}, func() {
		down := c.now()
		c.Go(func() { defer close(closing); _ = d.close() }) // it says what it could not release
		ctx, cancel := context.WithTimeout(c.ctx, c.Unit()/4)
		defer cancel()
		if err := unlocked.Unlock(ctx); err == nil {
			c.Inconclusivef("the server is away since %s, but A has unlocked %q", millis(down), unlocked.Name())
		}
		w.cancel()
		if !w.within(patience) {
			c.Failf("the call of B for %q was cancelled at %s, the server being away, and has not returned within %v", w.name, millis(down), patience)
		}
		c.sleepUntil(down + given + c.Unit())
		_, _ = lost.unlock(), waited.unlock() // they are lost, and released in the background
	})
	back := c.now()
	e := c.open("E")
	bound := given + c.soon() + patience
	for _, h := range []*lease{unlocked, lost, waited, closed} {
		c.pollFor(e, h.Name(), max(back+bound-c.now(), 0), fmt.Sprintf("the server was away for longer than a TTL and the lag, %v, and is back since %s; %s had given the name up", given, millis(back), h.p.who)).free()
		c.records(h.Name(), fmt.Sprintf("after everybody has given it up, the last of them %s, with the server in order", e.who), 0)
	}
	c.within(closing, patience)
	c.warm(a)
}

// failover grants a lock that the next primary never hears of. A driver that does
// not claim to survive this is not accused of a second holder, and does not pass
// for want of one: the outcome says what was seen, as the limit that it declares.
func failover(c *C) {
	f, _ := c.harness.(Failover)
	survives := c.harness.Caps().Quorum == Yes
	if !survives {
		c.unjudged("locks may be lost in a failover, as the driver declares")
	}
	a, b := c.open("A"), c.open("B")
	name := c.Name("x")
	c.warm(a)
	c.warm(b)
	ctx, cancel := context.WithTimeout(c.ctx, 4*patience)
	defer cancel()
	if err := f.Lag(ctx); err != nil {
		c.Inconclusivef("the harness could not cut the replica off: %v", err)
	}
	first := a.try(name, distlock.TTL(c.long()))
	if err := f.Failover(ctx); err != nil {
		c.Inconclusivef("the harness could not fail the store over: %v", err)
	}
	back := c.now()
	if first.err != nil { // a store that waits for its replicas may answer nobody now
		c.Logf("without the replica the store granted nothing: %v", first.err)
		c.pollFor(b, name, c.Unit()+c.timing.CleanupBound+c.soon()+patience, "the call of A for it had failed, and the store had failed over").free()
		return
	}
	h := first.lease
	var got answer
	if !c.eventually(patience, func() bool { got = b.try(name); return got.err == nil || got.busy() }) {
		c.Failf("a replica answers since %s, but B cannot ask it for %q: %v", millis(back), name, got.err)
	}
	seen := fmt.Sprintf("B was refused %q, which A held", name)
	next := got.lease
	switch {
	case got.err == nil && survives:
		c.intruded(got, h, h.end(), "the store failed over to a replica that the grant had not reached")
	case got.err == nil:
		seen = fmt.Sprintf("B was granted %q at %s although A held it until %s: the name had two holders at once",
			name, millis(got.ret), millis(h.end()))
	}
	_ = h.unlock() // nil or ErrLost
	if next == nil {
		c.under("H6", func() {
			next = c.pollFor(b, name, h.granted()+c.timing.ExpiryLag+c.soon(), "A had unlocked it, the store having failed over before")
		})
	}
	if next.Token() <= h.Token() {
		c.breach("F1", "the token fell over the failover, from %d to %d", h.Token(), next.Token())
	}
	_ = next.unlock()
	c.warm(a)
	if !survives {
		c.Skipf("the driver does not declare that its locks survive a failover; here: %s. Tokens have risen, from %d to %d",
			seen, h.Token(), next.Token())
	}
}
