package mutants

import (
	"context"
	"io"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// flaw replaces decisions of a driver; what is nil stays right.
type flaw struct {
	caps    func(*driver.Capabilities)
	request func(e *env, r *driver.Request)
	try     func(ctx context.Context, c *claim) (driver.Grant, error)
	wait    func(ctx context.Context, c *claim) error
	renew   func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error)
	batch   func(ctx context.Context, d *flawed, batch []driver.Renewal) // of many claims, in one request
	release func(ctx context.Context, c *claim) error
	status  func(e *env, st *distlock.Status)
	inspect func(ctx context.Context, d *flawed, name string) (distlock.Status, error)
	list    func(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error)
	breaks  func(ctx context.Context, d *flawed, name string, token int64) error
	sweep   func(ctx context.Context, d *flawed, idle time.Duration) (int, error) // makes it a Sweeper
	wrap    func(h *driver.Handle, c *claim) distlock.Lock
	close   func(e *env) error // instead of closing what lies below
}

// inside returns a driver with a flaw within single requests: each method of its
// claims is one, and the link lies before it.
func (e *env) inside(f flaw) driver.Driver { return e.link.Driver((&flawed{e, e.mem, f}).able()) }

// outside returns a driver with a flaw in how it uses requests: each method of the
// claims below it is one.
func (e *env) outside(f flaw) driver.Driver {
	return (&flawed{e, e.link.Driver(e.mem).(store), f}).able()
}

// driver is memlock's with a flaw.
type flawed struct {
	*env
	inner store
	flaw
}

// able returns the driver with the optional methods that it has a flaw in.
func (d *flawed) able() driver.Driver {
	if d.flaw.sweep != nil {
		return &sweeper{d}
	}
	return d
}

// sweeper is a driver with a store that keeps something of a name after its last
// release.
type sweeper struct{ *flawed }

// Sweep implements driver.Sweeper.
func (d *sweeper) Sweep(ctx context.Context, idle time.Duration) (int, error) {
	return d.sweep(ctx, d.flawed, idle)
}

// Renew implements driver.Driver.
func (d *flawed) Renew(ctx context.Context, batch []driver.Renewal) {
	if d.batch != nil {
		d.batch(ctx, d, batch)
		for i := range batch {
			batch[i].Answer(batch[i].Grant, batch[i].Err)
		}
		return
	}
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return c.(*claim).Renew(ctx, ttl)
	})
}

// single is a claim that can be renewed alone.
type single struct {
	driver.Claim
	driver driver.Driver
}

// Renew is a batch of one.
func (c single) Renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	one := []driver.Renewal{{Claim: c.Claim, TTL: ttl}}
	c.driver.Renew(ctx, one)
	return one[0].Grant, one[0].Err
}

// claim is a claim of such a driver. Its fields are used by one call at a time.
type claim struct {
	inner    single
	driver   *flawed
	asked    driver.Request // with the name as it is stored
	began    time.Time      // of the first Try
	won      bool           // a Try has returned a grant
	refused  bool           // a Try was refused
	silences int            // of Try, in a row: it had no answer
	token    int64          // of that grant
	renewals int64          // that were asked for
	until    time.Time      // the end of the last renewal
	least    time.Duration  // a TTL that it was extended by

	wake chan struct{} // one element, so that a wake-up never blocks; for a driver with its own queue

	// Guarded by the world, where the driver keeps its own queue.
	seen time.Time // the last Try
	deaf bool      // what it watches is gone
}

// Capabilities implements driver.Driver.
func (d *flawed) Capabilities() driver.Capabilities {
	caps := d.inner.Capabilities()
	if d.flaw.caps != nil {
		d.flaw.caps(&caps)
	}
	return caps
}

// Claim implements driver.Driver.
func (d *flawed) Claim(r driver.Request) driver.Claim {
	if d.encode != nil {
		r.Name = d.encode(r.Name)
	}
	asked := r
	if d.request != nil {
		d.request(d.env, &r)
	}
	return &claim{inner: single{d.inner.Claim(r), d.inner}, driver: d, asked: asked, wake: make(chan struct{}, 1)}
}

