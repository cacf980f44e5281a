package virtual

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Driver returns d behind the link: every call to Renew, and of a claim's Try or
// Release, is one request. What d can do besides, it can do still.
func (l *Link) Driver(d driver.Driver) driver.Driver { return &linkedDriver{l, d} }

// linkedDriver has all optional methods; those that the driver lacks behave as if
// they were not there.
type linkedDriver struct {
	link  *Link
	inner driver.Driver
}

var (
	_ driver.Driver      = (*linkedDriver)(nil)
	_ driver.Inspector   = (*linkedDriver)(nil)
	_ driver.Breaker     = (*linkedDriver)(nil)
	_ driver.Sweeper     = (*linkedDriver)(nil)
	_ driver.LockWrapper = (*linkedDriver)(nil)
	_ io.Closer          = (*linkedDriver)(nil)
	_ driver.Claim       = (*linkedClaim)(nil)
)

// Capabilities implements driver.Driver.
func (d *linkedDriver) Capabilities() driver.Capabilities { return d.inner.Capabilities() }

// Claim implements driver.Driver.
func (d *linkedDriver) Claim(r driver.Request) driver.Claim {
	return &linkedClaim{driver: d, inner: d.inner.Claim(r), request: r}
}

// linkedClaim sends the calls of a claim over the link. A request that arrives
// after its caller has left is made by a claim of its own with the same owner:
// to the store it is the same, and the methods of the first are not called
// concurrently.
type linkedClaim struct {
	driver  *linkedDriver
	inner   driver.Claim
	request driver.Request

	releases atomic.Int64 // that have arrived
}

// again returns a claim for a late request.
func (c *linkedClaim) again() driver.Claim { return c.driver.inner.Claim(c.request) }

// Try implements driver.Claim.
func (c *linkedClaim) Try(ctx context.Context) (driver.Grant, error) {
	var g driver.Grant
	var err error
	sent := c.releases.Load()
	lost := c.driver.link.Do(ctx,
		func() { g, err = c.inner.Try(ctx) },
		func() {
			if c.driver.link.Remembers || c.releases.Load() == sent {
				_, _ = c.again().Try(context.WithoutCancel(ctx))
			}
		})
	if lost != nil {
		return driver.Grant{}, lost
	}
	return g, err
}

// Wait implements driver.Claim. It is no request, but what it waits for comes
// over the link.
func (c *linkedClaim) Wait(ctx context.Context) error {
	if err := c.inner.Wait(ctx); err != nil {
		return err
	}
	switch err := c.driver.link.depart(false).wait(ctx.Done()); err {
	case errLeft:
		return ctx.Err()
	default:
		return nil // a hint that the connection is broken is a hint to look
	}
}

// Release implements driver.Claim.
func (c *linkedClaim) Release(ctx context.Context) error {
	var err error
	lost := c.driver.link.Do(ctx,
		func() { err = c.inner.Release(ctx); c.releases.Add(1) },
		func() { _ = c.again().Release(context.WithoutCancel(ctx)); c.releases.Add(1) })
	if lost != nil {
		return lost
	}
	return err
}

// Renew implements driver.Driver.
func (d *linkedDriver) Renew(ctx context.Context, batch []driver.Renewal) {
	inner := make([]driver.Renewal, len(batch))
	late := make([]driver.Renewal, len(batch))
	for i, r := range batch {
		c := r.Claim.(*linkedClaim)
		inner[i] = driver.Renewal{Claim: c.inner, TTL: r.TTL}
		late[i] = driver.Renewal{Claim: c.again(), TTL: r.TTL}
	}
	lost := d.link.Do(ctx,
		func() { d.inner.Renew(ctx, inner) },
		func() { d.inner.Renew(context.WithoutCancel(ctx), late) })
	for i := range batch {
		if lost != nil {
			batch[i].Answer(driver.Grant{}, lost)
		} else {
			batch[i].Answer(inner[i].Grant, inner[i].Err)
		}
	}
}

// ask sends a request that nobody misses if its caller has left.
func ask[T any](ctx context.Context, l *Link, f func() (T, error)) (T, error) {
	var value, zero T
	var err error
	if lost := l.Do(ctx, func() { value, err = f() }, nil); lost != nil {
		return zero, lost
	}
	return value, err
}

// Inspect implements driver.Inspector.
func (d *linkedDriver) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	inner, ok := d.inner.(driver.Inspector)
	if !ok {
		return distlock.Status{}, distlock.ErrUnsupported
	}
	return ask(ctx, d.link, func() (distlock.Status, error) { return inner.Inspect(ctx, name) })
}

// List implements driver.Inspector.
func (d *linkedDriver) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	inner, ok := d.inner.(driver.Inspector)
	if !ok {
		return nil, distlock.ErrUnsupported
	}
	return ask(ctx, d.link, func() ([]distlock.Status, error) { return inner.List(ctx, prefix) })
}

// Break implements driver.Breaker.
func (d *linkedDriver) Break(ctx context.Context, name string, token int64) error {
	inner, ok := d.inner.(driver.Breaker)
	if !ok {
		return distlock.ErrUnsupported
	}
	_, err := ask(ctx, d.link, func() (struct{}, error) { return struct{}{}, inner.Break(ctx, name, token) })
	return err
}

// Sweep implements driver.Sweeper.
func (d *linkedDriver) Sweep(ctx context.Context, idle time.Duration) (int, error) {
	inner, ok := d.inner.(driver.Sweeper)
	if !ok {
		return 0, distlock.ErrUnsupported
	}
	return ask(ctx, d.link, func() (int, error) { return inner.Sweep(ctx, idle) })
}

// WrapLock implements driver.LockWrapper.
func (d *linkedDriver) WrapLock(h *driver.Handle, c driver.Claim) distlock.Lock {
	if w, ok := d.inner.(driver.LockWrapper); ok {
		return w.WrapLock(h, c.(*linkedClaim).inner)
	}
	return h
}

// Close implements io.Closer, for the driver and the link.
func (d *linkedDriver) Close() error {
	d.link.Close()
	if c, ok := d.inner.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
