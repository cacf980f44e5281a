package mutants

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// overlookedMutants go wrong on ways that lie beside those that most take: by an expiry instead of a release, by a Break before a Sweep,
// with more names or waiters than usual, or after a reconnect.
func overlookedMutants() []Mutant {
	const looks = "looks in one step and acts in another"
	return []Mutant{
		{
			Name: "LooksAtDead", Flaw: "looks with one request and takes over with a second, on a Lock that finds an expired entry",
			KilledBy: []Kill{{"pair/lock-expired", looks}},
			design:   takingOver(func(c *claim) bool { return !c.refused }),
		},
		{
			Name: "LooksAtDying", Flaw: "looks with one request and takes over with a second, when a Lock has waited for a lease to run out",
			KilledBy: []Kill{{"pair/lock-until-expiry", looks}},
			design:   takingOver(func(c *claim) bool { return c.refused }),
		},
		{
			Name: "SweepsByPrefix", Flaw: "removes all names that begin with one that is free when it sweeps, also those that are held",
			Seen:     "keys that are found by a pattern",
			KilledBy: []Kill{{"sweep/held", "the store was swept"}},
			design:   sweeping(ways{since: released, also: strings.HasPrefix}),
		},
		{
			Name: "SweepsFolded", Flaw: "removes all names that differ from one that is free in case only when it sweeps, also those that are held",
			Seen:     "a column with a collation that ignores case",
			KilledBy: []Kill{{"sweep/held", "the store was swept"}},
			design:   sweeping(ways{since: released, also: strings.EqualFold}),
		},
		{
			Name: "BreakThenSweep", Flaw: "counts the tokens of a name again from the one before when it was swept after a Break",
			Seen:     "a floor of tokens that a release writes",
			KilledBy: []Kill{{"sweep/tokens", "a sweep"}},
			design:   sweeping(ways{since: released, unbroken: true}),
		},
		{
			Name: "SweepsBy32Bits", Flaw: "counts the idle time in milliseconds by an unsigned number of 32 bits, which 50 days are too many for",
			KilledBy: []Kill{{"sweep/exact", "was unlocked just now"}},
			design:   sweeping(ways{since: released, in32Bits: true}),
		},
		{
			Name: "SweepsGraves", Flaw: "forgets with a sweep which claims were released, and grants them what they ask for late",
			Seen:     "rows that are deleted with the list of the undone in them",
			KilledBy: []Kill{{"pair/left-late", "something was left behind"}},
			design:   design{store: ledger(ledgerFlaw{}).store, driver: sweepingGraves},
		},
	}
}

// unboundedMutants have too little room for many waiters, or too much for the dead, and do not notice an end.
func unboundedMutants() []Mutant {
	return []Mutant{
		{
			Name: "SixtyFourWakeUps", Flaw: "loses wake-ups when more than 64 names of a client are released at a time",
			Seen:     "a buffered channel, and a send that does not block",
			KilledBy: []Kill{{"handover/many-names", "is still waiting for"}},
			design:   design{driver: wakingFew},
		},
		{
			Name: "WaiterDials", Flaw: "opens a connection for each waiter, which keeps it as long as it waits",
			KilledBy: []Kill{{"stress/pool-starvation", "a waiter must not keep one"}},
			design: design{driver: func(e *env) driver.Driver {
				return e.outside(flaw{wait: func(ctx context.Context, c *claim) error {
					defer e.link.Dial()()
					return c.inner.Wait(ctx)
				}})
			}},
		},
		{
			Name: "DeadByTurns", Flaw: "hands a name that nobody has taken on to the next in the queue, dead or not, for a fresh TTL each",
			KilledBy: []Kill{{"handover/dead-waiter", "which were before C in the queue"}},
			design:   relayed(relayFlaw{oneByOne: true}),
		},
		{
			Name: "TakesAgain", Flaw: "loses its holds with their connection, and quietly takes them again on the next one",
			Seen:     "GET_LOCK, advisory locks",
			KilledBy: []Kill{{"pair/request-lost", "two holders at once"}, {"pair/reply-lost", "two holders at once"}},
			design:   outside(flaw{renew: renewOnNext}),
		},
		{
			Name: "RenewsExpired", Flaw: "revives an entry that has expired if nobody has taken it since",
			Seen:     "UPDATE with a WHERE for the owner, and none for the expiry",
			KilledBy: []Kill{{"renew/late-request", "must not revive it"}},
			design:   inside(flaw{try: tryAndNote, renew: renewExpired, release: releaseLive}),
		},
	}
}

