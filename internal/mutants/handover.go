package mutants

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/distlock-go/distlock/driver"
)

// successorMutants hand the name on wrongly.
func successorMutants() []Mutant {
	return []Mutant{
		{
			Name: "UndoIsSilent", Flaw: "wakes nobody when a grant is undone that its client has not heard of",
			Seen:     "clean-ups that delete the entry and publish nothing",
			KilledBy: []Kill{{"handover/undone", "is still waiting"}},
			design:   design{store: ledger(ledgerFlaw{}).store, driver: undoingSilently},
		},
		{
			Name: "SuccessorTTL", Flaw: "gives who comes next a lease of the length that the one before had",
			KilledBy: []Kill{{"handover/lease", "the Deadline of"}},
			design:   relayed(relayFlaw{lease: func(last, _ *waiter, _ time.Time) time.Duration { return last.request.TTL }}),
		},
		{
			Name: "SuccessorRest", Flaw: "gives who comes next what is left of the lease before",
			KilledBy: []Kill{{"handover/lease", "the Deadline of"}},
			design:   relayed(relayFlaw{lease: func(last, _ *waiter, now time.Time) time.Duration { return last.expires.Sub(now) }}),
		},
		{
			Name: "SuccessorReply", Flaw: "counts a lease that another's release has begun from when it hears of it",
			KilledBy: []Kill{{"handover/deadline", "must be counted from before the grant"}},
			design:   relayed(relayFlaw{fromReply: true}),
		},
		{
			Name: "SuccessorToken", Flaw: "raises no token when a release hands the name on",
			KilledBy: []Kill{{"after/tokens", "the last token, before that of A"}},
			design:   relayed(relayFlaw{sameToken: true}),
		},
		{
			Name: "SuccessorText", Flaw: "leaves the holder's text as it was when a release hands the name on",
			KilledBy: []Kill{{"after/shows", "told that the holder is"}},
			design:   relayed(relayFlaw{sameText: true}),
		},
		{
			Name: "SuccessorSince", Flaw: "leaves the time of the grant as it was when a release hands the name on",
			KilledBy: []Kill{{"after/shows", "by AcquiredAt of Inspect"}},
			design:   relayed(relayFlaw{since: func(last, _ *waiter) time.Time { return last.since }}),
		},
		{
			Name: "SuccessorJoined", Flaw: "shows the time at which a waiter came for that of its grant",
			KilledBy: []Kill{{"after/shows", "by AcquiredAt of Inspect"}},
			design:   relayed(relayFlaw{since: func(_, next *waiter) time.Time { return next.joined }}),
		},
		{
			Name: "SuccessorLeft", Flaw: "lets a waiter that leaves keep what a release has just granted it",
			KilledBy: []Kill{{"cancel/race-with-grant", "a grant was forgotten"}, {"handover/woken-leaves", "is still waiting"}},
			design:   relayed(relayFlaw{swallow: true}),
		},
		{
			Name: "Handshake", Flaw: "has a release wait until the next has noticed",
			KilledBy: []Kill{{"handover/dead-waiter", "with a waiter that had died as the next in the queue"}},
			design:   relayed(relayFlaw{handshake: true}),
		},
	}
}

