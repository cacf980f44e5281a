package mutants

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Capabilities implements driver.Driver.
func (d *ledgerDriver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "ledger", Fair: true, Push: true, Durability: driver.Volatile, MinTTL: time.Millisecond, TTLGranularity: time.Nanosecond}
}

// Claim implements driver.Driver.
func (d *ledgerDriver) Claim(r driver.Request) driver.Claim {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	if d.store.wakes[r.Owner] == nil {
		d.store.wakes[r.Owner] = make(chan struct{}, 1)
	}
	return &ledgerClaim{driver: d, request: r, wake: d.store.wakes[r.Owner]}
}

// Renew implements driver.Driver.
func (d *ledgerDriver) Renew(ctx context.Context, batch []driver.Renewal) {
	name := ""
	if len(batch) == 1 {
		name = batch[0].Claim.(*ledgerClaim).request.Name
	}
	asked := slices.Clone(batch)
	answers := make([]struct {
		g   driver.Grant
		err error
	}, len(batch))
	lost := d.store.send(ctx, "renew", name, func(now time.Time) {
		for i, r := range asked {
			answers[i].g, answers[i].err = d.store.renew(r.Claim.(*ledgerClaim), r.TTL, now)
		}
	})
	for i := range batch {
		if lost != nil {
			batch[i].Answer(driver.Grant{}, lost)
		} else {
			batch[i].Answer(answers[i].g, answers[i].err)
		}
	}
}

// Inspect implements driver.Inspector.
func (d *ledgerDriver) Inspect(ctx context.Context, name string) (st distlock.Status, err error) {
	err = d.store.send(ctx, "inspect", name, func(now time.Time) {
		st = d.store.status(name, d.client == 0, now)
	})
	return st, err
}

// List implements driver.Inspector.
func (d *ledgerDriver) List(ctx context.Context, prefix string) (sts []distlock.Status, err error) {
	err = d.store.send(ctx, "list", prefix, func(now time.Time) {
		for name := range d.store.rows {
			if st := d.store.status(name, d.client == 0, now); st.Held && strings.HasPrefix(name, prefix) {
				sts = append(sts, st)
			}
		}
		slices.SortFunc(sts, func(a, b distlock.Status) int { return strings.Compare(a.Name, b.Name) })
		if f := d.store.flaw.unlists; f != nil && d.client != 0 {
			sts = slices.DeleteFunc(sts, func(st distlock.Status) bool { return f(d.store.rows[st.Name]) })
		}
	})
	return sts, err
}

// Break implements driver.Breaker.
func (d *ledgerDriver) Break(ctx context.Context, name string, token int64) error {
	right := false
	err := d.store.send(ctx, "break", name, func(now time.Time) {
		r := d.store.row(name, now)
		right = r.hold != nil && r.hold.token == token && (d.store.flaw.firm == nil || !d.store.flaw.firm(d.store, r))
		if !right {
			return
		}
		r.end("broken")
		if d.store.flaw.broken != nil {
			d.store.flaw.broken(d.store, r)
		}
		d.store.handOff(r, now)
	})
	if err == nil && !right {
		return distlock.ErrLost
	}
	return err
}

// Close implements io.Closer.
func (d *ledgerDriver) Close() error {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	if f := d.store.flaw.close; f != nil {
		f(d.store, d.client)
	}
	return nil
}

// ledgerClaim is a claim of it.
type ledgerClaim struct {
	driver  *ledgerDriver
	request driver.Request
	wake    chan struct{}
	won     bool
}

// Try implements driver.Claim.
func (c *ledgerClaim) Try(ctx context.Context) (g driver.Grant, err error) {
	lost := c.driver.store.send(ctx, "try", c.request.Name, func(now time.Time) { g, err = c.driver.store.try(c, now) })
	if lost != nil {
		return driver.Grant{}, lost
	}
	c.won = c.won || err == nil
	return g, err
}

// Wait implements driver.Claim.
func (c *ledgerClaim) Wait(ctx context.Context) error {
	select {
	case <-c.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release implements driver.Claim.
func (c *ledgerClaim) Release(ctx context.Context) (err error) {
	if lost := c.driver.store.send(ctx, "release", c.request.Name, func(now time.Time) { err = c.driver.store.release(c, now) }); lost != nil {
		return lost
	}
	if err == nil {
		c.won = false
	}
	return err
}
