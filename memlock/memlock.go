// Package memlock is the driver for locks within one process. It is fair, wakes its waiters, and is the
// reference for the other drivers. It has no Sweep, and a refusal tells only how long the lease lasts. Use it to unit-test code that
// takes locks, also in testing/synctest bubbles, where its time is the bubble's.
//
//	store := memlock.NewStore(nil)
//	alice, _ := memlock.New(store, nil) // two Lockers on one store contend
//	bob, _ := memlock.New(store, nil)   // like two processes on one server
package memlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Options configure a Locker. Nil means the defaults.
type Options struct {
	distlock.Options
}

// Locker is a distlock.Locker over a Store. It is safe for concurrent use.
type Locker struct {
	*driver.Client
}

var (
	_ distlock.Locker  = (*Locker)(nil)
	_ driver.Driver    = (*store)(nil)
	_ driver.Inspector = (*store)(nil)
	_ driver.Breaker   = (*store)(nil)
)

// New returns a Locker over s. It fails with distlock.ErrInvalid if the options
// are not allowed.
func New(s *Store, o *Options) (*Locker, error) {
	if o == nil {
		o = new(Options)
	}
	c, err := driver.New(NewDriver(s), &o.Options)
	if err != nil {
		return nil, err
	}
	return &Locker{c}, nil
}

// NewDriver returns the driver alone, for programs that wrap it: a fault injector, or
// a broken variant to test a test with.
func NewDriver(s *Store) driver.Driver { return &store{s} }

type store struct{ store *Store }

// Capabilities implements driver.Driver.
func (d *store) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Backend:        "memory",
		Fair:           true,
		Push:           true,
		Durability:     driver.Volatile,
		MinTTL:         time.Millisecond,
		TTLGranularity: time.Nanosecond,
	}
}

// Claim implements driver.Driver.
func (d *store) Claim(r driver.Request) driver.Claim {
	return &claim{store: d.store, request: r, wake: make(chan struct{}, 1)}
}

// claim is one driver.Claim. Its fields but wake are used by one call at a time.
type claim struct {
	store   *Store
	request driver.Request
	wake    chan struct{} // one element: "look again"; buffered so that the store never blocks
	won     bool          // a Try of this claim has returned a grant

	releases int // how often it was released; guarded by the store's mutex
}

// answer is what a Try or a renewal comes to.
type answer struct {
	grant driver.Grant
	err   error
}

// Try implements driver.Claim.
func (c *claim) Try(ctx context.Context) (driver.Grant, error) {
	sent := c.store.releasesOf(c)
	a, lost := ask(ctx, c.store, Call{"try", c.request.Name, c.request.Owner}, func() (a answer) {
		a.grant, a.err = c.store.try(c, sent)
		return a
	})
	if lost != nil {
		return driver.Grant{}, lost
	}
	c.won = c.won || a.err == nil
	return a.grant, a.err
}

// Wait implements driver.Claim. A release after the last Try has left its mark in
// the channel, so none is missed.
func (c *claim) Wait(ctx context.Context) error {
	select {
	case <-c.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release implements driver.Claim.
func (c *claim) Release(ctx context.Context) error {
	held, lost := ask(ctx, c.store, Call{"release", c.request.Name, c.request.Owner}, func() bool { return c.store.release(c) })
	switch {
	case lost != nil:
		return lost
	case c.won && !held:
		return distlock.ErrLost
	}
	c.won = false
	return nil
}

// Renew implements driver.Driver, in one request.
func (d *store) Renew(ctx context.Context, batch []driver.Renewal) {
	request := Call{Op: "renew"}
	if c, ok := batch[0].Claim.(*claim); ok && len(batch) == 1 {
		request.Name, request.Owner = c.request.Name, c.request.Owner
	}
	asked := slices.Clone(batch) // the engine's own is not ours any more after this call
	answers, lost := ask(ctx, d.store, request, func() []answer {
		answers := make([]answer, len(asked))
		for i, r := range asked {
			if c, ok := r.Claim.(*claim); ok {
				answers[i].grant, answers[i].err = d.store.renew(c, r.TTL)
			} else {
				answers[i].err = errors.New("memlock: the claim is another driver's")
			}
		}
		return answers
	})
	for i := range batch {
		if lost != nil {
			batch[i].Answer(driver.Grant{}, lost)
		} else {
			batch[i].Answer(answers[i].grant, answers[i].err)
		}
	}
}

// Inspect implements driver.Inspector.
func (d *store) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	return ask(ctx, d.store, Call{Op: "inspect", Name: name}, func() distlock.Status { return d.store.status(name) })
}

// List implements driver.Inspector.
func (d *store) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return ask(ctx, d.store, Call{Op: "list", Name: prefix}, func() []distlock.Status { return d.store.list(prefix) })
}

// Break implements driver.Breaker.
func (d *store) Break(ctx context.Context, name string, token int64) error {
	broken, err := ask(ctx, d.store, Call{Op: "break", Name: name}, func() bool { return d.store.breakLock(name, token) })
	if err == nil && !broken {
		return distlock.ErrLost
	}
	return err
}