// crowdMutants lose waiters, wake-ups or the order.
func crowdMutants() []Mutant {
	return []Mutant{
		{
			Name: "WakeOnce", Flaw: "takes two releases of a name within a millisecond for one",
			KilledBy: []Kill{{"handover/crowd", "who wait for"}},
			design: relayed(relayFlaw{deafen: func(_ *relayStore, n *relayName, now time.Time) bool {
				return !n.freed.IsZero() && now.Sub(n.freed) < time.Millisecond
			}}),
		},
		{
			Name: "WakeOneName", Flaw: "wakes the waiters of one name only where many are released within a millisecond",
			KilledBy: []Kill{{"handover/many-names", "is still waiting"}},
			design: relayed(relayFlaw{deafen: func(s *relayStore, _ *relayName, now time.Time) bool {
				return !s.freed.IsZero() && now.Sub(s.freed) < time.Millisecond
			}}),
		},
		{
			Name: "WakeEaten", Flaw: "wakes nobody else when the one that it has woken leaves",
			KilledBy: []Kill{{"handover/woken-leaves", "the wake-up was lost with B"}},
			design:   relayed(relayFlaw{wakes: true, eaten: true}),
		},
		{
			Name: "Full16", Flaw: "has room for 16 waiters of a name, and forgets those who come after",
			KilledBy: []Kill{{"handover/crowd", "have waited"}},
			design:   fullAt(16),
		},
		{
			Name: "Full64", Flaw: "has room for 64 waiters of a name, and forgets those who come after",
			KilledBy: []Kill{{"handover/crowd", "have waited"}},
			design:   fullAt(64),
		},
		{
			Name: "ByOwner", Flaw: "serves waiters in the order of their owners' digits",
			KilledBy: []Kill{{"after/order", "who came before it"}},
			design: relayed(relayFlaw{next: func(queue []*waiter) int {
				return slices.Index(queue, slices.MinFunc(queue, func(a, b *waiter) int { return cmp.Compare(a.request.Owner, b.request.Owner) }))
			}}),
		},
		{
			Name: "ByTTL", Flaw: "serves first whose TTL is the shortest",
			KilledBy: []Kill{{"handover/order-kept", "who came before it"}},
			design: relayed(relayFlaw{next: func(queue []*waiter) int {
				return slices.Index(queue, slices.MinFunc(queue, func(a, b *waiter) int { return cmp.Compare(a.request.TTL, b.request.TTL) }))
			}}),
		},
		{
			Name: "Requeue", Flaw: "puts a waiter that looks again to the end of the line",
			KilledBy: []Kill{{"handover/order-kept", "number 5 had died before"}},
			design:   relayed(relayFlaw{requeue: true}),
		},
		{
			Name: "BargingLock", Flaw: "wakes the next in the queue, and lets whoever asks meanwhile have the name",
			KilledBy: []Kill{{"handover/lock-does-not-barge", "although B had been queued for it before"}, {"fair/try-does-not-barge", "although B had been queued for it before"}},
			design:   relayed(relayFlaw{wakes: true, barge: true}),
		},
	}
}

// slowMutants take a waiter that takes its time for a dead one.
func slowMutants() []Mutant {
	return []Mutant{
		{
			Name: "PassesOverSlow", Flaw: "wakes the next in the queue, and drops it for the one behind it if it has not come within a second",
			KilledBy: []Kill{{"handover/order-kept", "has lost its place"}},
			design: ledger(ledgerFlaw{deaf: func(s *ledgerStore, r *row, next *place) bool {
				time.AfterFunc(time.Second, func() { s.passOver(r, next) })
				return false
			}}),
		},
	}
}

// passOver drops a waiter that has been woken, and has not come for the name since.
func (s *ledgerStore) passOver(r *row, p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(r.queue, p); at == 0 && r.hold == nil {
		r.queue = r.queue[1:]
		s.handOff(r, time.Now())
	}
}

// fullAt has a queue that shows all waiters, and serves so many.
func fullAt(full int) design {
	d := relayed(relayFlaw{full: full})
	d.waiters = func(w *world, name string) int {
		// Any look at the queue sees what it wants to see.
		st := w.mem.(*relayDriver).store.status(name)
		if st.Waiters >= full {
			return 1 << 20
		}
		return st.Waiters
	}
	return d
}

// undoingSilently ends in silence a hold that was not heard of.
func undoingSilently(e *env) driver.Driver {
	s := e.mem.(*ledgerDriver).store
	return e.outside(flaw{release: func(ctx context.Context, c *claim) error {
		unheard := make(chan bool, 1) // one element: the caller may have left when the answer comes
		err := s.step(ctx, c, func(r *row) {
			mine := !c.won && r.hold != nil && r.hold.request.Owner == c.asked.Owner
			if mine {
				s.gone[c.asked.Owner] = true
				r.end("released")
			}
			unheard <- mine
		})
		if err != nil || <-unheard {
			return err
		}
		return c.inner.Release(ctx)
	}})
}