// Try implements driver.Claim.
func (c *claim) Try(ctx context.Context) (g driver.Grant, err error) {
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

// Wait implements driver.Claim.
func (c *claim) Wait(ctx context.Context) error {
	if c.driver.wait != nil {
		return c.driver.wait(ctx, c)
	}
	return c.inner.Wait(ctx)
}

// Renew renews the claim alone.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	if c.driver.renew != nil {
		return c.driver.renew(ctx, c, ttl)
	}
	return c.inner.Renew(ctx, ttl)
}

// Release implements driver.Claim.
func (c *claim) Release(ctx context.Context) error {
	if c.driver.release != nil {
		return c.driver.release(ctx, c)
	}
	return c.inner.Release(ctx)
}

// as returns a claim on the same name, straight in the store, with a request that
// differs from this one's.
func (c *claim) as(change func(*driver.Request)) single {
	r := c.asked
	change(&r)
	return single{c.driver.mem.Claim(r), c.driver.mem}
}

// reset makes the entry that c holds, or that is free, last for ttl from now, even if it would last longer.
func (c *claim) reset(ctx context.Context, ttl time.Duration) error {
	_, err := c.as(func(r *driver.Request) { r.TTL = max(ttl, 1) }).Try(ctx)
	if err == nil {
		c.driver.memory.SetRemaining(c.asked.Name, max(ttl, 1))
	}
	return err
}

// send makes a request of f. It may be called late, by another goroutine.
func (d *flawed) send(ctx context.Context, f func(ctx context.Context) error) error {
	var err error
	lost := d.link.Do(ctx,
		func() { err = f(ctx) },
		func() { _ = f(context.WithoutCancel(ctx)) })
	if lost != nil {
		return lost
	}
	return err
}

// Inspect implements driver.Inspector.
func (d *flawed) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	if d.inspect != nil {
		return d.inspect(ctx, d, name)
	}
	return d.look(ctx, name)
}

// look is what Inspect has to do.
func (d *flawed) look(ctx context.Context, name string) (distlock.Status, error) {
	stored := name
	if d.encode != nil {
		stored = d.encode(name)
	}
	st, err := d.inner.Inspect(ctx, stored)
	st.Name = name
	if d.waiters != nil {
		st.Waiters = d.waiters(d.world, name)
	}
	if d.status != nil {
		d.status(d.env, &st)
	}
	return st, err
}

// List implements driver.Inspector.
func (d *flawed) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	if d.list != nil {
		return d.list(ctx, d, prefix)
	}
	all, err := d.inner.List(ctx, prefix)
	for i := range all {
		if d.waiters != nil {
			all[i].Waiters = d.waiters(d.world, all[i].Name)
		}
		if d.status != nil {
			d.status(d.env, &all[i])
		}
	}
	return all, err
}

// Break implements driver.Breaker.
func (d *flawed) Break(ctx context.Context, name string, token int64) error {
	if d.breaks != nil {
		return d.breaks(ctx, d, name, token)
	}
	if d.encode != nil {
		name = d.encode(name)
	}
	return d.inner.Break(ctx, name, token)
}

// WrapLock implements driver.LockWrapper.
func (d *flawed) WrapLock(h *driver.Handle, c driver.Claim) distlock.Lock {
	if d.wrap != nil {
		return d.wrap(h, c.(*claim))
	}
	return h
}

// Close implements io.Closer.
func (d *flawed) Close() error {
	if d.flaw.close != nil {
		return d.flaw.close(d.env)
	}
	if c, ok := d.inner.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// plain makes a driver of the kind that most tutorials end with: one entry per name,
// nobody queues, and waiters ask again and again.
func plain(f flaw) flaw {
	caps, request := f.caps, f.request
	f.caps = func(c *driver.Capabilities) {
		c.Fair, c.Push = false, false
		if caps != nil {
			caps(c)
		}
	}
	f.request = func(e *env, r *driver.Request) {
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
	return design{driver: func(e *env) driver.Driver { return e.inside(f) }}
}

func outside(f flaw) design {
	return design{driver: func(e *env) driver.Driver { return e.outside(f) }}
}
