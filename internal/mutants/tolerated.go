package mutants

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
)

// AllTolerated returns drivers, each unusual in one way, that keep the contract.
func AllTolerated() []Tolerated {
	return slices.Concat(toleratedTimes(), toleratedTTLs(), toleratedWays(), toleratedSweepers(), toleratedAnswers(), toleratedHabits(), toleratedTypes(), toleratedBatches())
}

// toleratedTimes take their time, or tell it in their own way.
func toleratedTimes() []Tolerated {
	const (
		slow = 300 * time.Millisecond
		late = 6 * time.Second
	)
	return []Tolerated{
		{
			Name: "Slow", Unusual: "takes 300 ms for every call",
			design: outside(slowly(slow)),
		},
		{
			Name: "Distant", Unusual: "takes 30 ms for every request",
			design: outside(slowly(slow / 10)),
		},
		{
			Name: "RandomLag", Unusual: "lets go of a dead holder's name up to 4 s late, at random, as it declares",
			design: inside(flaw{
				caps:    func(c *driver.Capabilities) { c.ExpiryLag = 4 * time.Second },
				request: func(_ *env, r *driver.Request) { r.TTL += rand.N(4 * time.Second) },
				try:     asAsked,
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
					g, err := c.inner.Renew(ctx, ttl+rand.N(4*time.Second))
					g.TTL = ttl
					return g, err
				},
			}),
		},
		{
			Name: "LateExpiry", Unusual: "lets go of a dead holder's name 6 s late, as it declares",
			design: inside(flaw{
				caps:    func(c *driver.Capabilities) { c.ExpiryLag = late },
				request: func(_ *env, r *driver.Request) { r.TTL += late },
				try:     asAsked,
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
					g, err := c.inner.Renew(ctx, ttl+late)
					g.TTL -= late
					return g, err
				},
			}),
		},
	}
}

// toleratedTTLs grant another TTL than was asked for, as they declare.
func toleratedTTLs() []Tolerated {
	return []Tolerated{
		{
			Name: "Generous", Unusual: "grants up to a second more than was asked for, which is the granularity that it declares",
			design: inside(flaw{
				caps: func(c *driver.Capabilities) { c.MinTTL, c.TTLGranularity = time.Second, time.Second },
				request: func(_ *env, r *driver.Request) {
					r.TTL = min(r.TTL+rand.N(time.Second), distlock.MaxTTL)
				},
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
					return c.inner.Renew(ctx, min(ttl+rand.N(time.Second), distlock.MaxTTL))
				},
			}),
		},
		{
			Name: "CoarseTTL", Unusual: "rounds TTLs up to whole seconds, two at the least",
			design: inside(flaw{
				caps: func(c *driver.Capabilities) { c.MinTTL, c.TTLGranularity = 2*time.Second, time.Second },
				request: func(_ *env, r *driver.Request) {
					r.TTL = max((r.TTL + time.Second - 1).Truncate(time.Second), 2*time.Second)
				},
			}),
		},
	}
}

// toleratedWays do things in another way than most.
func toleratedWays() []Tolerated {
	const gap = 1_000_000
	return []Tolerated{
		{
			Name: "TokenGaps", Unusual: "leaves gaps of a million and more between its tokens",
			design: inside(flaw{
				try: func(ctx context.Context, c *claim) (driver.Grant, error) {
					g, err := c.inner.Try(ctx)
					g.Token *= gap
					return g, err
				},
				status: func(_ *env, st *distlock.Status) { st.Token *= gap },
				breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
					if token%gap != 0 {
						return distlock.ErrLost
					}
					return d.inner.Break(ctx, name, token/gap)
				},
			}),
		},
		{
			Name: "Unfair", Unusual: "keeps no queue and tells nobody of a release",
			design: inside(plain(flaw{})),
		},
		{
			Name: "LastFirst", Unusual: "wakes the last who has come to wait first, and declares no order",
			design: fifoDesign(flaw{
				caps:    func(c *driver.Capabilities) { c.Fair = false },
				try:     tryAny,
				release: releaseToLast,
				breaks:  breakInQueue(wakeLast),
			}),
		},
		{
			Name: "KeepsRows", Unusual: "keeps a row for every name, with tokens of its own, until it is swept",
			design: sweeping(ways{since: released}),
		},
	}
}

