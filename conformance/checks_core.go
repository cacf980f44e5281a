package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/conformance/oracle"
)

func coreChecks() []Check {
	return []Check{
		{ID: "core/acquire-release", Clause: "A1", Mandatory: true, Run: acquireRelease,
			Rule: "a free name is granted as a held lock, and after Unlock nothing of it is left"},
		{ID: "core/exclusive", Clause: "H1", Mandatory: true, Run: exclusive,
			Rule: "while a name is held, everybody else is told ErrHeld, and nothing but that"},
		{ID: "core/same-client-contends", Clause: "H2", Mandatory: true, Run: sameClientContends,
			Rule: "locks are not re-entrant: a second acquisition by the same client contends like any other"},
		{ID: "core/cross-process", Clause: "H1", Mandatory: true, Needs: []Cap{capChild}, Run: crossProcess,
			Rule: "a lock held by one process excludes all others, and is free for them once it is unlocked"},
		{ID: "core/cold-start", Clause: "A1", Mandatory: true, Run: coldStart,
			Rule: "the first locks ever taken in a store, by many clients at the same time, work like all later ones"},
		{ID: "core/error-taxonomy", Clause: "A6", Mandatory: true, Run: errorTaxonomy,
			Rule: "errors say which: held, the context's end, an argument that is not allowed"},
		{ID: "core/down-is-not-held", Clause: "A6", Mandatory: true, Needs: []Cap{capProxy}, Run: downIsNotHeld,
			Rule: "a server that does not answer is never reported as a name that is held, nor as a client that is closed"},
		{ID: "core/pre-cancelled", Clause: "A2", Mandatory: true, Run: preCancelled,
			Rule: "a context that is already done fails the call, even if the name is free, and nothing is left in the store"},
	}
}

func acquireRelease(c *C) {
	a := c.open("A")
	for i, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
		name, opts := c.Name(fmt.Sprint(i)), []distlock.Option{distlock.TTL(c.long())}
		if i == 1 {
			opts = append(opts, distlock.NoRenewal())
		}
		ctx, cancel := c.patiently()
		got := a.acquire(ctx, op, name, opts...)
		cancel() // after success this must change nothing
		if got.err != nil {
			c.refused(a, got, name, "which is fresh")
		}
		h := got.lease
		if h.Name() != name || h.Token() <= 0 {
			c.Failf("%s(%q) returned a lock with Name %q and Token %d; the name must be the one asked for, the token greater than zero", op, name, h.Name(), h.Token())
		}
		c.mustHold(h, "it has just been granted")
		h.mustTick("after the grant")
		c.records(name, "while A holds it", 1)
		h.free()
		if err := h.Err(); !errors.Is(err, distlock.ErrUnlocked) || errors.Is(err, distlock.ErrLost) {
			c.Failf("after Unlock, Err returned %s; it must match ErrUnlocked and not ErrLost", describe(err))
		}
		if !isDone(h.Done()) {
			c.Failf("after Unlock, Done of %q is not closed", name)
		}
		c.records(name, "after A has unlocked it", 0)
	}
}

// mustHold ends the check unless h says that it is held, and was not too slow to
// ask.
func (c *C) mustHold(h *lease, why string) {
	err, closed, deadline := h.Err(), isDone(h.Done()), h.Ends()
	if now := c.now(); now >= h.closing() && (err != nil || closed) {
		c.Inconclusivef("by the time its Err was read, the lease of %s had ended, at %s", h.p.who, millis(now))
	}
	switch {
	case err != nil:
		c.Failf("%s holds %q, %s, its Deadline is %s ahead, but Err returned: %v", h.p.who, h.Name(), why, deadline-c.now(), err)
	case closed:
		c.Failf("%s holds %q, %s, but Done is closed", h.p.who, h.Name(), why)
	}
}

