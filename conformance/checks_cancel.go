package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

func cancelChecks() []Check {
	return []Check{
		{ID: "cancel/race-with-grant", Clause: "A4", Mandatory: true, Run: cancelRacesGrant,
			Rule: "a call that is cancelled just as it is granted the name either returns the lock or gives it back"},
		{ID: "cancel/ctx-not-retained", Clause: "A2", Mandatory: true, Run: ctxNotRetained,
			Rule: "the end of the context that a lock was acquired with changes nothing once Lock has returned"},
	}
}

// giveUp cancels the call, and demands what left does.
func (w *pending) giveUp() {
	cancelled := w.c.now()
	w.cancel()
	w.left(cancelled)
}

// left demands that a cancelled call has returned in time, and with the right
// error unless it was granted.
func (w *pending) left(cancelled time.Duration) {
	c := w.c
	if !w.within(c.Slack()) {
		c.Failf("the call of %s for %q was cancelled at %s and has not returned by %s (the slack, %v)",
			w.p.who, w.name, millis(cancelled), millis(c.now()), c.Slack())
	}
	if w.a.err != nil && !errors.Is(w.a.err, context.Canceled) {
		c.unheard(w.a.err, w.p.who, w.name)
		c.Failf("the call of %s for %q was cancelled; its error does not match context.Canceled: %v", w.p.who, w.name, w.a.err)
	}
}

// abandoned takes a name that everybody has left. Not at once: what a cancelled
// call of an earlier round has in flight may still be granted, after others have
// had the name, and have to be undone.
func (c *C) abandoned(p *client, name string, opts ...distlock.Option) *lease {
	return c.pollFor(p, name, c.timing.CleanupBound+c.Slack(), "everybody had left it", opts...)
}

func cancelRacesGrant(c *C) {
	a, b, third := c.openPhased("A"), c.openPhased("B"), c.openPhased("C")
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	rng := c.Rand()
	moment := func() time.Duration { return time.Duration(rng.Int64N(int64(c.phase()))) }
	granted := 0
	for i := range c.rounds(300) {
		h := c.abandoned(a, name, ttl)
		w := b.begin(name, ttl)
		c.sleep(moment())
		early, late := moment(), moment()
		c.Go(func() { c.sleep(early); w.cancel() })
		c.sleep(late)
		h.free()
		w.left(c.now())
		if w.a.err == nil {
			granted++
			w.a.free()
			continue
		}
		freed := c.now()
		h = c.pollFor(third, name, c.timing.CleanupBound+c.Slack(),
			fmt.Sprintf("A had unlocked it and B's cancelled call had returned an error in round %d (CleanupBound plus slack; the TTL is %v: a grant was forgotten)", i+1, c.long()), ttl)
		c.bounds.observe(boundCleanup, h.ret-freed)
		h.free()
	}
	c.Logf("%d cancelled calls were granted", granted)
	c.cancelAtLook(b, third)
}

// fuse is a context that ends when it is looked at for the last of so many times: also
// between two statements, where no clock hits.
type fuse struct {
	context.Context
	cancel context.CancelFunc
	looks  atomic.Int64 // that are left
}

func (f *fuse) look() {
	if f.looks.Add(-1) <= 0 {
		f.cancel()
	}
}

// Done implements context.Context.
func (f *fuse) Done() <-chan struct{} {
	f.look()
	return f.Context.Done()
}

// Err implements context.Context.
func (f *fuse) Err() error {
	f.look()
	return f.Context.Err()
}

// cancelAtLook ends contexts at each moment at which a call looks at them, up to that at
// which it has returned.
func (c *C) cancelAtLook(p, third *client) {
	ttl := distlock.TTL(c.long())
	for _, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
		for k := range 24 {
			name := c.Name(fmt.Sprint(op, k))
			f := &fuse{}
			f.Context, f.cancel = c.patiently()
			f.looks.Store(int64(k) + 1)
			got := p.acquire(f, op, name, ttl)
			f.cancel()
			if got.err == nil {
				got.free()
				continue
			}
			c.pollFor(third, name, c.timing.CleanupBound+c.Slack(),
				fmt.Sprintf("%s of %s had failed, because its context ended when it was looked at for time number %d (CleanupBound plus slack; the TTL is %v: a grant was forgotten)", op, p.who, k+1, c.long()), ttl).free()
		}
	}
}

func ctxNotRetained(c *C) {
	a, b := c.open("A"), c.open("B")
	held := make(map[string]*lease)
	for _, op := range []oracle.Op{oracle.OpLock, oracle.OpTry} {
		name := c.Name(string(op))
		ctx, cancel := context.WithTimeout(c.ctx, patience)
		got := a.acquire(ctx, op, name)
		cancel()
		if got.err != nil {
			c.refused(a, got, name, "which is fresh")
		}
		held[name] = got.lease
	}
	for range 6 {
		c.sleep(c.Unit() / 4)
		for name, h := range held {
			c.mustLive(h, "after the context of the call that acquired it was cancelled")
			b.mustBeBusy(name, h)
		}
	}
	for _, h := range held {
		h.free()
	}
}
