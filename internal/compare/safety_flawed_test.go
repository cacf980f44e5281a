package compare

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
)

// wrapped is a driver with some decisions replaced.
type wrapped struct {
	distlock.Driver
	inspector distlock.Inspector
	claim     func(r distlock.Request, inner distlock.Claim) distlock.Claim
	request   func(r *distlock.Request)
}

func (w *wrapped) Claim(r distlock.Request) distlock.Claim {
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

// boastful promises its holders twice the lease that the store gives.
func boastful() Target {
	store := memlock.NewStore(nil)
	return over("boastful", func() distlock.Driver {
		inner := memlock.NewDriver(store)
		return &wrapped{Driver: inner, inspector: inner.(distlock.Inspector),
			claim: func(_ distlock.Request, c distlock.Claim) distlock.Claim { return boast{c} }}
	})
}

type boast struct{ distlock.Claim }

func (b boast) Renew(ctx context.Context, ttl time.Duration) (distlock.Grant, error) {
	g, err := b.Claim.Renew(ctx, ttl)
	g.TTL *= 2
	return g, err
}

func (b boast) Try(ctx context.Context) (distlock.Grant, error) {
	g, err := b.Claim.Try(ctx)
	g.TTL *= 2
	return g, err
}

// unseen hides what the store shows of a name: not every driver keeps a queue there.
func unseen(target Target) Target {
	open := target.Open
	target.Open = func(ctx context.Context) (distlock.Locker, error) {
		l, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return struct {
			distlock.Locker
			capable
		}{l, l.(capable)}, nil
	}
	return target
}

// lastFirst promises an order and serves the last who has come.
func lastFirst() Target {
	store := memlock.NewStore(nil)
	s := &stack{}
	return over("last-first", func() distlock.Driver {
		inner := memlock.NewDriver(store)
		return &wrapped{
			Driver: inner, inspector: s,
			request: func(r *distlock.Request) { r.NoWait = true },
			claim:   func(r distlock.Request, c distlock.Claim) distlock.Claim { return &stacked{c, s, r} },
		}
	})
}

// stack is who waits for any name, the last one on top.
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
	distlock.Claim
	stack   *stack
	request distlock.Request
}

func (w *stacked) Try(ctx context.Context) (distlock.Grant, error) {
	w.stack.mu.Lock()
	defer w.stack.mu.Unlock()
	if !slices.Contains(w.stack.waiting, w) {
		w.stack.waiting = append(w.stack.waiting, w)
	}
	for _, later := range slices.Backward(w.stack.waiting) {
		if later == w {
			break
		} else if later.request.Name == w.request.Name {
			return distlock.Grant{}, &distlock.HeldError{}
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
	pause(ctx, 10*time.Millisecond)
	return ctx.Err()
}

func (w *stacked) Release(ctx context.Context) error {
	w.stack.mu.Lock()
	w.leave()
	w.stack.mu.Unlock()
	return w.Claim.Release(ctx)
}

// waking tells every waiter of a release, and lets whoever is first have the name.
func waking() Target {
	store := memlock.NewStore(nil)
	var mu sync.Mutex
	released := make(chan struct{})
	ring := func() {
		mu.Lock()
		defer mu.Unlock()
		close(released)
		released = make(chan struct{})
	}
	bell := func() <-chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		return released
	}
	return over("waking", func() distlock.Driver {
		inner := memlock.NewDriver(store)
		return &wrapped{Driver: inner, inspector: inner.(distlock.Inspector),
			claim: func(_ distlock.Request, c distlock.Claim) distlock.Claim { return &woken{c, bell(), bell, ring} }}
	})
}

type woken struct {
	distlock.Claim
	heard <-chan struct{} // of before the last Try
	bell  func() <-chan struct{}
	ring  func()
}

func (w *woken) Try(ctx context.Context) (distlock.Grant, error) {
	w.heard = w.bell()
	return w.Claim.Try(ctx)
}

func (w *woken) Wait(ctx context.Context) error {
	select {
	case <-w.heard:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *woken) Release(ctx context.Context) error {
	err := w.Claim.Release(ctx)
	w.ring()
	return err
}

// restartable is a store under our control, which forgets everything in a restart
// or nothing.
func restartable(forgets bool) Target {
	s := &frail{Driver: memlock.NewDriver(memlock.NewStore(nil)), forgets: forgets}
	name := "remembering"
	if forgets {
		name = "forgetful"
	}
	target := over(name, func() distlock.Driver { return s })
	target.Rig.Control = s
	return target
}

// frail is a driver whose store can be down.
type frail struct {
	distlock.Driver
	forgets bool

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
	time.Sleep(100 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = false
	if f.forgets {
		f.at++
	}
	return nil
}

// Claim implements distlock.Driver: what a claim has done in a store that was
// forgotten does not count any more.
func (f *frail) Claim(r distlock.Request) distlock.Claim {
	return &frailClaim{driver: f, request: r, at: -1}
}

type frailClaim struct {
	driver  *frail
	request distlock.Request
	inner   distlock.Claim
	at      int
}

// enter returns the claim in the store of now, or that the store is down.
func (c *frailClaim) enter() (distlock.Claim, error) {
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

func (c *frailClaim) Try(ctx context.Context) (distlock.Grant, error) {
	inner, err := c.enter()
	if err != nil {
		return distlock.Grant{}, err
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

func (c *frailClaim) Renew(ctx context.Context, ttl time.Duration) (distlock.Grant, error) {
	inner, err := c.enter()
	if err != nil {
		return distlock.Grant{}, err
	}
	return inner.Renew(ctx, ttl)
}

func (c *frailClaim) Release(ctx context.Context) error {
	inner, err := c.enter()
	if err != nil {
		return err
	}
	return inner.Release(ctx)
}