// sweepingGraves sweeps a ledger.
func sweepingGraves(e *env) driver.Driver {
	s := e.mem.(*ledgerDriver).store
	e.link.Remembers = true
	return e.inside(flaw{sweep: func(_ context.Context, _ *flawed, idle time.Duration) (removed int, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		clear(s.gone)
		for name := range s.rows {
			r := s.row(name, now)
			if s.live(r, now); r.hold == nil && len(r.queue) == 0 && now.Sub(r.freed) >= idle {
				delete(s.rows, name)
				removed++
			}
		}
		return removed, nil
	}})
}

// takingOver is a plain driver that takes over what has expired by two requests, for a Lock for which when is true.
func takingOver(when func(c *claim) bool) design {
	f := plain(flaw{
		try: func(ctx context.Context, c *claim) (g driver.Grant, err error) {
			dead := false
			c.driver.with(c.asked.Name, func(e *entry) { dead = !e.ended && e.owner != c.asked.Owner })
			if dead && !c.asked.NoWait && when(c) {
				g, err = lookThenTake(ctx, c)
			} else {
				g, err = c.inner.Try(ctx)
			}
			c.refused = c.refused || errors.Is(err, distlock.ErrHeld)
			c.noteGrant(err)
			return g, err
		},
		release: releaseHeard,
	})
	return outside(f)
}

// wakingFew passes wake-ups on one by one, and has room for 64 meanwhile.
func wakingFew(e *env) driver.Driver {
	room := make(chan struct{}, 64)
	return e.inside(flaw{wait: func(ctx context.Context, c *claim) error {
		if err := c.inner.Wait(ctx); err != nil {
			return err
		}
		select {
		case room <- struct{}{}:
			time.Sleep(time.Millisecond)
			<-room
			return nil
		default:
			<-ctx.Done()
			return ctx.Err()
		}
	}})
}

// renewExpired renews the entry that was the last of its name, be it over or not.
func renewExpired(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	revived := false
	c.driver.with(c.asked.Name, func(e *entry) {
		if err == nil {
			e.expires = time.Now().Add(g.TTL)
		}
		revived = errors.Is(err, distlock.ErrLost) && !e.ended && e.owner == c.asked.Owner && !time.Now().Before(e.expires)
	})
	if revived {
		return renewAnew(ctx, c, ttl)
	}
	return g, err
}

// releaseHeard notes a release that has reached the store.
func releaseHeard(ctx context.Context, c *claim) error {
	if err := c.inner.Release(ctx); err != nil {
		return err
	}
	return releaseKnown(ctx, c)
}

// releaseLive does not look at what has expired.
func releaseLive(ctx context.Context, c *claim) error {
	over := false
	c.driver.with(c.asked.Name, func(e *entry) { over = !time.Now().Before(e.expires) })
	if over {
		return c.inner.Release(ctx)
	}
	return releaseKnown(ctx, c)
}

// renewOnNext loses the hold with the connection. The next one is there a millisecond later.
func renewOnNext(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	if !isSilent(err) {
		return g, err
	}
	ctx = context.WithoutCancel(ctx)
	_ = remove(ctx, c.driver.mem, c.asked.Name)
	time.Sleep(time.Millisecond)
	if _, again := c.as(func(r *driver.Request) { r.NoWait, r.TTL = true, ttl }).Try(ctx); again != nil {
		return g, err
	}
	return driver.Grant{TTL: ttl}, nil
}
