package mutants

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// seldomMutants go wrong where few look: with what comes of a Break or a Close, with the one that had the name before, and
// with TTLs between the steps of a coarse clock.
func seldomMutants() []Mutant {
	return slices.Concat(overtakingMutants(), endedMutants(), breakerMutants(), unevenMutants(), handleMutants())
}

// overtakingMutants let somebody have the name before those that have waited for longer.
func overtakingMutants() []Mutant {
	barges := func(when func(r *row, c *ledgerClaim) bool) design {
		return ledger(ledgerFlaw{try: func(s *ledgerStore, r *row, c *ledgerClaim) (g driver.Grant, done bool) {
			if r.hold == nil && r.at(c.request.Owner) < 0 && len(r.queue) > 0 && when(r, c) {
				return s.grant(r, c, time.Now()), true
			}
			return g, false
		}})
	}
	return []Mutant{
		{
			Name: "FormerFirst", Flaw: "lets the client that has unlocked a name have it again by TryLock, before those who wait",
			Seen:     "a lock that is kept in the process for its next user",
			KilledBy: []Kill{{"after/order", "the TryLock of"}},
			design:   barges(func(r *row, c *ledgerClaim) bool { return c.request.NoWait && r.last.client == c.driver.client }),
		},
		{
			Name: "FormerLocks", Flaw: "lets the client that has unlocked a name have it again by Lock, before those who wait",
			KilledBy: []Kill{{"handover/lock-does-not-barge", "A asked for"}},
			design:   barges(func(r *row, c *ledgerClaim) bool { return !c.request.NoWait && r.last.client == c.driver.client }),
		},
		{
			Name: "TermBarges", Flaw: "lets a TryLock for a fixed term overtake those who wait",
			KilledBy: []Kill{{"after/order", "the TryLock of"}},
			design:   barges(func(_ *row, c *ledgerClaim) bool { return c.request.NoWait && c.request.NoRenewal }),
		},
		{
			Name: "HandedBarges", Flaw: "lets a TryLock overtake those who wait, once the name was handed over",
			KilledBy: []Kill{{"after/order", "the TryLock of"}},
			design:   barges(func(r *row, c *ledgerClaim) bool { return c.request.NoWait && !r.last.request.NoWait }),
		},
		{
			Name: "TermsLast", Flaw: "serves those who wait for a fixed term last",
			KilledBy: []Kill{{"after/order", "who came before it"}},
			design: ledger(ledgerFlaw{next: func(r *row) int {
				return max(0, slices.IndexFunc(r.queue, func(p *place) bool { return !p.request.NoRenewal }))
			}}),
		},
	}
}

// endedMutants do too much at the end of a lock or a client, or remember too much of it.
func endedMutants() []Mutant {
	return []Mutant{
		{
			Name: "BreakBansClient", Flaw: "removes the victim's client from the queue of the name as well, when it breaks a lock",
			Seen:     "a session that is ended",
			KilledBy: []Kill{{"after/breaks", "who came before it"}},
			design: ledger(ledgerFlaw{broken: func(_ *ledgerStore, r *row) {
				r.queue = slices.DeleteFunc(r.queue, func(p *place) bool { return p.client == r.last.client })
			}}),
		},
		{
			Name: "BreakEndsWaits", Flaw: "removes the victim's client from the queues of all other names, when it breaks a lock",
			Seen:     "a session that is ended",
			KilledBy: []Kill{{"after/excludes", "a lock that was broken"}},
			design: ledger(ledgerFlaw{broken: func(s *ledgerStore, r *row) {
				for _, o := range s.rows {
					if o != r {
						o.queue = slices.DeleteFunc(o.queue, func(p *place) bool { return p.client == r.last.client })
					}
				}
			}}),
		},
		{
			Name: "CloserClearsQueue", Flaw: "removes all who wait along with one whose client is closed",
			KilledBy: []Kill{{"after/excludes", "left by a client that closed"}},
			design: ledger(ledgerFlaw{
				refused: func(s *ledgerStore, r *row, c *ledgerClaim) {
					if !c.request.NoWait {
						s.notes[subscription(r, c.driver.client)] = true
					}
				},
				close: func(s *ledgerStore, client int) {
					for _, r := range s.rows {
						if s.notes[subscription(r, client)] {
							r.queue = nil
						}
					}
				},
			}),
		},
		{
			Name: "AgainSince", Flaw: "shows the time of its first hold for that of a client which takes a name again",
			KilledBy: []Kill{{"after/shows", "by AcquiredAt of Inspect"}},
			design: ledger(ledgerFlaw{granted: func(r *row) {
				if r.how == "released" && r.last.client == r.hold.client {
					r.hold.acquired = r.last.acquired
				}
			}}),
		},
	}
}

