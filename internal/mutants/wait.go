package mutants

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

func waitMutants() []Mutant {
	return []Mutant{
		{
			Name: "LostWakeup", Flaw: "looks at the name before it subscribes to its release, and not again",
			Seen:     "",
			KilledBy: []Kill{{"wait/release-vs-register", "a wake-up was lost"}},

			design: outside(flaw{wait: waitDeaf}),
		},
		{
			Name: "NotifyOnly", Flaw: "relies on the notification of a release, and never looks by itself",
			Seen:     "Redis pub/sub, which delivers at most once, taken for a queue",
			KilledBy: []Kill{{"after/inherits", "is still waiting"}, {"wait/notification-lost", "is still waiting"}},

			design: design{
				driver: func(e *env) driver.Driver { return e.outside(subscribing()) },
				locker: func(e *env, c *driver.Client) distlock.Locker { return newTrusting(e, c) },
			},
		},
		{
			Name: "HeadWatchGone", Flaw: "watches the waiter before it, and never again once that has left the queue",
			Seen:     "",
			KilledBy: []Kill{{"handover/woken-leaves", "is still waiting"}, {"fair/cancelled-skipped", "before W2"}},

			design: fifoDesign(flaw{release: releaseUnwatched}),
		},
		{
			Name: "Barging", Flaw: "declares a queue, and lets a TryLock overtake it",
			Seen:     "",
			KilledBy: []Kill{{"fair/try-does-not-barge", "although B had been queued for it before"}},
			design:   fifoDesign(flaw{}),
		},
		{
			Name: "CapLiar", Flaw: "declares that it serves waiters in their order, and serves the last first",
			Seen:     "",
			KilledBy: []Kill{{"after/order", "who came before it"}},

			design: fifoDesign(flaw{try: tryLastFirst}),
		},
	}
}

// loadMutants wait at the cost of others.
func loadMutants() []Mutant {
	return []Mutant{
		{
			Name: "PoolHog", Flaw: "keeps a connection from a pool of ten for as long as it waits",
			Seen:     "GET_LOCK with a timeout",
			KilledBy: []Kill{{"stress/pool-starvation", "waiters keep pooled connections"}},
			design:   design{driver: hogging},
		},
		{
			Name: "PushLiar", Flaw: "declares that its waiters are told of a release, and lets them poll",
			KilledBy: []Kill{{"after/woken", "is still waiting"}},

			design: inside(flaw{wait: func(ctx context.Context, _ *claim) error {
				<-ctx.Done()
				return ctx.Err()
			}}),
		},
		{
			Name: "SpinWait", Flaw: "asks again at once when it is told that the name is held",
			Seen:     "",
			KilledBy: []Kill{{"wait/no-busy-loop", "are allowed"}},
			design:   outside(flaw{wait: func(context.Context, *claim) error { return nil }}),
		},
	}
}

// waitDeaf hears of a release only if that comes after its subscription has reached
// the server.
func waitDeaf(ctx context.Context, c *claim) error {
	if err := c.driver.send(ctx, func(context.Context) error { return nil }); err != nil {
		return err
	}
	// memlock leaves a mark for a claim that was woken. It is taken away here: each
	// call finds it with one half, as its context has ended, so none escapes 64.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for range 64 {
		_ = c.inner.Wait(ended)
	}
	return c.inner.Wait(ctx)
}

// subscribing is a plain driver that publishes its releases.
func subscribing() flaw {
	f := plain(flaw{release: func(ctx context.Context, c *claim) error {
		err := c.inner.Release(ctx)
		if err == nil {
			c.driver.publish(c.asked.Name)
		}
		return err
	}})
	plainCaps := f.caps
	f.caps = func(c *driver.Capabilities) {
		plainCaps(c)
		c.Push = true
	}
	return f
}

// publish wakes all subscribers.
func (w *world) publish(name string) {
	w.with(name, func(e *entry) {
		for _, sub := range e.subs {
			close(sub)
		}
		e.subs = nil
	})
}

// subscribe returns a channel; the next release closes it.
func (w *world) subscribe(name string) <-chan struct{} {
	sub := make(chan struct{})
	w.with(name, func(e *entry) { e.subs = append(e.subs, sub) })
	return sub
}

// trusting is a Locker that waits for notifications alone.
type trusting struct {
	*driver.Client
	env    *env
	slots  chan map[string]chan struct{} // one element: a slot for each name; its owner may ask
	closed chan struct{}
}

func newTrusting(e *env, c *driver.Client) *trusting {
	t := &trusting{Client: c, env: e, slots: make(chan map[string]chan struct{}, 1), closed: make(chan struct{})}
	t.slots <- make(map[string]chan struct{})
	return t
}

func (t *trusting) slot(name string) chan struct{} {
	slots := <-t.slots
	defer func() { t.slots <- slots }()
	if slots[name] == nil {
		slots[name] = make(chan struct{}, 1)
	}
	return slots[name]
}

// Lock implements distlock.Locker.
func (t *trusting) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slot := t.slot(name)
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), distlock.ErrHeld, errors.New(name))
	case <-t.closed:
		return nil, distlock.ErrClosed
	}
	for {
		released := t.env.subscribe(name)
		l, err := t.TryLock(ctx, name, opts...)
		if !errors.Is(err, distlock.ErrHeld) {
			return l, err
		}
		if err := t.await(ctx, name, released); err != nil {
			return nil, err
		}
	}
}

