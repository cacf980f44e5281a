package mutants

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// besideMutants are right for a lock alone, and for one that nobody has waited for.
func besideMutants() []Mutant {
	return []Mutant{
		{
			Name: "BatchShortensMany", Flaw: "sets the expiry of each lock of a batch of two or more to its TTL from now, also where it was extended beyond that",
			Seen:     "a pipeline of PEXPIRE, beside a script for single renewals",
			KilledBy: []Kill{{"after/expires", "extended and renewed beside another"}},
			design: batched(func(ctx context.Context, d *flawed, batch []driver.Renewal) {
				if len(batch) > 1 {
					batchResets(ctx, d, batch)
				} else {
					renewEach(ctx, batch)
				}
			}),
		},
		{
			Name: "BatchSkipsHanded", Flaw: "renews a lock that was waited for only if it is alone in its batch, and says that it has",
			KilledBy: []Kill{{"after/lives", "handed over beside others"}},
			design: inside(flaw{try: tryNoting, batch: func(ctx context.Context, _ *flawed, batch []driver.Renewal) {
				for i, r := range batch {
					if c := r.Claim.(*claim); len(batch) > 1 && c.refused {
						batch[i].Grant = driver.Grant{Token: c.token, TTL: r.TTL}
					} else {
						batch[i].Grant, batch[i].Err = c.Renew(ctx, r.TTL)
					}
				}
			}}),
		},
		{
			Name: "WaitedDown", Flaw: "rounds the TTL of a lock that was waited for down to whole seconds, and says that it is what was asked for",
			Seen:     "a script that hands over by EXPIRE, after an integer division",
			KilledBy: []Kill{{"handover/lease", "the end that the store saw"}},
			design: inside(flaw{caps: seconds, request: func(_ *env, r *driver.Request) { r.TTL = up(r.TTL) }, try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := tryNoting(ctx, c)
				if err == nil && c.refused {
					err = c.reset(ctx, c.asked.TTL.Truncate(time.Second))
				}
				return g, err
			}}),
		},
	}
}

// unheardMutants take an answer that was lost for another than it was.
func unheardMutants() []Mutant {
	return []Mutant{
		{
			Name: "TokenFoundAgain", Flaw: "gives a lock of which the first answer was lost another token than the store has of it",
			Seen:     "the revision of the last change, for that of the creation",
			KilledBy: []Kill{{"pair/reply-lost", "and Inspect shows token"}},
			design: outside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := tryUnheard(ctx, c)
				if err == nil && c.deaf {
					g.Token++
				}
				return g, err
			}}),
		},
		{
			Name: "UnlockHopesWaited", Flaw: "says that a lock that was waited for is released, if there is no answer",
			KilledBy: []Kill{{"pair/request-lost", "Unlock returned nil"}},
			design: outside(flaw{try: tryNoting, release: func(ctx context.Context, c *claim) error {
				if err := c.inner.Release(ctx); !isSilent(err) || !c.won || !c.refused {
					return err
				}
				return nil
			}}),
		},
		{
			Name: "DeafOnceTimedOut", Flaw: "wakes no waiter of a client any more of which a request had no answer",
			KilledBy: []Kill{{"after/woken", "clients that were cut off before"}},
			design:   deafOnce(func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }),
		},
	}
}

// closingMutants go wrong when a client is closed, or a waiter gives up.
func closingMutants() []Mutant {
	return []Mutant{
		{
			Name: "CloseEndsRecord", Flaw: "ends all holds of its client in Close, also those that are to stay",
			Seen:     "a lease that is revoked, a session that is closed",
			KilledBy: []Kill{{"once/per-period", "ran it again"}},
			design: ledger(ledgerFlaw{close: func(s *ledgerStore, client int) {
				for _, r := range s.rows {
					if r.hold != nil && r.hold.client == client {
						r.end("released")
						s.handOff(r, time.Now())
					}
				}
			}}),
		},
		{
			Name: "BreaksOfTheLiving", Flaw: "finds a hold to break only while its client is open",
			Seen:     "a table of sessions that a Break joins",
			KilledBy: []Kill{{"once/per-period", "saw its record with token"}},
			design: ledger(ledgerFlaw{
				close: func(s *ledgerStore, client int) { s.notes[fmt.Sprint("closed ", client)] = true },
				firm:  func(s *ledgerStore, r *row) bool { return s.notes[fmt.Sprint("closed ", r.hold.client)] },
			}),
		},
		{
			Name: "CloseDeletesLost", Flaw: "ends in Close, by their name, also the holds that it has lost to others",
			KilledBy: []Kill{{"after/expires", "perhaps Close"}},
			design: ledger(ledgerFlaw{close: func(s *ledgerStore, client int) {
				for _, r := range s.rows {
					if r.hold != nil && r.last.client == client && r.how == "expired" {
						r.end("released")
					}
				}
			}}),
		},
		{
			Name: "LeaverEndsOwn", Flaw: "ends what its client holds of a name when it gives up waiting for it",
			Seen:     "entries by name and session",
			KilledBy: []Kill{{"after/excludes", "given up by its own client"}},
			design: ledger(ledgerFlaw{left: func(_ *ledgerStore, r *row, c *ledgerClaim) bool {
				if r.hold != nil && r.hold.client == c.driver.client && r.hold.request.Owner != c.request.Owner { // release ends its own
					r.end("released")
				}
				return false
			}}),
		},
	}
}

