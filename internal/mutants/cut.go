package mutants

import (
	"context"
	"errors"
	"slices"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// cutMutants go wrong where the connection of a call breaks, and the store is there.
func cutMutants() []Mutant {
	return []Mutant{
		{
			Name: "WaiterFailsOnCut", Flaw: "takes a look of a waiter that had no answer for one that the store has refused for good",
			Seen:     "a client library that repeats a read, and so was trusted to hide every broken connection",
			KilledBy: []Kill{{"fault/waiter-cut", "Lock returned"}},
			design:   unanswered(driver.Answered, func(c *claim) bool { return c.refused }),
		},
		{
			Name: "WaiterFailsTwice", Flaw: "takes the second look in a row of a waiter that had no answer for one that the store has refused for good",
			Seen:     "a count of attempts",
			KilledBy: []Kill{{"fault/waiter-cut", "its connections broke for"}},
			design:   unanswered(driver.Answered, func(c *claim) bool { return c.refused && c.silences > 1 }),
		},
		{
			Name: "DownIsAgain", Flaw: "has a TryLock that cannot reach the store repeated for as long as its lease would last",
			Seen:     "a retry option without a bound",
			KilledBy: []Kill{{"fault/black-hole", "a TryLock fails at once"}},
			design:   unanswered(driver.Again, func(c *claim) bool { return c.asked.NoWait }),
		},
		{
			Name: "DownIsAgainForLock", Flaw: "has a first Lock that cannot reach the store repeated for as long as its lease would last",
			KilledBy: []Kill{{"fault/black-hole", "a Lock fails at once"}},
			design:   unanswered(driver.Again, func(c *claim) bool { return !c.asked.NoWait && !c.refused }),
		},
		{
			Name: "PlaceByConnection", Flaw: "takes its place in the queue from a waiter of which a request has failed",
			Seen:     "queues that belong to connections, as GET_LOCK's",
			KilledBy: []Kill{{"fault/waiter-cut", "D was served first"}},
			design: design{store: ledger(ledgerFlaw{}).store, driver: func(e *env) driver.Driver {
				s := e.mem.(*ledgerDriver).store
				return e.outside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
					g, err := c.inner.Try(ctx)
					if err != nil && !errors.Is(err, distlock.ErrHeld) {
						s.mu.Lock()
						defer s.mu.Unlock()
						if r := s.rows[c.asked.Name]; r != nil {
							r.queue = slices.DeleteFunc(r.queue, func(p *place) bool { return p.request.Owner == c.asked.Owner })
						}
					}
					return g, err
				}})
			}},
		},
	}
}

// unanswered is a driver that says of a Try without an answer, of some claims, that it had a fate.
func unanswered(f driver.Fate, of func(*claim) bool) design {
	return outside(plain(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
		g, err := c.inner.Try(ctx)
		if errors.Is(err, distlock.ErrHeld) {
			c.refused, c.silences = true, 0
		} else if err != nil && ctx.Err() == nil {
			if c.silences++; of(c) {
				err = &driver.Fault{Fate: f, Err: err}
			}
		}
		return g, err
	}}))
}
