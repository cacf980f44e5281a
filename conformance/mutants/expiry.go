package mutants

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
)

// timers is what a flaw in an expiry may trip besides: checks in which a lease runs
// out.
var timers = []string{"expiry/*", "owner/*", "renew/*", "fence/*", "stress/*", "wait/wakes-on-expiry", "lost/*", "fault/*", "auto/*", "core/stale-residue", "close/dead-server"}

func expiryMutants() []Mutant {
	return []Mutant{
		{
			Name: "NoTTL", Flaw: "takes the name with one request and sets its expiry with a second",
			Seen:     "SETNX then EXPIRE, in countless libraries before SET NX PX",
			KilledBy: []Kill{{"expiry/ttl-atomic", "an entry without expiry"}},
			MayTrip:  []string{"fault/*-sweep"},
			Why:      "the fault hits between the two requests",
			design:   outside(flaw{try: tryThenExpire}),
		},
		{
			Name: "EarlyExpiry", Flaw: "rounds the TTL down to whole seconds",
			Seen:     "columns and options in seconds, filled by integer division",
			KilledBy: []Kill{{"expiry/not-early", "before the lease of A could have ended"}, {"expiry/granted-honest", "the store kept it for less than was asked for"}},
			MayTrip:  timers,
			Why:      "every other TTL that is no multiple of a second ends early as well",
			design: inside(flaw{
				caps:    func(c *distlock.Capabilities) { c.MinTTL = time.Second },
				request: func(_ *env, r *distlock.Request) { r.TTL = r.TTL.Truncate(time.Second) },
				try:     asAsked,
			}),
		},
		{
			Name: "NeverExpires", Flaw: "ignores the TTL",
			Seen:     "lock rows and files that only their owner removes",
			KilledBy: []Kill{{"expiry/eventually", "still cannot have"}, {"wait/wakes-on-expiry", "the lease of the dead A was over"}, {"core/stale-residue", "nobody had touched it since"}},
			MayTrip:  timers,
			Why:      "a lease has to run out in them",
			design: inside(flaw{
				request: func(_ *env, r *distlock.Request) { r.TTL = distlock.MaxTTL },
				try:     asAsked,
				renew:   renewAsAsked,
			}),
		},
		{
			Name: "StickyTTL", Flaw: "lets a grant end when the one before it would have ended",
			Seen:     "an upsert that leaves the column of the expiry out",
			KilledBy: []Kill{{"expiry/short-then-long", "although B held it until"}},
			MayTrip:  timers,
			Why:      "a name is taken again in them",
			design:   inside(flaw{try: trySticky}),
		},
	}
}

// clockMutants count from the wrong instant, or by the wrong clock.
func clockMutants() []Mutant {
	return []Mutant{
		{
			Name: "DeadlineFromReply", Flaw: "counts the holder's deadline from the reply",
			Seen:     "the obvious way to write it; redsync subtracts the time that has passed",
			KilledBy: []Kill{{"expiry/granted-honest", "not from the reply"}},
			MayTrip:  []string{"fault/latency", "stress/boundary-history", "renew/boundary", "stress/random-history"},
			Why:      "replies take time in them, while leases end",
			design:   outside(flaw{try: tryFromReply, renew: renewFromReply}),
		},
		{
			Name: "StatementTime", Flaw: "counts the TTL from when it began to wait for the name",
			Seen:     "NOW() in a statement that waits for a row lock, measured on MySQL",
			KilledBy: []Kill{{"expiry/wait-not-deducted", "the time that B waited was taken off its TTL"}},
			MayTrip:  []string{"stress/*"},
			Why:      "fixed terms are waited for in them",
			design:   inside(flaw{try: tryFromStatement}),
		},
		{
			Name: "ClientClock", Flaw: "judges an expiry that the server has set by the clock of whoever asks",
			Seen:     "ShedLock's JDBC provider without usingDbTime",
			KilledBy: []Kill{{"expiry/server-clock-judges", "was granted"}},
			MayTrip:  nil,
			design:   inside(flaw{try: tryByOwnClock}),
		},
	}
}

// tryThenExpire takes the name for ever, and for its TTL with a second request.
func tryThenExpire(ctx context.Context, c *claim) (g distlock.Grant, err error) {
	err = c.driver.send(ctx, func(ctx context.Context) error {
		_, err := c.as(func(r *distlock.Request) { r.TTL, r.NoWait = distlock.MaxTTL, true }).Try(ctx)
		return err
	})
	if err != nil && !errors.Is(err, distlock.ErrHeld) {
		return distlock.Grant{}, err
	}
	// memlock grants its own entry again, with the TTL of this claim; or, if the
	// name is held, it queues the claim.
	return c.inner.Try(ctx)
}

// asAsked reports the TTL that was asked for, whatever the store has got.
func asAsked(ctx context.Context, c *claim) (distlock.Grant, error) {
	g, err := c.inner.Try(ctx)
	g.TTL = c.asked.TTL
	return g, err
}

func renewAsAsked(ctx context.Context, c *claim, ttl time.Duration) (distlock.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	g.TTL = ttl
	return g, err
}

func trySticky(ctx context.Context, c *claim) (distlock.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	var rest time.Duration
	c.driver.with(c.asked.Name, func(e *entry) {
		if rest = time.Until(e.expires); rest <= 0 {
			rest = c.asked.TTL
			e.expires = time.Now().Add(rest)
		}
	})
	return g, c.reset(ctx, rest)
}

func tryFromReply(ctx context.Context, c *claim) (distlock.Grant, error) {
	g, err := c.inner.Try(ctx)
	g.Sent = time.Now()
	return g, err
}

func renewFromReply(ctx context.Context, c *claim, ttl time.Duration) (distlock.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	g.Sent = time.Now()
	return g, err
}

func tryFromStatement(ctx context.Context, c *claim) (distlock.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	return g, c.reset(ctx, c.asked.TTL-time.Since(c.began))
}

// tryByOwnClock breaks what has expired by the client's clock.
func tryByOwnClock(ctx context.Context, c *claim) (distlock.Grant, error) {
	st, err := c.driver.mem.Inspect(ctx, c.asked.Name)
	if err != nil {
		return distlock.Grant{}, err
	}
	c.driver.mu.Lock()
	ahead := c.driver.ahead
	c.driver.mu.Unlock()
	if st.Held && ahead+st.Remaining <= 0 {
		if err := c.driver.mem.Break(ctx, c.asked.Name); err != nil {
			return distlock.Grant{}, err
		}
	}
	return c.inner.Try(ctx)
}
