package hazard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// wrapped is a driver with some decisions replaced.
type wrapped struct {
	driver.Driver
	inspector driver.Inspector
	claim     func(r driver.Request, inner driver.Claim) driver.Claim
	request   func(r *driver.Request)
	boast     time.Duration // by which renewals are told more than the store keeps; 0 means 1
}

// around is what the claims of such a driver embed.
type around struct{ driver.Claim }

func (a around) inner() driver.Claim { return a.Claim }

func (w *wrapped) Renew(ctx context.Context, batch []driver.Renewal) {
	boast, below := max(w.boast, 1), make([]driver.Renewal, len(batch))
	for i, r := range batch {
		below[i] = driver.Renewal{Claim: r.Claim.(interface{ inner() driver.Claim }).inner(), TTL: r.TTL / boast}
	}
	w.Driver.Renew(ctx, below)
	for i, r := range below {
		r.Grant.TTL *= boast
		batch[i].Answer(r.Grant, r.Err)
	}
}

func (w *wrapped) Claim(r driver.Request) driver.Claim {
	if w.request != nil {
		w.request(&r)
	}
	return w.claim(r, w.Driver.Claim(r))
}

func (w *wrapped) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	return w.inspector.Inspect(ctx, name)
}

func (w *wrapped) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return w.inspector.List(ctx, prefix)
}

// boastful has the store keep half of the lease that it promises its holders.
func boastful() target {
	store := memlock.NewStore(nil)
	return over("boastful", func() driver.Driver {
		inner := memlock.NewDriver(store)
		return &wrapped{Driver: inner, inspector: inner.(driver.Inspector), boast: 2,
			request: func(r *driver.Request) { r.TTL /= 2 },
			claim:   func(_ driver.Request, c driver.Claim) driver.Claim { return boast{around{c}} }}
	})
}

type boast struct{ around }

func (b boast) Try(ctx context.Context) (driver.Grant, error) {
	g, err := b.Claim.Try(ctx)
	g.TTL *= 2
	return g, err
}

// generous grants a name to everybody.
func generous() target {
	return over("generous", func() driver.Driver { return memlock.NewDriver(memlock.NewStore(nil)) })
}

// silent never tells a holder that its lock is lost.
func silent() target {
	t := sound()
	route := t.Route
	t.name, t.Route = "silent", func() (*Route, error) {
		r, err := route()
		open := r.Open
		r.Open = func(ctx context.Context, ttl time.Duration) (distlock.Locker, error) {
			l, err := open(ctx, ttl)
			return silentLocker{l}, err
		}
		return r, err
	}
	return t
}

type silentLocker struct{ distlock.Locker }

func (s silentLocker) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	lock, err := s.Locker.Lock(ctx, name, opts...)
	if err != nil {
		return nil, err
	}
	return silentLock{lock}, nil
}

type silentLock struct{ distlock.Lock }

func (silentLock) Done() <-chan struct{} { return nil }
func (silentLock) Err() error            { return nil }

// lastFirst promises an order and serves the last waiter first.
func lastFirst() target {
	store := memlock.NewStore(nil)
	s := &stack{}
	return over("last-first", func() driver.Driver {
		inner := memlock.NewDriver(store)
		return &wrapped{
			Driver: inner, inspector: s,
			request: func(r *driver.Request) { r.NoWait = true },
			claim:   func(r driver.Request, c driver.Claim) driver.Claim { return &stacked{around{c}, s, r} },
		}
	})
}

// stack has the waiters of all names, the last one on top.
type stack struct {
	mu      sync.Mutex
	waiting []*stacked
}

func (s *stack) Inspect(_ context.Context, name string) (distlock.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := distlock.Status{Name: name}
	for _, w := range s.waiting {
		if w.request.Name == name {
			st.Waiters++
		}
	}
	return st, nil
}

func (s *stack) List(context.Context, string) ([]distlock.Status, error) { return nil, nil }

type stacked struct {
	around
	stack   *stack
	request driver.Request
}

func (w *stacked) Try(ctx context.Context) (driver.Grant, error) {
	w.stack.mu.Lock()
	defer w.stack.mu.Unlock()
	if !slices.Contains(w.stack.waiting, w) {
		w.stack.waiting = append(w.stack.waiting, w)
	}
	for _, later := range slices.Backward(w.stack.waiting) {
		if later == w {
			break
		} else if later.request.Name == w.request.Name {
			return driver.Grant{}, &distlock.HeldError{}
		}
	}
	g, err := w.Claim.Try(ctx)
	if err == nil {
		w.leave()
	}
	return g, err
}

func (w *stacked) leave() {
	w.stack.waiting = slices.DeleteFunc(w.stack.waiting, func(o *stacked) bool { return o == w })
}

func (w *stacked) Wait(ctx context.Context) error {
	time.Sleep(10 * time.Millisecond)
	return ctx.Err()
}

func (w *stacked) Release(ctx context.Context) error {
	w.stack.mu.Lock()
	w.leave()
	w.stack.mu.Unlock()
	return w.Claim.Release(ctx)
}

// restartable is a store under our control. It forgets everything in a restart
// or nothing.
func restartable(forgets bool) target {
	s := &frail{Driver: memlock.NewDriver(memlock.NewStore(nil)), forgets: forgets, away: 100 * time.Millisecond}
	name := "remembering"
	if forgets {
		name = "forgetful"
	}
	t := over(name, func() driver.Driver { return s })
	t.Control = s
	return t
}

// frail is a driver for a store that can be down.
type frail struct {
	driver.Driver
	forgets bool
	away    time.Duration // in a restart

	mu   sync.Mutex
	down bool
	at   int // counts the stores that have been
}

var errDown = errors.New("connection refused")

func (f *frail) Kill(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = true
	return nil
}

func (f *frail) Restart(context.Context) error {
	time.Sleep(f.away)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = false
	if f.forgets {
		f.at++
	}
	return nil
}

// Claim implements driver.Driver: what a claim has done in a store that was
// forgotten does not count any more.
func (f *frail) Claim(r driver.Request) driver.Claim {
	return &frailClaim{driver: f, request: r, at: -1}
}

func (f *frail) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		inner, err := c.(*frailClaim).enter()
		if err != nil {
			return driver.Grant{}, err
		}
		one := []driver.Renewal{{Claim: inner, TTL: ttl}}
		f.Driver.Renew(ctx, one)
		return one[0].Grant, one[0].Err
	})
}

type frailClaim struct {
	driver  *frail
	request driver.Request
	inner   driver.Claim
	at      int
}

// enter returns the claim in the store of now, or that the store is down.
func (c *frailClaim) enter() (driver.Claim, error) {
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	if c.driver.down {
		return nil, errDown
	}
	if c.at != c.driver.at {
		r := c.request
		for range c.driver.at {
			r.Name += "'" // a new store knows nothing of the names of the old one
		}
		c.inner, c.at = c.driver.Driver.Claim(r), c.driver.at
	}
	return c.inner, nil
}

func (c *frailClaim) Try(ctx context.Context) (driver.Grant, error) {
	inner, err := c.enter()
	if err != nil {
		return driver.Grant{}, err
	}
	return inner.Try(ctx)
}

func (c *frailClaim) Wait(ctx context.Context) error {
	inner, err := c.enter()
	if err != nil {
		return err
	}
	return inner.Wait(ctx)
}

func (c *frailClaim) Release(ctx context.Context) error {
	inner, err := c.enter()
	if err != nil {
		return err
	}
	return inner.Release(ctx)
}
