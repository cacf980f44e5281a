package mutants

import (
	"context"
	"time"

	"github.com/distlock-go/distlock/driver"
)

// leaseMutants let all locks of a client live by one lease in the store, and do not
// keep apart what belongs to a lock and what to the lease.
func leaseMutants() []Mutant {
	return []Mutant{
		{
			Name: "OldLease", Flaw: "lets a new lock live by the lease of its client, which was renewed some time ago, and grants it the whole TTL",
			Seen:     "a session or lease that is shared, and whose rest nobody asks for",
			KilledBy: []Kill{{"batch/fresh-beside-old", "before the lease of its dead holder can have ended"}},
			design:   design{driver: sharingLease(oldLease)},
		},
		{
			Name: "LongLease", Flaw: "makes all locks of a client last for as long as the longest that one of them was extended by",
			Seen:     "a lease that is shared, and only ever grows",
			KilledBy: []Kill{{"batch/fresh-beside-old", "It had to be free at"}},
			design:   design{driver: sharingLease(longLease)},
		},
		{
			Name: "RevokesLease", Flaw: "ends all locks of a client when one of them is unlocked",
			Seen:     "a lease that is shared, and revoked to free one key",
			KilledBy: []Kill{{"batch/others-unmoved", "was granted"}},
			design:   design{driver: sharingLease(revokeLease)},
		},
	}
}

// lease is what all locks of a client live by.
type lease struct {
	mu     semaphore
	ends   time.Time
	ttl    time.Duration // the longest that was asked for
	claims map[*claim]bool
}

// semaphore is a mutex that may be held during a request: in virtual time, to wait for
// one of package sync keeps the time from going on, and so the request from its end.
type semaphore chan struct{}

func (g semaphore) Lock()   { g <- struct{}{} }
func (g semaphore) Unlock() { <-g }

// sharingLease makes a driver with one lease for all its claims.
func sharingLease(flawed func(l *lease) flaw) func(e *env) driver.Driver {
	return func(e *env) driver.Driver {
		return e.inside(flawed(&lease{mu: make(semaphore, 1), claims: make(map[*claim]bool)}))
	}
}

// oldLease starts a lease with the first lock, renews it with every renewal, and
// otherwise leaves it as it is.
func oldLease(l *lease) flaw {
	return flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			g, err := c.inner.Try(ctx)
			if err != nil {
				return g, err
			}
			now := time.Now()
			if len(l.claims) == 0 || !now.Before(l.ends) {
				l.ends = now.Add(c.asked.TTL)
			}
			l.claims[c] = true
			return g, c.reset(ctx, min(l.ends.Sub(now), c.asked.TTL))
		},
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			g, err := c.inner.Renew(ctx, ttl)
			if end := time.Now().Add(ttl); err == nil && end.After(l.ends) {
				l.ends = end
			}
			return g, err
		},
		release: l.release,
	}
}

// longLease asks for the longest TTL that any of the locks has asked for.
func longLease(l *lease) flaw {
	longest := func(ttl time.Duration) time.Duration {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ttl = max(l.ttl, ttl)
		return l.ttl
	}
	return flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err == nil {
				_, err = c.inner.Renew(ctx, longest(c.asked.TTL))
			}
			return g, err
		},
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
			g, err := c.inner.Renew(ctx, longest(ttl))
			g.TTL = min(g.TTL, ttl)
			return g, err
		},
	}
}

func revokeLease(l *lease) flaw {
	return flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err == nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.claims[c] = true
			}
			return g, err
		},
		release: func(ctx context.Context, c *claim) error {
			err := l.release(ctx, c)
			if !c.won {
				return err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for o := range l.claims {
				_ = o.inner.Release(ctx)
			}
			clear(l.claims)
			return err
		},
	}
}

func (l *lease) release(ctx context.Context, c *claim) error {
	l.mu.Lock()
	delete(l.claims, c)
	l.mu.Unlock()
	return c.inner.Release(ctx)
}