// await has the flaw: it subscribes again after a lost notification, and does not look
// at what has happened in between.
func (t *trusting) await(ctx context.Context, name string, released <-chan struct{}) error {
	for {
		heard := false
		err := t.env.link.Do(ctx, func() {
			select {
			case <-released:
				heard = true
			case <-ctx.Done():
			case <-t.closed:
			}
		}, nil)
		switch {
		case isClosed(t.closed):
			return distlock.ErrClosed
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), distlock.ErrHeld, errors.New(name))
		case err == nil && heard:
			return nil
		}
		released = t.env.subscribe(name)
	}
}

// Close implements distlock.Locker.
func (t *trusting) Close() error {
	slots := <-t.slots
	if !isClosed(t.closed) {
		close(t.closed)
	}
	t.slots <- slots
	return t.Client.Close()
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// fifoDesign makes a driver that keeps the queue of a name itself, over a store with
// nothing but entries, and wakes the first in it on a release.
func fifoDesign(f flaw) design {
	if f.caps == nil {
		f.caps = func(c *driver.Capabilities) { c.Fair, c.Push = true, true }
	}
	f.request = func(_ *env, r *driver.Request) { r.NoWait = true }
	f.wait = waitInQueue
	if f.try == nil {
		f.try = tryInQueue
	}
	if f.release == nil {
		f.release = releaseInQueue
	}
	if f.breaks == nil {
		f.breaks = breakInQueue(wakeAll)
	}
	d := inside(f)
	d.waiters = func(w *world, name string) (n int) {
		w.with(name, func(e *entry) {
			e.drop((*claim).silent)
			n = len(e.queue)
		})
		return n
	}
	return d
}

// tryInQueue asks the store if c is the first in the queue, or not in it: a TryLock.
func tryInQueue(ctx context.Context, c *claim) (driver.Grant, error) {
	return c.tryAt(ctx, func(queue []*claim) bool { return queue[0] == c })
}

func tryLastFirst(ctx context.Context, c *claim) (driver.Grant, error) {
	return c.tryAt(ctx, func(queue []*claim) bool { return queue[len(queue)-1] == c })
}

func (c *claim) tryAt(ctx context.Context, allowed func(queue []*claim) bool) (driver.Grant, error) {
	mayAsk := true
	c.driver.with(c.asked.Name, func(e *entry) {
		if c.asked.NoWait {
			return
		}
		e.drop(func(o *claim) bool { return o != c && o.silent() })
		c.seen = time.Now()
		if !slices.Contains(e.queue, c) {
			e.queue = append(e.queue, c)
		}
		mayAsk = allowed(e.queue)
	})
	if !mayAsk {
		return driver.Grant{}, &distlock.HeldError{Remaining: c.asked.TTL}
	}
	g, err := c.inner.Try(ctx)
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) { e.drop(func(o *claim) bool { return o == c }) })
	}
	return g, err
}

// silent tells of a waiter that has not asked for as long as its lock would last: it has died.
func (c *claim) silent() bool { return time.Since(c.seen) >= c.asked.TTL }

func (e *entry) drop(gone func(*claim) bool) { e.queue = slices.DeleteFunc(e.queue, gone) }

func waitInQueue(ctx context.Context, c *claim) error {
	select {
	case <-c.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// releaseInQueue tells all waiters that the queue has moved.
func releaseInQueue(ctx context.Context, c *claim) error {
	err := c.inner.Release(ctx)
	c.driver.with(c.asked.Name, func(e *entry) {
		e.drop(func(o *claim) bool { return o == c })
		wakeAll(e)
	})
	return err
}

func (c *claim) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// releaseUnwatched is heard by the next in the queue alone. A waiter that watched one
// that has left watches nothing, and hears nothing until it looks by itself.
func releaseUnwatched(ctx context.Context, c *claim) error {
	cancelled := !c.won
	err := c.inner.Release(ctx)
	c.driver.with(c.asked.Name, func(e *entry) {
		if at := slices.Index(e.queue, c); cancelled && at >= 0 && at+1 < len(e.queue) {
			e.queue[at+1].deaf = true
		}
		e.drop(func(o *claim) bool { return o == c })
		if len(e.queue) > 0 && !e.queue[0].deaf {
			e.queue[0].wakeUp()
		}
	})
	return err
}

// hogging is a driver with a pool of ten connections. Every method takes one.
func hogging(e *env) driver.Driver {
	pool := make(chan struct{}, 10)
	use := func(ctx context.Context, f func() error) error {
		select {
		case pool <- struct{}{}:
			defer func() { <-pool }()
			return f()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return e.outside(flaw{
		try: func(ctx context.Context, c *claim) (g driver.Grant, err error) {
			err = use(ctx, func() error { g, err = c.inner.Try(ctx); return err })
			return g, err
		},
		wait: func(ctx context.Context, c *claim) error {
			return use(ctx, func() error { return c.inner.Wait(ctx) })
		},
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (g driver.Grant, err error) {
			err = use(ctx, func() error { g, err = c.inner.Renew(ctx, ttl); return err })
			return g, err
		},
		release: func(ctx context.Context, c *claim) error {
			return use(ctx, func() error { return c.inner.Release(ctx) })
		},
	})
}
