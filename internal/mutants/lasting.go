package mutants

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// againMutants go wrong with what is extended a second time, or for long.
func againMutants() []Mutant {
	const hour = time.Hour
	return []Mutant{
		{
			Name: "SkipsRenewal", Flaw: "confirms a renewal without asking the store when nine tenths of the lease are left",
			KilledBy: []Kill{{"after/extends", "before the lease of A could end"}},
			design:   inside(flaw{renew: renewIfDue}),
		},
		{
			Name: "MergesRenewals", Flaw: "answers a renewal that follows another at once with what that one was told, as if it had been asked just now",
			KilledBy: []Kill{{"after/expires", "before the lease of A could end"}},
			design:   inside(flaw{renew: renewMerged}),
		},
		{
			Name: "ExtendsOnce", Flaw: "takes a second Extend for a renewal by the TTL that was first asked for",
			KilledBy: []Kill{{"after/extends", "but the Deadline is"}},
			design:   inside(flaw{renew: renewLongOnce}),
		},
		{
			Name: "RenewsByExtend", Flaw: "renews a lock that was extended by less than its TTL by no more than that from then on",
			Seen:     "one field for the TTL, which Extend sets",
			KilledBy: []Kill{{"renew/short-extends", "not renewed for its own TTL"}},
			design:   inside(flaw{renew: renewByLeast}),
		},
		{
			Name: "ExtendsByOwn", Flaw: "extends by the TTL that the lock was taken with, whatever is asked for, and confirms that",
			Seen:     "a TTL that is bound to the statement when the lock is taken",
			KilledBy: []Kill{{"time/extend-fractions", "before the lease of"}},
			design: inside(flaw{renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				g, err := c.inner.Renew(ctx, c.asked.TTL)
				g.TTL = max(g.TTL, ttl)
				return g, err
			}}),
		},
		{
			Name: "WholeMinutes", Flaw: "extends by whole minutes where it is an hour or more, and confirms the rest",
			KilledBy: []Kill{{"time/extend-fractions", "before the lease of"}},
			design: inside(flaw{renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				if ttl < hour {
					return c.inner.Renew(ctx, ttl)
				}
				g, err := c.inner.Renew(ctx, ttl.Truncate(time.Minute))
				g.TTL = max(g.TTL, ttl)
				return g, err
			}}),
		},
	}
}

// lastingMutants go wrong with what lasts for days.
func lastingMutants() []Mutant {
	const hour = time.Hour
	return []Mutant{
		{
			Name: "EndsAfterWeek", Flaw: "renews nothing that is older than a week",
			Seen:     "sessions and credentials with a maximal age",
			KilledBy: []Kill{{"time/months", "lost"}},
			design: inside(flaw{renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				if time.Since(c.began) > 7*24*hour {
					return driver.Grant{}, distlock.ErrLost
				}
				return c.inner.Renew(ctx, ttl)
			}}),
		},
		{
			Name: "BreaksYoung", Flaw: "breaks no lock that was acquired more than an hour ago",
			KilledBy: []Kill{{"time/months", "Break returned"}},
			design: inside(flaw{breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
				if st, err := d.inner.Inspect(ctx, name); err == nil && st.Held && time.Since(st.AcquiredAt) > hour {
					return distlock.ErrLost
				}
				return d.inner.Break(ctx, name, token)
			}}),
		},
		{
			Name: "DeafAfterHour", Flaw: "gives up waiting after an hour, with an error that it calls final",
			Seen:     "subscriptions that a server or a proxy closes when they are idle",
			KilledBy: []Kill{{"wait/for-days", "its context has not ended"}},
			design: inside(flaw{wait: func(ctx context.Context, c *claim) error {
				if time.Since(c.began) > hour {
					return &driver.Fault{Fate: driver.Answered, Err: errors.New("the subscription was closed")}
				}
				return c.inner.Wait(ctx)
			}}),
		},
	}
}