// toleratedSweepers keep rows in another way than most.
func toleratedSweepers() []Tolerated {
	return []Tolerated{
		{
			Name: "RowsRemember", Unusual: "remembers in the row of a name what was released, which keeps it from being swept for as long",
			design: inside(rememberingRows()),
		},
		{
			Name: "KeepsTwoRows", Unusual: "keeps two rows for every name, one for its holder and one for its tokens, until they are swept",
			design: inside(sweptRows(func(ctx context.Context, d *flawed, idle time.Duration) (int, error) {
				n, err := ways{since: released}.sweep(ctx, d, idle)
				return 2 * n, err
			})),
		},
		{
			Name: "KeepsBroken", Unusual: "keeps rows of those names only that were broken",
			design: keepingBroken(),
		},
		{
			Name: "DatesCoarsely", Unusual: "counts in tens of seconds, as it declares, and sweeps nothing that may have been idle for less than was asked for",
			design: inside(coarseRows(10 * time.Second)),
		},
		{
			Name: "ShortSessions", Unusual: "extends a lock to five quarters of its TTL at the most, as it declares, and keeps rows until it is swept",
			design: inside(extendingLittle()),
		},
	}
}

func sweptRows(sweep func(context.Context, *flawed, time.Duration) (int, error)) flaw {
	f := rows()
	f.sweep = sweep
	return f
}

// keepingBroken dates no row but those of names that were broken, from then on, and sweeps those that have a date.
func keepingBroken() design {
	f := rows()
	f.breaks = func(ctx context.Context, d *flawed, name string, token int64) error {
		err := breakNumbered(ctx, d, name, token)
		if err == nil {
			d.with(name, func(e *entry) { e.seen, e.expires = true, time.Now() })
		}
		return err
	}
	f.sweep = ways{since: func(e *entry) time.Time {
		if e.seen {
			return e.expires
		}
		return time.Now()
	}}.sweep
	return inside(f)
}

// rememberingRows is rows for a store that has to refuse what arrives after its release.
func rememberingRows() flaw {
	f := rows()
	release := f.release
	f.release = func(ctx context.Context, c *claim) error {
		c.driver.with(c.asked.Name, func(e *entry) { e.former = c.asked.Owner })
		return release(ctx, c)
	}
	f.sweep = ways{since: func(e *entry) time.Time {
		if e.former != "" && time.Since(e.expires) < driver.MaxLate {
			return time.Now()
		}
		return e.expires
	}}.sweep
	return f
}

// coarseRows is rows for a store that rounds TTLs and dates up to a multiple of grain.
func coarseRows(grain time.Duration) flaw {
	up := func(d time.Duration) time.Duration { return (d + grain - 1).Truncate(grain) }
	f := rows()
	f.caps = func(c *driver.Capabilities) { c.MinTTL, c.TTLGranularity = grain, grain }
	f.request = func(_ *env, r *driver.Request) { r.TTL = up(r.TTL) }
	f.sweep = func(ctx context.Context, d *flawed, idle time.Duration) (int, error) {
		now := time.Now()
		past := now.Sub(now.Truncate(grain)) // now is rounded down
		since := func(e *entry) time.Time { return e.expires.Add(grain - 1).Truncate(grain).Add(past) }
		return ways{since: since}.sweep(ctx, d, up(idle))
	}
	return f
}

// extendingLittle is rows for a store that makes a session for the TTL of a lock.
func extendingLittle() flaw {
	f := sweptRows(ways{since: released}.sweep)
	f.caps = func(c *driver.Capabilities) { c.MaxExtend = 1.25 }
	renew := f.renew
	f.renew = func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
		most := c.asked.TTL * 13 / 10
		if ttl > most && c.asked.NoRenewal {
			return driver.Grant{}, &driver.Fault{Fate: driver.Answered, Err: fmt.Errorf("%w: allowed is %v", distlock.ErrInvalid, most)}
		}
		return renew(ctx, c, min(ttl, most))
	}
	return f
}

