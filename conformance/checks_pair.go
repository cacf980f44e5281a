package conformance

import (
	"context"

	"github.com/distlock-go/distlock"
)

// pairChecks stop a client at each request of an operation, or at each step of a store
// without a wire, while another goes through the life of the name.
func pairChecks() []Check {
	check := func(id, clause, rule string, op pairing) Check {
		op.clause = clause
		return Check{ID: "pair/" + id, Clause: clause, Mandatory: true, Rule: rule, Run: func(c *C) { c.pair(op) }}
	}
	const looks = "a driver that looks in one step and acts in another does so; the test and the change must be one step"
	return []Check{
		check("try-free", "H1", "a TryLock that is stopped at any of its requests or steps gets nothing that another has taken meanwhile: a free name",
			pairing{what: "TryLock of a name that nobody had", fault: looks, prepare: nothing, run: pairTry}),
		check("try-released", "H1", "the same of a name that was released",
			pairing{what: "TryLock of a released name", fault: looks, prepare: releasedBefore, run: pairTry}),
		check("try-expired", "H1", "the same of a name with an expired entry, and it does not remove the new entry for the old",
			pairing{what: "TryLock of a name with an expired entry", fault: looks, prepare: expiredBefore, run: pairTry}),
		check("unlock", "H6", "an Unlock that is stopped at any of its requests or steps until the lease is over and another has the name does not touch it, and does not say that the lock was held until then",
			pairing{what: "Unlock", fault: looks, prepare: takenBefore, run: pairUnlock}),
		check("extend", "H5", "an Extend that is stopped at any of its requests or steps until the lease is over and another has the name does not touch it, and revives nothing",
			pairing{what: "Extend", fault: looks, prepare: takenBefore, run: pairExtend}),
		check("renewal", "H5", "a renewal that is stopped at any of its requests or steps until the lease is over and another has the name does not touch it, and revives nothing",
			pairing{what: "a renewal", fault: looks, prepare: renewedBefore, run: pairRenewal}),
	}
}

func nothing(*pairScene) *lease { return nil }

func releasedBefore(s *pairScene) *lease {
	s.b.mustTry(s.name, "which is fresh").free()
	return nil
}

// expiredBefore has a client take the name and die.
func expiredBefore(s *pairScene) *lease {
	p, g := s.c.openGated("P" + s.a.who)
	h := p.mustTry(s.name, "which is fresh", distlock.NoRenewal())
	g.hold(1) // it must not clean up
	s.c.Cleanup(g.release)
	if !p.cutOff() {
		s.c.Go(func() { <-s.c.ctx.Done(); g.release() })
	}
	s.c.sleepUntil(h.gone())
	return nil
}

func takenBefore(s *pairScene) *lease {
	return s.a.mustTry(s.name, "which is fresh", distlock.NoRenewal())
}

func renewedBefore(s *pairScene) *lease { return s.a.mustTry(s.name, "which is fresh") }

func pairTry(s *pairScene) (*lease, error) {
	a := s.a.try(s.name, distlock.NoRenewal())
	return a.lease, a.err
}

func pairUnlock(s *pairScene) (*lease, error) { return nil, s.held.unlock() }

// pairExtend asks for more than the lock was taken for: else there may be nothing to do.
func pairExtend(s *pairScene) (*lease, error) {
	c := s.c
	ctx, cancel := context.WithTimeout(c.ctx, patience+c.Slack())
	defer cancel()
	return nil, s.held.Extend(ctx, c.extends(c.Unit(), 2*c.Unit()))
}

// pairRenewal waits for a renewal to be confirmed, or the loss of the lock.
func pairRenewal(s *pairScene) (*lease, error) {
	for before := s.held.Ends(); s.held.Ends() == before; {
		if s.c.within(s.held.Done(), s.c.poll()) {
			return nil, s.held.Err()
		}
	}
	return nil, nil
}
