package mutants

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// shorter makes a driver that keeps another TTL in the store than it says, from a Try
// and from a renewal.
func shorter(kept func(ttl time.Duration) time.Duration) flaw {
	return flaw{
		request: func(_ *env, r *driver.Request) { r.TTL = max(kept(r.TTL), 1) },
		try:     asAsked,
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
			g, err := c.inner.Renew(ctx, max(kept(ttl), 1))
			g.TTL = ttl
			return g, err
		},
	}
}

// longMutants get long or uneven TTLs wrong.
func longMutants() []Mutant {
	const ends = "is shorter than was asked for"
	return []Mutant{
		{
			Name: "Bits31", Flaw: "keeps a TTL in 31 bits of milliseconds, which is 25 days",
			Seen:     "columns and options of 32 bits",
			KilledBy: []Kill{{"time/long-terms", ends}},
			design: inside(shorter(func(ttl time.Duration) time.Duration {
				return time.Duration(int32(ttl/time.Millisecond)&0x7fffffff)*time.Millisecond + ttl%time.Millisecond
			})),
		},
		{
			Name: "Minutes", Flaw: "counts a TTL of more than an hour in whole minutes",
			KilledBy: []Kill{{"time/long-terms", ends}},
			design: inside(shorter(func(ttl time.Duration) time.Duration {
				if ttl > time.Hour {
					return ttl.Truncate(time.Minute)
				}
				return ttl
			})),
		},
		{
			Name: "SilentCap", Flaw: "keeps no lease for longer than a day, and does not say so",
			KilledBy: []Kill{{"time/long-terms", ends}},
			design:   inside(shorter(func(ttl time.Duration) time.Duration { return min(ttl, 24*time.Hour) })),
		},
		{
			Name: "HonestCap", Flaw: "keeps no lease for longer than an hour, says so in its grants, and not in what it declares",
			KilledBy: []Kill{{"time/deadline-shows", ends}, {"time/long-terms", "with a TTL of"}},
			design:   inside(flaw{request: func(_ *env, r *driver.Request) { r.TTL = min(r.TTL, time.Hour) }}),
		},
		{
			Name: "RoundedFar", Flaw: "rounds TTLs up to whole minutes, and declares milliseconds",
			KilledBy: []Kill{{"after/expires", " still "}, {"time/untouched", "was the first who asked"}},
			design:   inside(shorter(func(ttl time.Duration) time.Duration { return (ttl + time.Minute - 1).Truncate(time.Minute) })),
		},
	}
}

// lingerMutants let leases last beyond their end.
func lingerMutants() []Mutant {
	return []Mutant{
		{
			Name: "SessionOutlives", Flaw: "keeps what could not be released for as long as its client lives, however long ago the release was given up",
			Seen:     "zklock.New, on a session that lasted through an outage",
			KilledBy: []Kill{{"fault/long-outage", "had given the name up"}},
			design:   inside(shorter(func(time.Duration) time.Duration { return distlock.MaxTTL })),
		},
		{
			Name: "LagTenth", Flaw: "lets go of a dead holder's name a twentieth of the TTL late, and declares no lag",
			KilledBy: []Kill{{"after/expires", " still "}, {"time/long-terms", "the store says that"}},
			design:   inside(shorter(func(ttl time.Duration) time.Duration { return ttl * 21 / 20 })),
		},
		{
			Name: "LagOfMany", Flaw: "lets go of a dead holder's names the later the more names there are",
			KilledBy: []Kill{{"expiry/mass-expiry", "still cannot have"}},
			design:   inside(flaw{try: tryInCrowd}),
		},
		{
			Name: "LazyExpiry", Flaw: "lets a lease end when somebody asks for the name, who is refused all the same",
			KilledBy: []Kill{{"time/untouched", "was the first who asked"}},
			design:   inside(flaw{try: tryLazily, release: releaseKnown}),
		},
		{
			Name: "OneLease", Flaw: "has all locks of a client live by one lease, of the longest TTL among them",
			Seen:     "sessions that are shared",
			KilledBy: []Kill{{"after/expires", " still "}},
			design:   inside(flaw{try: tryShared}),
		},
	}
}

// tryInCrowd grants a lease that lasts longer for each name that the client has had.
func tryInCrowd(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	sts, _ := c.driver.mem.List(ctx, "")
	return g, c.reset(ctx, c.asked.TTL+time.Duration(len(sts))*time.Millisecond)
}

// tryLazily refuses the first request for a name after its lease has run out.
func tryLazily(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	stale := false
	c.driver.with(c.asked.Name, func(e *entry) {
		stale = !e.ended && e.owner != c.asked.Owner
		e.owner, e.ended = c.asked.Owner, false
	})
	st, _ := c.driver.mem.Inspect(ctx, c.asked.Name)
	if stale && st.Held {
		c.driver.with(c.asked.Name, func(e *entry) { e.ended = true })
		_ = c.inner.Release(ctx)
		return driver.Grant{}, &distlock.HeldError{}
	}
	return g, nil
}

