package mutants

import (
	"context"
	"io"
	"time"

	"github.com/distlock-go/distlock"
)

// flaw replaces decisions of a driver; what is nil stays right.
type flaw struct {
	caps    func(*distlock.Capabilities)
	request func(e *env, r *distlock.Request)
	try     func(ctx context.Context, c *claim) (distlock.Grant, error)
	wait    func(ctx context.Context, c *claim) error
	renew   func(ctx context.Context, c *claim, ttl time.Duration) (distlock.Grant, error)
	release func(ctx context.Context, c *claim) error
	status  func(e *env, st *distlock.Status)
	wrap    func(h *distlock.Handle, c *claim) distlock.Lock
	close   func(e *env) error // instead of closing what lies below
}

// inside returns a driver whose flaw is within single requests: each method of its
// claims is one, and the link lies before it.
func (e *env) inside(f flaw) distlock.Driver { return e.link.Driver(&driver{e, e.mem, f}) }

// outside returns a driver whose flaw is in how it uses requests: each method of the
// claims below it is one.
func (e *env) outside(f flaw) distlock.Driver {
	return &driver{e, e.link.Driver(e.mem).(store), f}
}

// driver is memlock's with a flaw.
type driver struct {
	*env
	inner store
	flaw
}

// claim is a claim of such a driver. Its fields are used by one call at a time.
type claim struct {
	inner  distlock.Claim
	driver *driver
	asked  distlock.Request // with the name as it is stored
	began  time.Time        // of the first Try
	won    bool             // a Try has returned a grant
	token  int64            // of that grant

	bell chan struct{} // one element, so that who rings never blocks; for a driver with its own queue

	// Guarded by the world, where the driver keeps its own queue.
	seen time.Time // the last Try
	deaf bool      // what it watches is gone
}

// Capabilities implements distlock.Driver.
func (d *driver) Capabilities() distlock.Capabilities {
	caps := d.inner.Capabilities()
	if d.flaw.caps != nil {
		d.flaw.caps(&caps)
	}
	return caps
}

// Claim implements distlock.Driver.
func (d *driver) Claim(r distlock.Request) distlock.Claim {
	if d.encode != nil {
		r.Name = d.encode(r.Name)
	}
	asked := r
	if d.request != nil {
		d.request(d.env, &r)
	}
	return &claim{inner: d.inner.Claim(r), driver: d, asked: asked, bell: make(chan struct{}, 1)}
}

// Try implements distlock.Claim.
func (c *claim) Try(ctx context.Context) (g distlock.Grant, err error) {
	if c.began.IsZero() {
		c.began = time.Now()
	}
	if c.driver.try != nil {
		g, err = c.driver.try(ctx, c)
	} else {
		g, err = c.inner.Try(ctx)
	}
	if err == nil {
		c.won, c.token = true, g.Token
	}
	return g, err
}

// Wait implements distlock.Claim.
func (c *claim) Wait(ctx context.Context) error {
	if c.driver.wait != nil {
		return c.driver.wait(ctx, c)
	}
	return c.inner.Wait(ctx)
}

// Renew implements distlock.Claim.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (distlock.Grant, error) {
	if c.driver.renew != nil {
		return c.driver.renew(ctx, c, ttl)
	}
	return c.inner.Renew(ctx, ttl)
}

// Release implements distlock.Claim.
func (c *claim) Release(ctx context.Context) error {
	if c.driver.release != nil {
		return c.driver.release(ctx, c)
	}
	return c.inner.Release(ctx)
}

// as returns a claim on the same name, straight in the store, with a request that
// differs from this one's.
func (c *claim) as(change func(*distlock.Request)) distlock.Claim {
	r := c.asked
	change(&r)
	return c.driver.mem.Claim(r)
}

// reset makes the entry that c holds last for ttl from now, which may be shorter
// than it would: memlock grants a claim its own entry with a full TTL again.
func (c *claim) reset(ctx context.Context, ttl time.Duration) error {
	_, err := c.as(func(r *distlock.Request) { r.TTL = max(ttl, 1) }).Try(ctx)
	return err
}

// send makes a request of f, which may be called late, by another goroutine.
func (d *driver) send(ctx context.Context, f func(ctx context.Context) error) error {
	var err error
	lost := d.link.Do(ctx,
		func() { err = f(ctx) },
		func() { _ = f(context.WithoutCancel(ctx)) })
	if lost != nil {
		return lost
	}
	return err
}

// Inspect implements distlock.Inspector.
func (d *driver) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	stored := name
	if d.encode != nil {
		stored = d.encode(name)
	}
	st, err := d.inner.Inspect(ctx, stored)
	st.Name = name
	if d.status != nil {
		d.status(d.env, &st)
	}
	return st, err
}

// List implements distlock.Inspector.
func (d *driver) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return d.inner.List(ctx, prefix)
}

// Break implements distlock.Breaker.
func (d *driver) Break(ctx context.Context, name string) error {
	if d.encode != nil {
		name = d.encode(name)
	}
	return d.inner.Break(ctx, name)
}

// WrapLock implements distlock.LockWrapper.
func (d *driver) WrapLock(h *distlock.Handle, c distlock.Claim) distlock.Lock {
	if d.wrap != nil {
		return d.wrap(h, c.(*claim))
	}
	return h
}

// Close implements io.Closer.
func (d *driver) Close() error {
	if d.flaw.close != nil {
		return d.flaw.close(d.env)
	}
	if c, ok := d.inner.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// plain makes a driver of the kind that most tutorials end with: one entry per name,
// nobody queues, and who waits asks again and again.
func plain(f flaw) flaw {
	caps, request := f.caps, f.request
	f.caps = func(c *distlock.Capabilities) {
		c.Fair, c.Push = false, false
		if caps != nil {
			caps(c)
		}
	}
	f.request = func(e *env, r *distlock.Request) {
		r.NoWait = true
		if request != nil {
			request(e, r)
		}
	}
	if f.wait == nil {
		f.wait = func(ctx context.Context, _ *claim) error {
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return f
}

// inside and outside make the design of a flaw.
func inside(f flaw) design {
	return design{driver: func(e *env) distlock.Driver { return e.inside(f) }}
}

func outside(f flaw) design {
	return design{driver: func(e *env) distlock.Driver { return e.outside(f) }}
}