// busyMutants go wrong with what others wait for, or is held by a client that does
// something else meanwhile.
func busyMutants() []Mutant {
	return []Mutant{
		{
			Name: "YieldsToWaiters", Flaw: "ends a lock that others wait for after two terms",
			KilledBy: []Kill{{"wait/for-days", "while B waited for it"}},
			design:   inside(flaw{renew: renewUnlessWaited}),
		},
		{
			Name: "WaitingRenews", Flaw: "renews all that its client holds, fixed terms as well, when the client asks for a name that is held",
			Seen:     "a session that any sign of life prolongs",
			KilledBy: []Kill{{"after/expires", "it had to be free by"}},
			design:   design{driver: func(e *env) driver.Driver { return e.inside(holding(onRefusal)) }},
		},
		{
			Name: "ExtendsAll", Flaw: "extends all locks of its client that have the same TTL when one of them is extended",
			Seen:     "a lease that the locks of a client share by TTL",
			KilledBy: []Kill{{"after/expires", "it had to be free by"}},
			design:   design{driver: func(e *env) driver.Driver { return e.inside(holding(onExtend)) }},
		},
	}
}

// rest is how long the entry of c lasts, as the store says.
func (c *claim) rest(ctx context.Context) distlock.Status {
	st, err := c.driver.mem.Inspect(ctx, c.asked.Name)
	if err != nil || st.Token != c.token {
		return distlock.Status{}
	}
	return st
}

func renewIfDue(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	if st := c.rest(ctx); st.Held && st.Remaining > ttl*9/10 {
		return driver.Grant{Token: c.token, TTL: ttl}, nil
	}
	return c.inner.Renew(ctx, ttl)
}

func renewMerged(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	if ttl == c.asked.TTL && time.Since(c.until) < ttl/8 {
		return driver.Grant{Token: c.token, TTL: ttl}, nil
	}
	g, err := c.inner.Renew(ctx, ttl)
	if err == nil {
		c.until = time.Now()
	}
	return g, err
}

func renewLongOnce(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	if ttl > c.asked.TTL {
		if c.renewals++; c.renewals > 1 {
			ttl = c.asked.TTL
		}
	}
	return c.inner.Renew(ctx, ttl)
}

func renewByLeast(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	if ttl < c.asked.TTL {
		c.least = ttl
	}
	return c.inner.Renew(ctx, cmp.Or(c.least, ttl))
}

func renewUnlessWaited(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	if time.Since(c.began) > 2*c.asked.TTL && c.rest(ctx).Waiters > 0 {
		return driver.Grant{}, distlock.ErrLost
	}
	return c.inner.Renew(ctx, ttl)
}

// hand is what a client holds, as a driver with one session knows it.
type hand struct {
	mu     sync.Mutex
	claims map[*claim]bool
}

// each renews what is held and fits.
func (h *hand) each(ctx context.Context, ttl func(*claim) time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.claims {
		if d := ttl(c); d > 0 {
			_, _ = c.as(func(*driver.Request) {}).Renew(ctx, d)
		}
	}
}

func onRefusal(h *hand, f *flaw) {
	try := f.try
	f.try = func(ctx context.Context, c *claim) (driver.Grant, error) {
		g, err := try(ctx, c)
		if errors.Is(err, distlock.ErrHeld) {
			h.each(ctx, func(o *claim) time.Duration { return o.asked.TTL })
		}
		return g, err
	}
}

func onExtend(h *hand, f *flaw) {
	f.renew = func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
		g, err := c.inner.Renew(ctx, ttl)
		if err == nil && ttl > c.asked.TTL {
			h.each(ctx, func(o *claim) time.Duration {
				if o.asked.TTL == c.asked.TTL {
					return ttl
				}
				return 0
			})
		}
		return g, err
	}
}

// holding makes a driver that knows what its client holds.
func holding(wrong func(*hand, *flaw)) flaw {
	h := &hand{claims: make(map[*claim]bool)}
	f := flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err == nil {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.claims[c] = true
			}
			return g, err
		},
		release: func(ctx context.Context, c *claim) error {
			h.mu.Lock()
			delete(h.claims, c)
			h.mu.Unlock()
			return c.inner.Release(ctx)
		},
	}
	wrong(h, &f)
	return f
}
