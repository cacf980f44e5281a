package mutants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// historyMutants go wrong by what has come before, in the store or in the client.
func historyMutants() []Mutant {
	return slices.Concat(rowMutants(), queueRowMutants(), brokenRowMutants(), toldRowMutants(), failedMutants(), hopingMutants())
}

// rowMutants keep or show the row of a name wrongly.
func rowMutants() []Mutant {
	return []Mutant{
		{
			Name: "EmptyKeepsFormer", Flaw: "shows the text of the holder before for one that has none",
			Seen:     "COALESCE in an upsert",
			KilledBy: []Kill{{"after/shows", `was told that the holder is "before"`}},
			design: ledger(ledgerFlaw{granted: func(r *row) {
				if r.hold.text == "" {
					r.hold.text = r.last.text
				}
			}}),
		},
		{
			Name: "BrokenShowsNext", Flaw: "shows the token of the next grant for a name that was broken and is free",
			KilledBy: []Kill{{"inspect/free", "the next grant has"}},
			design: ledger(ledgerFlaw{status: func(_ *ledgerStore, r *row, st *distlock.Status) {
				if r.hold == nil && r.how == "broken" {
					st.Token++
				}
			}}),
		},
		{
			Name: "ListForgetsTerm", Flaw: "does not list a fixed term that was extended, once it is older than it was taken for",
			Seen:     "an index by expiry that only renewals write",
			KilledBy: []Kill{{"after/shows", "returned it 0 times"}},
			design: ledger(ledgerFlaw{unlists: func(r *row) bool {
				return r.hold.request.NoRenewal && time.Since(r.hold.acquired) > r.hold.request.TTL
			}}),
		},
		{
			Name: "CloseUntexts", Flaw: "shows no text of a holder once the client that had the name before is closed",
			KilledBy: []Kill{{"after/shows", `was told that the holder is ""`}},
			design: ledger(ledgerFlaw{
				close: func(s *ledgerStore, client int) {
					for name, r := range s.rows {
						s.notes[name] = s.notes[name] || r.last.client == client
					}
				},
				status: func(s *ledgerStore, r *row, st *distlock.Status) {
					if s.notes[r.name] {
						st.Holder = ""
					}
				},
			}),
		},
		{
			Name: "TinyShort", Flaw: "keeps a TTL of up to five milliseconds for one",
			KilledBy: []Kill{{"after/expires", "of nearly the shortest TTL"}},
			design: ledger(ledgerFlaw{lease: func(ttl time.Duration) time.Duration {
				if ttl <= 5*time.Millisecond {
					return min(ttl, time.Millisecond)
				}
				return ttl
			}}),
		},
	}
}

// queueRowMutants lose waiters, or what is to wake them.
func queueRowMutants() []Mutant {
	return []Mutant{
		{
			Name: "ExtendDropsQueue", Flaw: "removes those who wait when the lock is extended",
			Seen:     "a row that is replaced",
			KilledBy: []Kill{{"after/excludes", "extended while others waited"}},
			design: ledger(ledgerFlaw{renewed: func(r *row, ttl time.Duration) {
				if ttl > r.hold.request.TTL {
					r.queue = nil
				}
			}}),
		},
		{
			Name: "RenewDropsQueue", Flaw: "removes those who wait when the lock is renewed",
			KilledBy: []Kill{{"after/woken", "\"conf-"}},
			design: ledger(ledgerFlaw{renewed: func(r *row, ttl time.Duration) {
				if ttl <= r.hold.request.TTL {
					r.queue = nil
				}
			}}),
		},
		{
			Name: "LastLeavesAll", Flaw: "removes all who wait when the last of them gives up",
			KilledBy: []Kill{{"after/excludes", "is still waiting for"}},
			design: ledger(ledgerFlaw{left: func(_ *ledgerStore, r *row, c *ledgerClaim) bool {
				if at := r.at(c.request.Owner); at > 0 && at == len(r.queue)-1 {
					r.queue = nil
				}
				return false
			}}),
		},
		{
			Name: "LeaverUnsubscribes", Flaw: "ends the subscription of a client when one of its goroutines gives up, also if the next waits already",
			KilledBy: []Kill{{"after/woken", "by the last of some goroutines"}},
			design: ledger(ledgerFlaw{
				refused: func(s *ledgerStore, r *row, c *ledgerClaim) {
					if first := "first " + c.request.Owner; !s.notes[first] {
						s.notes[first], s.notes[subscription(r, c.driver.client)] = true, true
					}
				},
				left: func(s *ledgerStore, r *row, c *ledgerClaim) bool {
					s.notes[subscription(r, c.driver.client)] = false
					return false
				},
				deaf: func(s *ledgerStore, r *row, p *place) bool { return !s.notes[subscription(r, p.client)] },
			}),
		},
	}
}

// brokenRowMutants do so where a lock was broken.
func brokenRowMutants() []Mutant {
	return []Mutant{
		{
			Name: "BreakLetsBarge", Flaw: "lets a TryLock overtake those who wait, once a lock was broken",
			KilledBy: []Kill{{"fair/try-does-not-barge", "the lock of A was broken"}},
			design: ledger(ledgerFlaw{try: func(s *ledgerStore, r *row, c *ledgerClaim) (g driver.Grant, done bool) {
				if r.hold == nil && r.how == "broken" && c.request.NoWait {
					return s.grant(r, c, time.Now()), true
				}
				return g, false
			}}),
		},
		{
			Name: "BreakLeaverEats", Flaw: "wakes nobody when one gives up whom a Break has woken",
			KilledBy: []Kill{{"handover/woken-leaves", "the lock of A was broken"}},
			design:   ledger(ledgerFlaw{left: func(_ *ledgerStore, r *row, _ *ledgerClaim) bool { return r.how == "broken" }}),
		},
	}
}