func releaseKnown(ctx context.Context, c *claim) error {
	c.driver.with(c.asked.Name, func(e *entry) {
		if e.owner == c.asked.Owner {
			e.ended = true
		}
	})
	return c.inner.Release(ctx)
}

// tryShared lets the entry live for as long as the longest of the client's TTLs.
func tryShared(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	longest := c.asked.TTL
	c.driver.with("\x00longest of "+string(rune('0'+c.driver.id)), func(e *entry) {
		longest = max(longest, time.Duration(e.token))
		e.token = int64(longest)
	})
	return g, c.reset(ctx, longest)
}

// extensionMutants renew and extend wrongly where it shows late.
func extensionMutants() []Mutant {
	return []Mutant{
		{
			Name: "ExtendFromEnd", Flaw: "counts an extension from the end of the lease, and not from the call",
			KilledBy: []Kill{{"time/extend-fractions", "it had to be free by"}},
			design: inside(flaw{renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				st, _ := c.driver.mem.Inspect(ctx, c.asked.Name)
				g, err := c.inner.Renew(ctx, min(st.Remaining+ttl, distlock.MaxTTL))
				g.TTL = ttl
				return g, err
			}}),
		},
		{
			Name: "ExtendCap", Flaw: "ignores what an extension asks for beyond ten minutes",
			KilledBy: []Kill{{"time/extend-fractions", "before the lease of"}},
			design: inside(flaw{renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				g, err := c.inner.Renew(ctx, min(ttl, 10*time.Minute))
				g.TTL = ttl
				return g, err
			}}),
		},
		{
			Name: "ExtendsPastSession", Flaw: "declares how little more than the TTL of its session a lock can be extended by, and confirms more",
			KilledBy: []Kill{{"time/extend-fractions", "and was answered: nil"}},
			design: inside(flaw{
				caps: func(c *driver.Capabilities) { c.MaxExtend = 1.25 },
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
					g, err := c.inner.Renew(ctx, min(ttl, c.asked.TTL*13/10))
					g.TTL = ttl
					return g, err
				},
			}),
		},
		{
			Name: "RenewSets", Flaw: "sets the end of the lease when it renews in the background, also to an earlier one",
			KilledBy: []Kill{{"after/expires", "before the lease of A could end"}},
			design: inside(flaw{renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				g, err := c.inner.Renew(ctx, ttl)
				if err == nil && ttl == c.asked.TTL {
					err = c.reset(ctx, ttl)
				}
				return g, err
			}}),
		},
		{
			Name: "RenewNineTenths", Flaw: "renews by nine tenths of the TTL",
			KilledBy: []Kill{{"batch/own-ttl", "the store keeps it for another"}},
			design: inside(flaw{renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				g, err := c.inner.Renew(ctx, ttl*9/10)
				g.TTL = ttl
				return g, err
			}}),
		},
	}
}

// ageMutants renew a lock well at first, and not later.
func ageMutants() []Mutant {
	return []Mutant{
		{
			Name: "RenewTired", Flaw: "renews a lock a thousand times, and then only says so",
			KilledBy: []Kill{{"time/long-renewed", "was granted"}},
			design:   inside(flaw{renew: renewTired(1000)}),
		},
		{
			Name: "RenewRarely", Flaw: "asks the store for nothing while a lease that it was granted before has more left than the TTL",
			KilledBy: []Kill{{"time/rhythm", "no renewal has told it so"}},
			design:   inside(flaw{renew: renewRarely}),
		},
		{
			Name: "RenewADay", Flaw: "renews no lock that is older than a day",
			KilledBy: []Kill{{"time/long-renewed", "lost"}},
			design: inside(flaw{renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				if time.Since(c.began) > 24*time.Hour {
					return driver.Grant{}, distlock.ErrLost
				}
				return c.inner.Renew(ctx, ttl)
			}}),
		},
	}
}

func renewTired(times int64) func(context.Context, *claim, time.Duration) (driver.Grant, error) {
	return func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
		if atomic.AddInt64(&c.renewals, 1) > times {
			return driver.Grant{Token: c.token, TTL: ttl}, nil
		}
		return c.inner.Renew(ctx, ttl)
	}
}

func renewRarely(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	if time.Until(c.until) > ttl {
		return driver.Grant{Token: c.token, TTL: ttl}, nil
	}
	g, err := c.inner.Renew(ctx, ttl)
	if err == nil {
		c.until = time.Now().Add(ttl)
	}
	return g, err
}