// breakerMutants break some locks only, or wake nobody then.
func breakerMutants() []Mutant {
	return []Mutant{
		{
			Name: "BreaksOthers", Flaw: "breaks no lock of its own client",
			KilledBy: []Kill{{"after/breaks", "and Break returned"}},
			design: design{driver: func(e *env) driver.Driver {
				return e.inside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
					g, err := c.inner.Try(ctx)
					if err == nil {
						e.with(c.asked.Name, func(n *entry) { n.client = e })
					}
					return g, err
				}, breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
					own := false
					e.with(name, func(n *entry) { own = n.client == e })
					if own {
						return distlock.ErrLost
					}
					return d.inner.Break(ctx, name, token)
				}})
			}},
		},
		{
			Name: "BreakUnregistered", Flaw: "loses the wake-up of a Break that comes between the look of a waiter and its wait",
			KilledBy: []Kill{{"break/waiters-stay", "a wake-up was lost"}},
			design: inside(flaw{try: tryThenSubscribe, wait: waitUnlessBroken, breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
				err := d.inner.Break(ctx, name, token)
				if err == nil {
					d.with(name, func(e *entry) { e.granted = time.Now() })
				}
				return err
			}}),
		},
	}
}

// tryThenSubscribe takes a moment until it hears of anything.
func tryThenSubscribe(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		c.until = time.Now()
		time.Sleep(2 * time.Millisecond)
	}
	return g, err
}

func waitUnlessBroken(ctx context.Context, c *claim) error {
	missed := false
	c.driver.with(c.asked.Name, func(e *entry) { missed = e.granted.After(c.until) })
	if missed {
		<-ctx.Done()
		return ctx.Err()
	}
	return c.inner.Wait(ctx)
}

// seconds declares TTLs of whole seconds, and up rounds up to them.
func seconds(c *driver.Capabilities) { c.MinTTL, c.TTLGranularity = time.Second, time.Second }

func up(ttl time.Duration) time.Duration { return (ttl + time.Second - 1).Truncate(time.Second) }

// unevenMutants go wrong with terms that few ask for, and with names that are long together.
func unevenMutants() []Mutant {
	return []Mutant{
		{
			Name: "ExtendsNearest", Flaw: "rounds TTLs up to whole seconds, as it declares, and an extension to the nearest",
			KilledBy: []Kill{{"after/extends", "before the lease of A could end"}},
			design: inside(flaw{caps: seconds, request: func(_ *env, r *driver.Request) { r.TTL = up(r.TTL) },
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
					g, err := c.inner.Renew(ctx, max(ttl.Round(time.Second), time.Second))
					g.TTL = max(g.TTL, ttl)
					return g, err
				}}),
		},
		{
			Name: "LocksDown", Flaw: "rounds the TTL of a TryLock up to whole seconds, as it declares, and that of a Lock down",
			KilledBy: []Kill{{"after/expires", "before the lease of A could end"}},
			design: inside(flaw{caps: seconds, request: func(_ *env, r *driver.Request) {
				if r.TTL = r.TTL.Truncate(time.Second); r.NoWait {
					r.TTL = up(r.TTL + 1)
				}
			}, try: asAsked}),
		},
		{
			Name: "WaitsForADay", Flaw: "keeps a lease for a day at the most where it was waited for",
			KilledBy: []Kill{{"handover/lease", "two holders at once"}},
			design: inside(flaw{request: func(_ *env, r *driver.Request) {
				if !r.NoWait {
					r.TTL = min(r.TTL, 24*time.Hour)
				}
			}, try: asAsked}),
		},
		{
			Name: "BatchOf16KB", Flaw: "renews of a batch what fits into 16 KB, and confirms the rest",
			Seen:     "packets and statements with a limit",
			KilledBy: []Kill{{"batch/each-renewed", "the store keeps it for another"}},
			design: batched(func(ctx context.Context, _ *flawed, batch []driver.Renewal) {
				n, size := 0, 0
				for ; n < len(batch) && size <= 16<<10; n++ {
					size += len(batch[n].Claim.(*claim).asked.Name)
				}
				renewEach(ctx, batch[:n])
				for i := n; i < len(batch); i++ {
					batch[i].Grant = driver.Grant{TTL: batch[i].TTL}
				}
			}),
		},
	}
}