// subscription is what a client is woken by.
func subscription(r *row, client int) string { return fmt.Sprintf("%d hears of %s", client, r.name) }

// toldRowMutants say something wrong with a refusal.
func toldRowMutants() []Mutant {
	return []Mutant{
		{
			Name: "RestOfHolder", Flaw: "tells a waiter what is left of the holder's lease, and nothing of those before it",
			KilledBy: []Kill{{"handover/dead-waiter", "which were before C in the queue"}},
			design: ledger(ledgerFlaw{told: func(r *row, _ *ledgerClaim, held *driver.Held) {
				if r.hold != nil {
					held.Remaining = time.Until(r.hold.expires)
				}
			}}),
		},
		{
			Name: "ToldWaiter", Flaw: "names the first who waits, as if it were the holder, when it refuses a TryLock",
			KilledBy: []Kill{{"after/told", `the holder is "waiter"`}},
			design: ledger(ledgerFlaw{told: func(r *row, c *ledgerClaim, held *driver.Held) {
				if c.request.NoWait && len(r.queue) > 0 {
					held.Holder = r.queue[0].request.Holder
				}
			}}),
		},
		{
			Name: "ToldFormer", Flaw: "names the holder before when it refuses a name that is free, and waited for",
			KilledBy: []Kill{{"fair/expiry-does-not-barge", "was told that the holder has token"}},
			design: ledger(ledgerFlaw{told: func(r *row, _ *ledgerClaim, held *driver.Held) {
				if r.hold == nil {
					held.Holder, held.Token = r.last.text, r.last.token
				}
			}}),
		},
	}
}

// failedMutants take what had no answer for one, or do not get over it.
func failedMutants() []Mutant {
	return []Mutant{
		{
			Name: "DownIsHeldOnce", Flaw: "says held for each TryLock that fails, once it was refused the name",
			KilledBy: []Kill{{"core/down-is-not-held", "nobody holds"}},
			design: outside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				before := false
				c.driver.with(fmt.Sprint(c.driver.id, " was refused ", c.asked.Name), func(e *entry) {
					before = e.seen
					e.seen = e.seen || errors.Is(err, distlock.ErrHeld)
				})
				if before && c.asked.NoWait && isSilent(err) {
					err = &distlock.HeldError{}
				}
				return g, err
			}}),
		},
		{
			Name: "LostAnswerHeld", Flaw: "refuses a claim the hold that it finds again, if others wait",
			KilledBy: []Kill{{"pair/reply-lost", "had not got it"}},
			design:   ledger(ledgerFlaw{strange: func(r *row) bool { return len(r.queue) > 0 }}),
		},
		{
			Name: "WaiterNeverFails", Flaw: "says held to a waiter whose look has failed",
			KilledBy: []Kill{{"fault/black-hole", "outlives that for its TTL"}},
			design: outside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				if c.refused && err != nil {
					err = &distlock.HeldError{}
				}
				c.refused = c.refused || errors.Is(err, distlock.ErrHeld)
				return g, err
			}}),
		},
		{
			Name: "UnlockHopes", Flaw: "says that a lock that was extended is released, if there is no answer",
			KilledBy: []Kill{{"pair/request-lost", "Unlock returned nil"}},
			design: outside(flaw{renew: noteExtended, release: func(ctx context.Context, c *claim) error {
				if err := c.inner.Release(ctx); !isSilent(err) || c.renewals == 0 {
					return err
				}
				return nil
			}}),
		},
	}
}

// hopingMutants take no answer for a good one, or are not woken since.
func hopingMutants() []Mutant {
	return []Mutant{
		{
			Name: "BreakHopes", Flaw: "says that a lock is broken if there is no answer",
			KilledBy: []Kill{{"after/unanswered", "the request was lost, and Break returned nil"}},
			design: outside(flaw{breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
				if err := d.inner.Break(ctx, name, token); !isSilent(err) {
					return err
				}
				return nil
			}}),
		},
		{
			Name: "DeafOnceFailed", Flaw: "wakes no waiter of a client any more of which a request has failed",
			Seen:     "subscriptions that are not made again on a new connection",
			KilledBy: []Kill{{"after/woken", "clients that were cut off before"}},
			design:   deafOnce(isSilent),
		},
	}
}

// deafOnce makes a driver that wakes no waiter of a client any more once a Try of that has failed so.
func deafOnce(failed func(error) bool) design {
	return outside(flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if failed(err) {
				c.driver.failed.Store(true)
			}
			return g, err
		},
		wait: func(ctx context.Context, c *claim) error {
			if c.driver.failed.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return c.inner.Wait(ctx)
		},
	})
}

// isSilent reports whether a request had no answer, and not because its context had ended.
func isSilent(err error) bool {
	for _, said := range []error{distlock.ErrLost, distlock.ErrHeld, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, said) {
			return false
		}
	}
	return err != nil
}