// toleratedAnswers answer, or declare, in another way than most.
func toleratedAnswers() []Tolerated {
	return []Tolerated{
		{
			Name: "EarlyLost", Unusual: "counts its leases from a sixth of their TTL before they were asked for",
			design: inside(flaw{
				try: func(ctx context.Context, c *claim) (driver.Grant, error) {
					g, err := c.inner.Try(ctx)
					g.Sent = time.Now().Add(-g.TTL / 6)
					return g, err
				},
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
					g, err := c.inner.Renew(ctx, ttl)
					g.Sent = time.Now().Add(-g.TTL / 6)
					return g, err
				},
			}),
		},
		{
			Name: "TellsHolder", Unusual: "says with each refusal all that it knows of the holder",
			design: refusing(func(_ *claim, st distlock.Status, held *driver.Held) {
				held.Holder, held.Token = st.Holder, st.Token
			}),
		},
		{
			Name: "TellsAge", Unusual: "knows how long ago a lock was acquired, in whole tenths of a second, and no date",
			design: inside(flaw{status: func(_ *env, st *distlock.Status) {
				if st.Held {
					now := time.Now()
					st.AcquiredAt = now.Add(-now.Sub(st.AcquiredAt).Truncate(time.Second / 10))
				}
			}}),
		},
		{
			Name: "ReleaseTwice", Unusual: "loses the reply to one release in twenty, and has to ask again",
			design: outside(flaw{release: releaseTwice}),
		},
		{
			Name: "Survivor", Unusual: "declares that its locks survive a failover, which they do",
			design: inside(flaw{caps: claimsQuorum}),
		},
		{
			Name: "NoInspector", Unusual: "cannot be looked into, neither by its clients nor by the harness",
			design: design{
				driver: func(e *env) driver.Driver { return e.link.Driver(onlyDriver{e.mem}) },
				caps:   func(c *conformance.Caps) { c.Inspector = conformance.No },
			},
		},
	}
}

// slowly delays the return of every call.
func slowly(d time.Duration) flaw {
	around := func(f func()) {
		f()
		time.Sleep(d)
	}
	return flaw{
		caps: func(c *driver.Capabilities) { c.MinTTL = 8 * d },
		try: func(ctx context.Context, c *claim) (g driver.Grant, err error) {
			around(func() { g, err = c.inner.Try(ctx) })
			return g, err
		},
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (g driver.Grant, err error) {
			around(func() { g, err = c.inner.Renew(ctx, ttl) })
			return g, err
		},
		release: func(ctx context.Context, c *claim) (err error) {
			around(func() { err = c.inner.Release(ctx) })
			return err
		},
	}
}

// tryAny grants any request for a free name.
func tryAny(ctx context.Context, c *claim) (driver.Grant, error) {
	return c.tryAt(ctx, func([]*claim) bool { return true })
}

// releaseTwice loses a reply only if there is something to release: after a loss,
// nobody could tell if the answer got lost as well.
func releaseTwice(ctx context.Context, c *claim) error {
	st, err := c.driver.mem.Inspect(ctx, c.asked.Name)
	if err == nil && st.Held && st.Token == c.token && rand.IntN(20) == 0 {
		c.driver.link.CutReply(1)
	}
	return c.inner.Release(ctx)
}

func releaseToLast(ctx context.Context, c *claim) error {
	err := c.inner.Release(ctx)
	c.driver.with(c.asked.Name, func(e *entry) {
		e.drop(func(o *claim) bool { return o == c })
		wakeLast(e)
	})
	return err
}

func wakeLast(e *entry) {
	if n := len(e.queue); n > 0 {
		e.queue[n-1].wakeUp()
	}
}

// onlyDriver hides what a driver can do besides.
type onlyDriver struct{ driver.Driver }