// handleMutants have locks that tell, or do, something wrong, and Lockers that take what is not allowed.
func handleMutants() []Mutant {
	wrapped := func(f func(h *driver.Handle) distlock.Lock) design {
		return inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock { return f(h) }})
	}
	return []Mutant{
		{
			Name: "LossIsUnlock", Flaw: "says that a lock was unlocked which was lost, once its holder has called Unlock",
			KilledBy: []Kill{{"after/expires", "its Err was ErrLost; after Unlock it is"}},
			design:   wrapped(func(h *driver.Handle) distlock.Lock { return &selfish{Handle: h} }),
		},
		{
			Name: "ExtendsDone", Flaw: "says that a lock was extended if the context has ended",
			KilledBy: []Kill{{"after/extends", "with a context that was done, and was told nil"}},
			design:   wrapped(func(h *driver.Handle) distlock.Lock { return ticked{h} }),
		},
		{
			Name: "OneCallAtATime", Flaw: "has Unlock wait for an Extend of the same lock, whatever its context says",
			Seen:     "a mutex around a handle",
			KilledBy: []Kill{{"fault/black-hole", "has not returned"}},
			design:   wrapped(func(h *driver.Handle) distlock.Lock { return &guarded{Handle: h, turn: make(chan struct{}, 1)} }),
		},
		{
			Name: "ErrWaits", Flaw: "has Err wait for an Extend of the same lock",
			Seen:     "a mutex around a handle",
			KilledBy: []Kill{{"fault/black-hole", "beside an Extend"}},
			design: wrapped(func(h *driver.Handle) distlock.Lock {
				return &guarded{Handle: h, turn: make(chan struct{}, 1), all: true}
			}),
		},
		{
			Name: "BreaksBelowZero", Flaw: "takes a token below zero for that of any holder",
			KilledBy: []Kill{{"core/error-taxonomy", "Break of the token -1"}},
			design:   design{locker: func(_ *env, c *driver.Client) distlock.Locker { return lenient{c} }},
		},
	}
}

// selfish is a lock that thinks it was its own Unlock that has ended it.
type selfish struct {
	*driver.Handle
	unlocked bool
}

// Unlock implements distlock.Lock.
func (l *selfish) Unlock(ctx context.Context) error {
	err := l.Handle.Unlock(ctx)
	l.unlocked = true
	return err
}

// Err implements distlock.Lock.
func (l *selfish) Err() error {
	if l.unlocked {
		return distlock.ErrUnlocked
	}
	return l.Handle.Err()
}

// ticked is a lock that does not look at errors of contexts.
type ticked struct{ *driver.Handle }

// Extend implements distlock.Lock.
func (l ticked) Extend(ctx context.Context, ttl time.Duration) error {
	if ctx.Err() != nil {
		return nil
	}
	return l.Handle.Extend(ctx, ttl)
}

// guarded is a lock that makes one call at a time.
type guarded struct {
	*driver.Handle
	turn chan struct{} // a mutex: one that is waited for would stop virtual time
	all  bool          // also Err, and not Unlock
}

// Extend implements distlock.Lock.
func (l *guarded) Extend(ctx context.Context, ttl time.Duration) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.Handle.Extend(ctx, ttl)
}

// Unlock implements distlock.Lock.
func (l *guarded) Unlock(ctx context.Context) error {
	if !l.all {
		l.turn <- struct{}{}
		defer func() { <-l.turn }()
	}
	return l.Handle.Unlock(ctx)
}

// Err implements distlock.Lock.
func (l *guarded) Err() error {
	if l.all {
		l.turn <- struct{}{}
		defer func() { <-l.turn }()
	}
	return l.Handle.Err()
}

// lenient is a Locker that takes any token below zero for a wildcard.
type lenient struct{ *driver.Client }

// Break implements distlock.Operator.
func (l lenient) Break(ctx context.Context, name string, token int64) error {
	if token < 0 {
		st, err := l.Inspect(ctx, name)
		if err != nil {
			return fmt.Errorf("looking: %w", err)
		}
		token = st.Token
	}
	return l.Client.Break(ctx, name, token)
}
