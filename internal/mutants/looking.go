package mutants

import (
	"context"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// lookingMutants look with one request and act with the next, whatever has happened between.
func lookingMutants() []Mutant {
	const says = "looks in one step and acts in another"
	return []Mutant{
		{
			Name: "LookThenTake", Flaw: "looks with one request whether the name is free, and writes its entry with a second",
			Seen:     "GET, then SET; SELECT, then UPDATE",
			KilledBy: []Kill{{"pair/try-free", says}, {"pair/try-released", says}, {"pair/try-expired", says}, {"pair/lock-held", says}},
			design:   outside(plain(flaw{try: lookThenTake})),
		},
		{
			Name: "LooksAtFirst", Flaw: "looks with one request and takes with another, on a Lock of a name that nobody has had yet",
			Seen:     "SELECT, then INSERT, beside an UPDATE with a condition",
			KilledBy: []Kill{{"pair/lock-free", says}},
			design: outside(plain(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				fresh := false
				c.driver.with(c.asked.Name, func(e *entry) { fresh = e.owner == "" })
				if c.asked.NoWait || !fresh {
					return tryAndSign(ctx, c)
				}
				g, err := lookThenTake(ctx, c)
				c.driver.with(c.asked.Name, func(e *entry) { e.owner = c.asked.Owner })
				return g, err
			}})),
		},
		{
			Name: "LookThenUndo", Flaw: "looks with one request whether a call that has failed has left an entry, and deletes by name with a second",
			Seen:     "an atomic release, and a clean-up that was written later",
			KilledBy: []Kill{{"pair/undo", says}},
			design:   design{store: ledger(ledgerFlaw{}).store, driver: undoingLoosely},
		},
		{
			Name: "LookThenRenew", Flaw: "looks with one request whether the entry is its own, and writes it anew with a second",
			Seen:     "GET, compare, SET with a new expiry",
			KilledBy: []Kill{{"pair/extend", says}, {"pair/renewal", says}, {"pair/extend-broken", says}, {"pair/renewal-broken", says}},
			design:   outside(plain(flaw{renew: lookThenRenew})),
		},
	}
}

// look asks with a request of its own what there is of the name.
func (c *claim) look(ctx context.Context) (distlock.Status, error) {
	mem, name := c.driver.mem, c.asked.Name
	seen := make(chan distlock.Status, 1) // one element: the caller may have left when the answer comes
	err := c.driver.send(ctx, func(ctx context.Context) error {
		st, err := mem.Inspect(ctx, name)
		seen <- st
		return err
	})
	if err != nil {
		return distlock.Status{}, err
	}
	return <-seen, nil
}

// put writes the entry of c with a request of its own, over whatever there is.
func (c *claim) put(ctx context.Context, change func(*driver.Request)) (driver.Grant, error) {
	granted := make(chan driver.Grant, 1) // likewise
	err := c.driver.send(ctx, func(ctx context.Context) error {
		_ = remove(ctx, c.driver.mem, c.asked.Name) // ErrLost if nobody has it
		g, err := c.as(change).Try(ctx)
		granted <- g
		return err
	})
	if err != nil {
		return driver.Grant{}, err
	}
	return <-granted, nil
}

func lookThenTake(ctx context.Context, c *claim) (driver.Grant, error) {
	st, err := c.look(ctx)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case st.Held:
		return c.inner.Try(ctx) // it may be its own
	}
	return c.put(ctx, func(r *driver.Request) { r.NoWait = true })
}

func lookThenRenew(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	st, err := c.look(ctx)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case !st.Held || st.Token != c.token:
		return driver.Grant{}, distlock.ErrLost
	case ttl <= st.Remaining:
		return c.inner.Renew(ctx, ttl)
	}
	g, err := c.put(ctx, func(r *driver.Request) { r.NoWait, r.TTL = true, ttl })
	if err == nil {
		c.token = g.Token
	}
	return g, err
}

// step is one request of a claim about the row of its name.
func (s *ledgerStore) step(ctx context.Context, c *claim, f func(r *row)) error {
	return c.driver.send(ctx, func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		f(s.row(c.asked.Name, time.Now()))
		return nil
	})
}

// undoingLoosely undoes what was not heard of in two requests, and releases what was in one.
func undoingLoosely(e *env) driver.Driver {
	s := e.mem.(*ledgerDriver).store
	return e.outside(flaw{release: func(ctx context.Context, c *claim) error {
		if c.won {
			return c.inner.Release(ctx)
		}
		mine := make(chan bool, 1) // one element: the caller may have left when the answer comes
		err := s.step(ctx, c, func(r *row) {
			s.gone[c.asked.Owner] = true
			mine <- r.hold != nil && r.hold.request.Owner == c.asked.Owner
		})
		if err != nil {
			return err
		}
		if !<-mine {
			return c.inner.Release(ctx)
		}
		return s.step(ctx, c, func(r *row) {
			if r.hold != nil {
				r.end("released")
				s.handOff(r, time.Now())
			}
		})
	}})
}
