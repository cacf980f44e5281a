package mutants

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
)

func hygieneMutants() []Mutant {
	return []Mutant{
		{
			Name: "ColdStart", Flaw: "makes its table with the first lock, and fails if another client does so at the same time",
			Seen:     "CREATE TABLE after a look for it; missing parent nodes in ZooKeeper",
			KilledBy: []Kill{{"core/cold-start", "already exists"}},

			design: outside(flaw{try: tryWithTable}),
		},
		{
			Name: "PanicDoubleUnlock", Flaw: "panics at the second Unlock",
			Seen:     "a channel that Unlock closes",
			KilledBy: []Kill{{"after/frees", "close of closed channel"}, {"renew/at-once", "close of closed channel"}},

			design: inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock {
				return &fragile{Handle: h, ended: make(chan struct{})}
			}}),
		},
	}
}

// closeMutants do not end as they should.
func closeMutants() []Mutant {
	return []Mutant{
		{
			Name: "ErrOnCloseTwice", Flaw: "fails at the second Close",
			Seen:     "pools that report that they are closed",
			KilledBy: []Kill{{"close/idempotent", "closed twice"}},
			design: design{locker: func(_ *env, c *driver.Client) distlock.Locker {
				return &closing{Client: c}
			}},
		},
		{
			Name: "CloseLeaksConn", Flaw: "leaves its connections open on Close",
			Seen:     "",
			KilledBy: []Kill{{"leak/connections", "connections of it are open"}},
			design: outside(flaw{close: func(e *env) error {
				e.c.Cleanup(e.link.CutAll) // a bubble must not be left with a request on its way
				return nil
			}}),
		},
		{
			Name: "CloseForgets", Flaw: "lets Close return without having unlocked what is held",
			Seen:     "clients that leave it to the TTL",
			KilledBy: []Kill{{"after/closes", "was closed"}, {"close/frees-held", "which A held when its client was closed"}, {"close/race-with-grant", "was closed while its call for it was in flight"}},

			design: forgetful(),
		},
		{
			Name: "CloseIsNothing", Flaw: "does nothing on Close",
			KilledBy: []Kill{{"close/use-after-close", "must match ErrClosed"}, {"close/waiters", "has not returned"}, {"close/dead-server", "but A still believes in its lock"}},

			design: design{locker: func(e *env, c *driver.Client) distlock.Locker {
				return &open{Client: c, env: e}
			}},
		},
		{
			Name: "LeakyWatcher", Flaw: "starts a goroutine with every lock, and does not end it",
			Seen:     "",
			KilledBy: []Kill{{"leak/goroutines", "these goroutines are left"}},
			design:   inside(flaw{try: tryAndWatch}),
		},
	}
}

// declarationMutants do not say what they are.
func declarationMutants() []Mutant {
	return []Mutant{
		{
			Name: "HiddenQueue", Flaw: "serves waiters in their order, but its harness declares that it does not",
			Seen:     "",
			KilledBy: []Kill{{"meta/driver-agrees", "Fair: the harness says no"}},
			design:   design{caps: func(c *conformance.Caps) { c.Fair = conformance.No }},
		},
		{
			Name: "Unthinking", Flaw: "declares neither capabilities nor bounds",
			Seen:     "",
			KilledBy: []Kill{{"meta/caps-declared", "is not declared"}, {"meta/timing-declared", "declare a bound"}},

			design: design{
				caps:   func(c *conformance.Caps) { *c = conformance.Caps{Backend: c.Backend} },
				timing: func(t *conformance.Timing) { *t = conformance.Timing{MinTTL: time.Millisecond} },
			},
		},
	}
}

// tryWithTable makes the table first, with one request to look for it and one to
// make it. A request takes a millisecond, or two clients would never overlap.
func tryWithTable(ctx context.Context, c *claim) (driver.Grant, error) {
	w := c.driver.world
	w.mu.Lock()
	there := w.tables
	w.mu.Unlock()
	if !there {
		time.Sleep(time.Millisecond)
		w.mu.Lock()
		there, w.tables = w.tables, true
		w.mu.Unlock()
		if there {
			return driver.Grant{}, errors.New("error 1050: table already exists")
		}
	}
	return c.inner.Try(ctx)
}

// fragile is a lock that must not be unlocked twice.
type fragile struct {
	*driver.Handle
	ended chan struct{}
}

// Unlock implements distlock.Lock.
func (l *fragile) Unlock(ctx context.Context) error {
	close(l.ended)
	return l.Handle.Unlock(ctx)
}

// closing is a Locker that must not be closed twice.
type closing struct {
	*driver.Client
	times atomic.Int64
}

// Close implements distlock.Locker.
func (l *closing) Close() error {
	if n := l.times.Add(1); n > 1 {
		return fmt.Errorf("closed twice (%d times)", n)
	}
	return l.Client.Close()
}

// open is a Locker that closes only when the check is over: a bubble must not be left
// with its goroutines.
type open struct {
	*driver.Client
	env  *env
	once sync.Once
}

// Close implements distlock.Locker.
func (l *open) Close() error {
	l.once.Do(func() { l.env.c.Cleanup(func() { _ = l.Client.Close() }) })
	return nil
}

// forgetful makes a driver that releases nothing once its client is closing.
func forgetful() design {
	var d design
	d.driver = func(e *env) driver.Driver {
		return e.inside(flaw{release: func(ctx context.Context, c *claim) error {
			if c.won && e.closing.Load() {
				return nil
			}
			return c.inner.Release(ctx)
		}})
	}
	d.locker = func(e *env, c *driver.Client) distlock.Locker { return &hasty{Client: c, env: e} }
	return d
}

// hasty is a Locker that has no time for releases.
type hasty struct {
	*driver.Client
	env *env
}

// Close implements distlock.Locker.
func (l *hasty) Close() error {
	l.env.closing.Store(true)
	return l.Client.Close()
}

// tryAndWatch starts a goroutine that ends with the check: a bubble must not be left
// with one in it.
func tryAndWatch(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err == nil && c.driver.c != nil {
		over := make(chan struct{})
		c.driver.c.Cleanup(func() { close(over) })
		go func() { <-over }()
	}
	return g, err
}
