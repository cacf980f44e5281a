package mutants

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// waitedMutants go wrong with names that somebody waits for, and with holds that were
// ended or are stuck behind the back of their holder.
func waitedMutants() []Mutant {
	return []Mutant{
		{
			Name: "QueueFolds", Flaw: "keeps one queue for names that differ in case, though not one lock",
			Seen:     "a collation that ignores case, in one of two tables",
			KilledBy: []Kill{{"names/waited-apart", "B waits for"}},
			design:   inside(flaw{try: tryUnlessLikeWaited(strings.EqualFold), release: releaseFromQueue}),
		},
		{
			Name: "BargesAtExpiry", Flaw: "lets a TryLock overtake the queue when a lease has run out, until the first in line has looked",
			KilledBy: []Kill{{"fair/expiry-does-not-barge", "although B had been queued"}},
			design:   fifoDesign(flaw{try: tryBargingAtExpiry, release: releaseRemembered}),
		},
		{
			Name: "HandsOnTwice", Flaw: "hands the name on with every release of its last holder, also with a copy that arrives late",
			Seen:     "a release that is sent again, in a driver where releases hand over",
			KilledBy: []Kill{{"fault/repeated-release", "had arrived a second time"}, {"pair/reply-lost", "two holders at once"}},
			design:   inside(flaw{release: releaseHandingOn}),
		},
		{
			Name: "TermUnlockBlind", Flaw: "takes every release of a fixed term for a success",
			KilledBy: []Kill{{"after/breaks", "was broken, and its Unlock"}},
			design: inside(flaw{release: func(ctx context.Context, c *claim) error {
				if err := c.inner.Release(ctx); !c.asked.NoRenewal || !errors.Is(err, distlock.ErrLost) {
					return err
				}
				return nil
			}}),
		},
		{
			Name: "BatchGuesses", Flaw: "takes a renewal that got no answer for done, as others of its batch were",
			KilledBy: []Kill{{"isolate/stuck-holder", "as if it had been renewed meanwhile"}},
			design:   inside(flaw{batch: batchGuessing}),
		},
		{
			Name: "GoroutinePerLock", Flaw: "starts a goroutine for every lock, and ends it when the client is closed",
			KilledBy: []Kill{{"leak/pile", "after 45 more"}},
			design:   design{driver: piling},
		},
	}
}

// tryUnlessLikeWaited refuses a free name if somebody waits for one alike.
func tryUnlessLikeWaited(alike func(a, b string) bool) func(context.Context, *claim) (driver.Grant, error) {
	return func(ctx context.Context, c *claim) (driver.Grant, error) {
		c.driver.mu.Lock()
		for name, e := range c.driver.entries {
			if name != c.asked.Name && alike(name, c.asked.Name) && len(e.queue) > 0 {
				c.driver.mu.Unlock()
				return driver.Grant{}, &distlock.HeldError{Remaining: c.asked.TTL}
			}
		}
		c.driver.mu.Unlock()
		g, err := c.inner.Try(ctx)
		c.driver.with(c.asked.Name, func(e *entry) {
			e.drop(func(o *claim) bool { return o == c })
			if errors.Is(err, distlock.ErrHeld) && !c.asked.NoWait {
				e.queue = append(e.queue, c)
			}
		})
		return g, err
	}
}

func releaseFromQueue(ctx context.Context, c *claim) error {
	c.driver.with(c.asked.Name, func(e *entry) { e.drop(func(o *claim) bool { return o.asked.Owner == c.asked.Owner }) })
	return c.inner.Release(ctx)
}

// tryBargingAtExpiry knows of a release that the queue comes first, but not of an expiry.
func tryBargingAtExpiry(ctx context.Context, c *claim) (driver.Grant, error) {
	refused := false
	c.driver.with(c.asked.Name, func(e *entry) {
		e.drop(func(o *claim) bool { return o != c && o.silent() })
		refused = c.asked.NoWait && e.ended && len(e.queue) > 0 && !slices.Contains(e.queue, c)
	})
	if refused {
		return driver.Grant{}, &distlock.HeldError{Remaining: c.asked.TTL}
	}
	g, err := tryInQueue(ctx, c)
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) { e.ended = false })
	}
	return g, err
}

func releaseRemembered(ctx context.Context, c *claim) error {
	if c.won {
		c.driver.with(c.asked.Name, func(e *entry) { e.ended = true })
	}
	return releaseInQueue(ctx, c)
}

// releaseHandingOn ends whatever hold follows on one that was released before.
func releaseHandingOn(ctx context.Context, c *claim) error {
	again := false
	c.driver.with(c.asked.Name, func(e *entry) {
		again = e.former == c.asked.Owner
		if c.won {
			e.former = c.asked.Owner
		}
	})
	err := c.inner.Release(ctx)
	if st, failed := c.driver.mem.Inspect(ctx, c.asked.Name); again && failed == nil && st.Held && st.Waiters > 0 {
		_ = c.driver.mem.Break(ctx, c.asked.Name, st.Token)
	}
	return err
}

func batchGuessing(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	renewEach(ctx, batch)
	for i, r := range batch {
		if r.Err != nil && !isLost(r) {
			batch[i].Grant, batch[i].Err = driver.Grant{TTL: r.TTL}, nil
		}
	}
}

func piling(e *env) driver.Driver {
	closed := make(chan struct{})
	end := sync.OnceFunc(func() { close(closed) })
	return e.inside(flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err == nil {
				go func() { <-closed }()
			}
			return g, err
		},
		close: func(*env) error { end(); return nil },
	})
}

// prefixMutants take names for others that begin with them when a waiter gives up.
func prefixMutants() []Mutant {
	return []Mutant{
		{
			Name: "LeavesByPrefix", Flaw: "removes, with a waiter that gives up, those for all names that begin with its own",
			Seen:     "a delete by prefix without a separator behind the name, on etcd",
			KilledBy: []Kill{{"names/left-apart", "nobody of the 2 who wait"}},
			design: ledger(ledgerFlaw{left: func(s *ledgerStore, r *row, _ *ledgerClaim) bool {
				s.longer(r, func(o *row) { o.queue = nil })
				return false
			}}),
		},
		{
			Name: "UndoesByPrefix", Flaw: "ends, with a call that gives up, what its client holds of names that begin with its own",
			KilledBy: []Kill{{"names/left-apart", "two holders at once"}},
			design: ledger(ledgerFlaw{left: func(s *ledgerStore, r *row, c *ledgerClaim) bool {
				s.longer(r, func(o *row) {
					if o.hold != nil && o.hold.client == c.driver.client {
						o.end("released")
						s.handOff(o, time.Now())
					}
				})
				return false
			}}),
		},
	}
}

// longer calls f with the rows of the other names that begin with that of r.
func (s *ledgerStore) longer(r *row, f func(o *row)) {
	for name, o := range s.rows {
		if o != r && strings.HasPrefix(name, r.name) {
			f(o)
		}
	}
}