// isDone reports whether a channel is closed.
func isDone(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// records asks the store how many entries it has of a name, if the harness can.
func (c *C) records(name, when string, want int) {
	i := c.inspector()
	if i == nil {
		return
	}
	var got int
	var err error
	ok := c.eventually(c.timing.CleanupBound+c.Slack(), func() bool {
		got, err = i.Records(c.ctx, name)
		return err == nil && got == want
	})
	if err != nil {
		c.Failf("the harness could not look at %q: %v", name, err)
	}
	if !ok {
		c.Failf("the store has %d entries of %q %s; it must have %d", got, name, when, want)
	}
}

func exclusive(c *C) {
	a, b, d := c.open("A"), c.open("B"), c.open("C")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh")
	for range 3 {
		b.mustBeBusy(name, h)
		d.mustBeBusy(name, h)
		c.sleep(c.Unit() / 6)
	}
	h.free()
}

func sameClientContends(c *C) {
	a := c.open("A")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	a.mustBeBusy(name, h)

	// All from goroutines of the same client, while the first is under way: one must win, whichever it is.
	slow := c.openPhased("S")
	other := c.Name("y")
	var answers [8]answer
	c.together(len(answers), func(i int, _ *rand.Rand) { answers[i] = slow.try(other, distlock.TTL(c.long())) })
	var winner *lease
	for _, got := range answers {
		switch {
		case got.err == nil && winner == nil:
			winner = got.lease
		case got.err == nil:
			c.intruded(got, winner, winner.end(), "")
		case !got.busy():
			c.Failf("one of 8 concurrent TryLock calls of one client on %q returned %v; those that lose must be told ErrHeld", other, got.err)
		}
	}
	w := a.begin(name, distlock.TTL(c.long()))
	c.awaitQueued(name, 1)
	if w.within(0) {
		c.Failf("A waited for the name that it holds itself, and Lock returned: %s", describe(w.a.err))
	}
	h.free()
	w.woken(c.soon(), "A had unlocked its first lock on it").free()
}

func crossProcess(c *C) {
	a, child := c.open("A"), c.spawn("child")
	name := c.Name("x")
	lock := childRequest{Op: "trylock", Name: name, TTL: c.long()}
	child.must(lock, fmt.Sprintf("was refused the fresh name %q", name))
	for range 3 {
		if got := a.try(name); got.err == nil {
			c.Failf("A was granted %q at %s although a child process holds it, for %v with renewal", name, millis(got.ret), c.long())
		} else if !got.busy() {
			c.refused(a, got, name, "which a child process holds; the answer must match ErrHeld")
		}
	}
	child.must(childRequest{Op: "unlock"}, fmt.Sprintf("held %q and unlocked it, but Unlock returned", name))
	h := a.mustTry(name, "which the child process has unlocked", distlock.TTL(c.long()))
	switch r, _, _ := child.ask(lock); {
	case r.Mute:
		c.Inconclusivef("the child process had no answer in time: %s", r.Err)
	case r.OK || !r.Held:
		c.Failf("A holds %q, but the child process was told %q and granted: %v; it must be told ErrHeld", name, r.Err, r.OK)
	}
	if c.harness.Caps().Push == Yes {
		h = c.wakesAcross(h, child)
	}
	h.free()
}

// wakesAcross has another process wait for what h holds, and then its client for what that process holds, and returns that.
func (c *C) wakesAcross(h *lease, child *process) *lease {
	name, p := h.Name(), h.p
	var got childReply
	over := make(chan struct{})
	c.Go(func() {
		defer close(over)
		got, _, _ = child.ask(childRequest{Op: "lock", Name: name, TTL: c.long(), Within: patience})
	})
	c.awaitQueued(name, 1)
	h.free()
	if !c.within(over, c.soon()) {
		c.breach("W1", "a child process waited for %q, and has not got it %v after %s unlocked it", name, c.soon(), p.who)
	}
	if !got.OK {
		c.Failf("a child process waited for %q, and when %s unlocked it, Lock returned: %s", name, p.who, got.Err)
	}
	w := p.begin(name, distlock.TTL(c.long()))
	c.awaitQueued(name, 1)
	if r, _, _ := child.ask(childRequest{Op: "unlock"}); !r.OK {
		c.Failf("the child held %q and unlocked it, but Unlock returned: %s", name, r.Err)
	}
	return w.woken(c.soon(), "the child process had unlocked it")
}

func coldStart(c *C) {
	const clients = 8
	name := c.Name("x")
	var peers [clients]*client
	for i := range peers {
		peers[i] = c.openCold(string(rune('A' + i)))
	}
	c.together(clients, func(i int, _ *rand.Rand) {
		got := peers[i].lock(name, patience+clients*c.soon(), distlock.TTL(c.long()))
		if got.err != nil {
			c.Failf("one of %d clients whose first call ever was Lock(%q) failed: %v", clients, name, got.err)
		}
		got.free()
	})
}

// openCold opens a client in a namespace with nothing in it, or, if the harness has
// none to give, an ordinary one.
func (c *C) openCold(who string) *client {
	if _, ok := can[Namespaces](c, capNamespaces); !ok {
		return c.open(who)
	}
	return c.openIn(who, "cold")
}

func errorTaxonomy(c *C) {
	a, b := c.open("A"), c.open("B")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	b.mustBeBusy(name, h)
	c.mustSayWhat(b.try(name).err, "trylock", name)

	ctx, cancel := context.WithTimeoutCause(c.ctx, c.Unit()/8, errOwnReason)
	defer cancel()
	got := b.acquire(ctx, oracle.OpLock, name)
	if !errors.Is(got.err, context.DeadlineExceeded) || errors.Is(got.err, context.Canceled) {
		c.Failf("B waited for %q until its context's deadline, and Lock returned %s; it must match context.DeadlineExceeded", name, describe(got.err))
	}
	c.mustSayWhat(got.err, "lock", name)
	if !strings.Contains(got.err.Error(), name) {
		c.Failf("the error of Lock(%q) does not name the lock: %v", name, got.err)
	}
	for _, bad := range []struct {
		what, names string
		call        func() error
	}{
		{"TryLock of an empty name", "name", func() error { return b.try("").err }},
		{"Lock of a name not UTF-8", "name", func() error { return b.lock(c.Name("\xff"), patience).err }},
		{"Lock of 513 bytes", "name", func() error { return b.lock(padded(c.Name(""), distlock.MaxName+1), patience).err }},
		{"Lock with a TTL of -1 s", "ttl", func() error { return b.lock(c.Name("y"), patience, distlock.TTL(-time.Second)).err }},
		{"TryLock with a holder not UTF-8", "holder", func() error { return b.try(c.Name("z"), distlock.Holder("\xff")).err }},
		{"Extend by -1 s", "ttl", func() error { return h.Lock.Extend(c.ctx, -time.Second) }},
		{"Extend by more than 365 days", "ttl", func() error { return h.Lock.Extend(c.ctx, distlock.MaxTTL+1) }},
		{"Inspect of an empty name", "name", func() error { _, err := b.inspect(c.ctx, ""); return err }},
		{"Break of a name not UTF-8", "name", func() error { return b.breakHold(c.ctx, c.Name("\xff"), 1) }},
		{"Break of the token -1", "token", func() error { return b.breakHold(c.ctx, name, -1) }},
	} {
		err := bad.call()
		if errors.Is(err, distlock.ErrUnsupported) {
			continue
		}
		c.mustBeInvalid(err, bad.what)
		if said := strings.ToLower(err.Error()); !strings.Contains(said, bad.names) {
			c.Failf("%s returned %q; an error that matches ErrInvalid must name the argument, which is the %s, and say what is allowed", bad.what, err, bad.names)
		}
	}
	c.mustHold(h, "only others have made mistakes")
	h.free()
}

// mustBeInvalid ends the check unless err says that an argument is not allowed.
func (c *C) mustBeInvalid(err error, what string) {
	if !errors.Is(err, distlock.ErrInvalid) || errors.Is(err, distlock.ErrHeld) {
		c.Failf("%s returned %s; it must match ErrInvalid", what, describe(err))
	}
}

// mustSayWhat demands that an error has the operation and the name that it is of, and says so once.
func (c *C) mustSayWhat(err error, op, name string) {
	outer, ok := errors.AsType[*distlock.Error](err)
	if !ok || outer.Op != op || outer.Name != name {
		c.Failf("the error of %s(%q) is no *distlock.Error with this operation and name, but: %#v: %v", op, name, outer, err)
	}
	if inner, ok := errors.AsType[*distlock.Error](outer.Err); ok && inner.Op == outer.Op && inner.Name == outer.Name {
		c.Failf("an error says twice that it is of %q with %q: %v", outer.Op, outer.Name, err)
	}
}

// padded makes s n bytes long.
func padded(s string, n int) string { return s + strings.Repeat("n", n-len(s)) }

func downIsNotHeld(c *C) {
	b := c.open("B")
	for i, f := range []struct {
		what  string
		fault func(netfault.Link)
		again bool // for as long as the call lasts
	}{
		{"dropped every byte", func(l netfault.Link) { l.Drop(true, true) }, false},
		{"closed the connection on a request", func(l netfault.Link) { l.CutAll(); l.CutRequest(1) }, false},
		{"dropped every reply", func(l netfault.Link) { l.Drop(false, true) }, false},
		{"closed every connection", func(l netfault.Link) { l.Drop(true, true); l.CutAll() }, true},
	} {
		// A client for each: what another fault has left to be undone would meet
		// this one in the place of the call.
		a := c.openVia(fmt.Sprintf("A%d", i+1))
		a.mustTry(c.Name("warm "+a.who), "which is fresh", distlock.TTL(c.long())).free()
		for j := 0; j < 2 && i%2 == 1; j++ { // what A was told before is not so any more
			h := b.mustTry(c.Name(fmt.Sprint(i, "-", j)), "which is fresh", distlock.TTL(c.long()))
			a.mustBeBusy(h.Name(), h)
			h.free()
		}
		for j, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
			// A name for each call: the first may have taken its own.
			name := c.Name(fmt.Sprint(i, "-", j))
			f.fault(a.link)
			ctx, cancel := context.WithTimeout(c.ctx, c.Unit()/4)
			stop := func() {}
			if f.again {
				stop = c.repeat(func() { f.fault(a.link) })
			}
			got := a.acquire(ctx, op, name)
			cancel()
			stop()
			if errors.Is(got.err, distlock.ErrHeld) || errors.Is(got.err, distlock.ErrLost) || errors.Is(got.err, distlock.ErrClosed) {
				c.breach("A6", "the network %s, nobody holds %q or has closed A, but %s returned: %v", f.what, name, op, got.err)
			}
		}
		a.link.Heal()
		c.pollFor(a, c.Name("after "+a.who), c.Slack()+patience, "the network worked again").free()
	}
	c.requireFired(4)
}

func preCancelled(c *C) {
	a, b := c.open("A"), c.open("B")
	for i, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
		for j, ctx := range []context.Context{done(c.ctx), late(c.ctx)} {
			name, want := c.Name(fmt.Sprint(i, "-", j)), ctx.Err()
			got := a.acquire(ctx, op, name)
			if !errors.Is(got.err, want) {
				c.Failf("%s(%q) with a context that was done returned %s; it must match %q", op, name, describe(got.err), want)
			}
			c.records(name, "after a call whose context was done from the start", 0)
			b.mustTry(name, "which a call with a done context must not have taken", distlock.TTL(c.long())).free()
		}
	}
}
