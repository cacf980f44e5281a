package conformance

import (
	"context"
	"runtime"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

const (
	// promptly is what a call may take after the end of its context (A4).
	promptly = 50 * time.Millisecond

	// closing is what Close may take if the store does not answer (C1): ten seconds,
	// and two for the connections.
	closing = 12 * time.Second
)

// bounded calls f, which calls the client under ctx. A driver may ignore its context,
// and so keep its caller for ever: the check fails then, and leaves the call behind.
func (p *client) bounded(ctx context.Context, op, name string, f func()) {
	if p.detached(f, ctx.Done(), promptly+p.c.Slack()) {
		return
	}
	p.c.breach("A4", "%s called %s(%q), and %v after the end of its context, at %s, the call has not returned; %v are allowed: the driver ignores the end of a context",
		p.who, op, name, promptly+p.c.Slack(), millis(p.c.now()), promptly)
}

// patiently is the context of a call that should take a round trip.
func (c *C) patiently() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, patience+c.Slack())
}

// close closes the client. What it holds may be released one after the other.
func (p *client) close() (err error) {
	now := make(chan struct{})
	close(now)
	bound := closing + p.c.Slack() + time.Duration(p.holds.Load())*p.c.cal.Pair
	if !p.detached(func() { err = p.locker.Close() }, now, bound) {
		p.c.breach("C1", "%s called Close, which has not returned within %v: the driver may ignore the end of a context", p.who, bound)
	}
	return err
}

// mustClose is close, which must not fail while the server is in order.
func (p *client) mustClose() {
	if err := p.close(); err != nil {
		p.c.Failf("%s closed its client, the server being in order: %v", p.who, err)
	}
}

// detached calls f in a goroutine of its own. It leaves that behind if f has not
// returned for as long as grace after the close of until.
func (p *client) detached(f func(), until <-chan struct{}, grace time.Duration) (returned bool) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		p.c.contain(func() { f(); returned = true })
	}()
	select {
	case <-over:
	case <-until:
		if !p.c.awaits(over, nil, grace) {
			return false
		}
	}
	if !returned { // f has panicked, and so decided the check
		runtime.Goexit()
	}
	return true
}

// call calls Lock or TryLock and records it.
func (p *client) call(ctx context.Context, op oracle.Op, name string, opts []distlock.Option) (h *oracle.Hold, err error) {
	p.bounded(ctx, string(op), name, func() { h, err = p.c.recorder.Acquire(ctx, op, p.who, p.locker, name, opts...) })
	return h, err
}

// Extend calls Extend and records it.
func (h *lease) Extend(ctx context.Context, ttl time.Duration) (err error) {
	h.p.bounded(ctx, "Extend", h.Name(), func() { err = h.Hold.Extend(ctx, ttl) })
	return err
}

// Unlock calls Unlock and records it.
func (h *lease) Unlock(ctx context.Context) (err error) {
	h.p.bounded(ctx, "Unlock", h.Name(), func() { err = h.Hold.Unlock(ctx) })
	if h.unlocked.CompareAndSwap(false, true) {
		h.p.holds.Add(-1)
	}
	return err
}

func (p *client) inspect(ctx context.Context, name string) (st distlock.Status, err error) {
	p.bounded(ctx, "Inspect", name, func() { st, err = distlock.Inspect(ctx, p.locker, name) })
	return st, err
}

func (p *client) listed(ctx context.Context, prefix string) (all []distlock.Status, err error) {
	p.bounded(ctx, "List", prefix, func() { all, err = distlock.List(ctx, p.locker, prefix) })
	return all, err
}

func (p *client) breakHold(ctx context.Context, name string, token int64) (err error) {
	p.bounded(ctx, "Break", name, func() { err = distlock.Break(ctx, p.locker, name, token) })
	return err
}

func (p *client) sweepIdle(ctx context.Context, idle time.Duration) (n int, err error) {
	p.bounded(ctx, "Sweep", idle.String(), func() { n, err = distlock.Sweep(ctx, p.locker, idle) })
	return n, err
}