// leavingMutants go wrong when waiters give up late, many at a time, or beside one that is stuck.
func leavingMutants() []Mutant {
	return []Mutant{
		{
			Name: "LeavesOldWaiter", Flaw: "leaves a place in the queue to one that gives up after more than ten seconds",
			KilledBy: []Kill{{"handover/order-kept", "number 1 had left"}},
			design: inside(flaw{release: leaving(func(ctx context.Context, c *claim) error {
				if time.Since(c.began) > 10*time.Second {
					return nil
				}
				return c.inner.Release(ctx)
			})}),
		},
		{
			Name: "PileOfLeavers", Flaw: "forgets to take out of the queue what gives up while sixteen others do",
			Seen:     "a buffered channel, and a send that does not block",
			KilledBy: []Kill{{"handover/many-names", "has given up"}},
			design: design{driver: func(e *env) driver.Driver {
				room := make(chan struct{}, 16)
				return e.inside(flaw{release: leaving(func(ctx context.Context, c *claim) error {
					select {
					case room <- struct{}{}:
						time.Sleep(time.Millisecond)
						<-room
						return c.inner.Release(ctx)
					default:
						return nil
					}
				})})
			}},
		},
		{
			Name: "UndoesInTurn", Flaw: "takes those that give up out of the queue one after the other, also while a request for one of them hangs",
			KilledBy: []Kill{{"isolate/stuck-name", "had given up"}},
			design: design{driver: func(e *env) driver.Driver {
				turn := make(chan struct{}, 1)
				return e.outside(flaw{release: leaving(func(ctx context.Context, c *claim) error {
					select {
					case turn <- struct{}{}:
						defer func() { <-turn }()
						return c.inner.Release(ctx)
					case <-ctx.Done():
						return ctx.Err()
					}
				})})
			}},
		},
	}
}

// queueingMutants go wrong where somebody waits, or has come without a place in the queue.
func queueingMutants() []Mutant {
	return []Mutant{
		{
			Name: "QueueKeys", Flaw: "keeps the queue of a name where the name with \":queue\" would be",
			KilledBy: []Kill{{"names/waited-apart", "is held"}},
			design: inside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				if name, ok := strings.CutSuffix(c.asked.Name, ":queue"); ok {
					if st, err := c.driver.mem.Inspect(ctx, name); err == nil && st.Waiters > 0 {
						return driver.Grant{}, &distlock.HeldError{Remaining: time.Second}
					}
				}
				return c.inner.Try(ctx)
			}}),
		},
		{
			Name: "BreakLetsLockBarge", Flaw: "lets a Lock that comes overtake those who wait, once a lock was broken",
			KilledBy: []Kill{{"handover/lock-does-not-barge", "although B had been queued"}},
			design:   ledger(ledgerFlaw{try: bargingOnce("broken")}),
		},
		{
			Name: "ExpiryLetsLockBarge", Flaw: "lets a Lock that comes overtake those who wait, once a lease has run out",
			KilledBy: []Kill{{"fair/expiry-does-not-barge", "D's Lock was granted it"}},
			design:   ledger(ledgerFlaw{try: bargingOnce("expired")}),
		},
		{
			Name: "FormerToldMeanwhile", Flaw: "tells who had the name last, in a refusal that comes before the next waiter has got it",
			KilledBy: []Kill{{"after/order", "was told that the holder has token"}},
			design: ledger(ledgerFlaw{told: func(r *row, _ *ledgerClaim, held *driver.Held) {
				if r.hold == nil {
					held.Token, held.Holder = r.last.token, r.last.text
				}
			}}),
		},
		{
			Name: "LongNameRepeats", Flaw: "grants a name of full length again with the token before, when a lease has run out",
			KilledBy: []Kill{{"after/expires", "with token"}},
			design: ledger(ledgerFlaw{try: func(s *ledgerStore, r *row, c *ledgerClaim) (g driver.Grant, done bool) {
				if r.hold != nil || r.how != "expired" || len(r.name) < distlock.MaxName || len(r.queue) > 0 {
					return g, false
				}
				g = s.grant(r, c, time.Now())
				g.Token, r.hold.token = r.last.token, r.last.token
				return g, true
			}}),
		},
	}
}

// sinceMutants go wrong after an answer that was lost, or a renewal that failed.
func sinceMutants() []Mutant {
	return []Mutant{
		{
			Name: "FoundAgainUnrenewed", Flaw: "never renews a lock of which the first answer was lost, and says that it does",
			Seen:     "a key that hangs on the lease of the first request, while that of the second is renewed",
			KilledBy: []Kill{{"after/lives", "heard of late"}},
			design: outside(flaw{
				try: tryUnheard,
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
					if c.deaf {
						return driver.Grant{Token: c.token, TTL: ttl}, nil
					}
					return c.inner.Renew(ctx, ttl)
				},
			}),
		},
		{
			Name: "BatchCutIsDone", Flaw: "takes a renewal of two or more locks for done when its connection breaks",
			KilledBy: []Kill{{"pair/renewal", "two holders at once"}},
			design:   renewingTogether(func(r *driver.Renewal) { r.Grant, r.Err = driver.Grant{Token: r.Claim.(*claim).token, TTL: r.TTL}, nil }),
		},
		{
			Name: "BatchCutIsLost", Flaw: "takes two or more locks for lost when the connection of their renewal breaks",
			KilledBy: []Kill{{"lost/quiet-when-healthy", "lost"}},
			design:   renewingTogether(func(r *driver.Renewal) { r.Err = distlock.ErrLost }),
		},
		{
			Name: "DeafAfterFailed", Flaw: "wakes nobody when a lock is released of which a renewal has failed",
			KilledBy: []Kill{{"after/woken", "after a renewal that failed"}},
			design: outside(flaw{
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
					g, err := c.inner.Renew(ctx, ttl)
					c.deaf = c.deaf || isSilent(err)
					return g, err
				},
				release: func(ctx context.Context, c *claim) error {
					if c.won && c.deaf {
						return c.reset(ctx, time.Nanosecond) // it expires, and nobody is woken
					}
					return c.inner.Release(ctx)
				},
			}),
		},
	}
}

// tellingMutants tell what was so, or is so of another name; or they know a client by what else it does.
func tellingMutants() []Mutant {
	return []Mutant{
		{
			Name: "HeldForTTL", Flaw: "tells in a refusal that the name stays taken for the whole TTL, however old the hold is",
			KilledBy: []Kill{{"after/told", "the name stays taken for"}},
			design: ledger(ledgerFlaw{told: func(r *row, _ *ledgerClaim, held *driver.Held) {
				if r.hold != nil && len(r.queue) == 0 {
					held.Remaining = r.hold.request.TTL
				}
			}}),
		},
		{
			Name: "QueuedClientBarges", Flaw: "lets a TryLock of a client that waits somewhere in the queue overtake those before it",
			Seen:     "a session for an owner",
			KilledBy: []Kill{{"after/order", "and the TryLock of"}},
			design: ledger(ledgerFlaw{try: func(s *ledgerStore, r *row, c *ledgerClaim) (g driver.Grant, done bool) {
				for _, p := range r.queue {
					if r.hold == nil && c.request.NoWait && p.client == c.driver.client {
						return s.grant(r, c, time.Now()), true
					}
				}
				return g, false
			}}),
		},
		{
			Name: "InspectFolds", Flaw: "shows for a free name the holder of one that differs in case only",
			Seen:     "a column that is compared by a collation, beside one that is not",
			KilledBy: []Kill{{"inspect/free", "was never held, as names alike are"}},
			design: inside(flaw{inspect: func(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
				st, err := d.look(ctx, name)
				if err != nil || st.Held {
					return st, err
				}
				all, err := d.mem.List(ctx, "")
				for _, other := range all {
					if strings.EqualFold(other.Name, name) {
						st = other
						st.Name = name
					}
				}
				return st, err
			}}),
		},
	}
}

// renewingTogether renews a batch by one request. If the connection of that breaks, cut judges each lock, should there be two or more.
func renewingTogether(cut func(*driver.Renewal)) design {
	return outside(flaw{batch: func(ctx context.Context, d *flawed, batch []driver.Renewal) {
		sent := make([]driver.Renewal, len(batch))
		for i, r := range batch {
			sent[i] = driver.Renewal{Claim: r.Claim.(*claim).inner.Claim, TTL: r.TTL}
		}
		d.inner.Renew(ctx, sent)
		for i := range batch {
			if batch[i].Grant, batch[i].Err = sent[i].Grant, sent[i].Err; len(batch) > 1 && isSilent(batch[i].Err) {
				cut(&batch[i])
			}
		}
	}})
}

// bargingOnce grants a Lock that has no place in the queue, if the hold before has ended so.
func bargingOnce(how string) func(*ledgerStore, *row, *ledgerClaim) (driver.Grant, bool) {
	return func(s *ledgerStore, r *row, c *ledgerClaim) (g driver.Grant, done bool) {
		if r.hold == nil && r.how == how && !c.request.NoWait && r.at(c.request.Owner) < 0 {
			return s.grant(r, c, time.Now()), true
		}
		return g, false
	}
}

// leaving has undo release what was never granted.
func leaving(undo func(ctx context.Context, c *claim) error) func(ctx context.Context, c *claim) error {
	return func(ctx context.Context, c *claim) error {
		if c.won {
			return c.inner.Release(ctx)
		}
		return undo(ctx, c)
	}
}

// tryUnheard notes that a Try had no answer.
func tryUnheard(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	c.deaf = c.deaf || isSilent(err)
	return g, err
}

// tryNoting notes that a Try was refused.
func tryNoting(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	c.refused = c.refused || errors.Is(err, distlock.ErrHeld)
	return g, err
}
