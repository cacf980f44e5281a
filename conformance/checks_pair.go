package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/conformance/oracle"
	"github.com/distlock-go/distlock/driver"
)

// pairChecks go through all that can become of each message of an operation. In those named
// by an operation a client is stopped at each request of it, or at each step of a store
// without a wire, while another goes through the life of the name. In those named by a fate
// each request, or reply, is lost or late.
func pairChecks() []Check {
	var all []Check
	for _, op := range pairings() {
		if op.id == "" {
			continue
		}
		var needs []Cap
		if op.unsaid {
			needs = []Cap{capProxy}
		}
		all = append(all, Check{ID: "pair/" + op.id, Clause: op.clause, Mandatory: true, Needs: needs, Alone: op.sweeps, Rule: op.rule, Run: func(c *C) { c.pair(op) }})
	}
	for _, f := range fates() {
		all = append(all, Check{ID: "pair/" + f.id, Clause: f.clause, Mandatory: true, Needs: []Cap{capProxy}, Rule: f.rule, span: 2 * fateDepth * driver.MaxLate, Run: func(c *C) { c.fated(f) }})
	}
	return append(all, Check{ID: "pair/processes", Clause: "H1", Mandatory: true, Needs: []Cap{capChild}, Run: pairProcesses,
		Rule: "what is stopped at any request or step of a TryLock, an Unlock, an Extend or a renewal gets or ends nothing that another process has taken meanwhile: no mutex of one process stands in for the store"})
}

// pairings are the operations.
func pairings() []pairing {
	return []pairing{
		{id: "try-free", clause: "H1", what: "TryLock of a name that nobody had", lossy: true, prepare: nothing, run: pairTry,
			rule: "a TryLock that is stopped at any of its requests or steps gets nothing that another has taken meanwhile: a free name"},
		{id: "try-released", clause: "H1", what: "TryLock of a released name", lossy: true, prepare: releasedBefore, run: pairTry,
			rule: "a TryLock that is stopped at any of its requests or steps gets nothing that another has taken meanwhile: a released name"},
		{id: "try-expired", clause: "H1", what: "TryLock of a name with an expired entry", prepare: expiredBefore, run: pairTry,
			rule: "a TryLock that is stopped at any of its requests or steps gets nothing that another has taken meanwhile: a name with an expired entry, and it does not remove the new entry for the old"},
		{clause: "H1", what: "TryLock of a held name", lossy: true, prepare: heldBefore, run: pairTry},
		{id: "lock-free", clause: "H1", what: "Lock of a name that nobody had", queues: true, lossy: true, prepare: nothing, run: pairLock,
			rule: "a Lock that is stopped at any of its requests or steps gets nothing that another has taken meanwhile: it finds a free name"},
		{id: "lock-held", clause: "H1", what: "Lock of a held name", queues: true, waits: true, lossy: true, prepare: heldBefore, run: pairLock,
			rule: "a Lock that waits and is stopped at any of its requests or steps gets nothing that another has taken meanwhile"},
		{id: "lock-expired", clause: "H1", what: "Lock of a name with an expired entry", queues: true, waits: true, prepare: expiredBefore, run: pairLock,
			rule: "a Lock that waits and is stopped at any of its requests or steps gets nothing that another has taken meanwhile: it finds an expired entry"},
		{id: "lock-until-expiry", clause: "H1", what: "Lock of a name whose holder has died", queues: true, waits: true, lapses: true, prepare: diedBefore, run: pairLock,
			rule: "a Lock that waits and is stopped at any of its requests or steps gets nothing that another has taken meanwhile: it waits until a lease runs out"},
		{clause: "A5", what: "Lock of a name that is let go of while another waits behind", queues: true, handed: true, lossy: true, prepare: handedBefore, run: pairHanded},
		{id: "unlock", clause: "H6", what: "Unlock", lossy: true, prepare: takenBefore, run: pairUnlock,
			rule: "an Unlock that is stopped at any of its requests or steps until the lease is over and another has the name does not touch it, and does not say that the lock was held until then"},
		{id: "hand-over", clause: "H6", what: "Unlock of a name that another waits for", lossy: true, prepare: awaitedBefore, run: pairUnlock,
			rule: "an Unlock that hands the name over and is stopped at any of its requests or steps until the lease is over, and the waiter and another have had the name, gives it to nobody"},
		{id: "undo", clause: "H1", what: "the undo of a TryLock", unsaid: true, prepare: unheardBefore, run: pairUndo,
			rule: "what a TryLock does about a grant that it has not heard of, stopped at any of its requests until the lease is over and another has the name, does not touch it"},
		{id: "extend", clause: "H5", what: "Extend", lossy: true, prepare: takenBefore, run: pairExtend,
			rule: "an Extend that is stopped at any of its requests or steps until the lease is over and another has the name does not touch it, and revives nothing"},
		{id: "renewal", clause: "H5", what: "a renewal", prepare: renewedBefore, run: pairRenewal,
			rule: "a renewal that is stopped at any of its requests or steps until the lease is over and another has the name does not touch it, and revives nothing"},
		{id: "renewal-broken", clause: "H5", what: "a renewal", breaks: true, broken: true, prepare: renewedBefore, run: pairRenewal,
			rule: "a renewal that is stopped at any of its requests or steps while its hold is broken, and goes on when another has the name, does not touch it, and revives nothing"},
		{id: "extend-broken", clause: "H5", what: "Extend", breaks: true, broken: true, prepare: takenBefore, run: pairExtend,
			rule: "an Extend that is stopped at any of its requests or steps while its hold is broken, and goes on when another has the name, does not touch it, and revives nothing"},
		{id: "unlock-broken", clause: "H6", what: "Unlock", breaks: true, broken: true, prepare: takenBefore, run: pairUnlock,
			rule: "an Unlock that is stopped at any of its requests or steps while its hold is broken, and goes on when another has the name, does not touch it"},
		{id: "close", clause: "C1", what: "Close", prepare: closedBefore, run: pairClose,
			rule: "a Close that is stopped at any of its requests or steps until the lease of a lock is over and another has the name does not touch it"},
		{id: "break", clause: "O2", what: "Break", breaks: true, prepare: brokenBefore, run: pairBreak,
			rule: "a Break that is stopped at any of its requests or steps until the hold that it is to end is over does not touch the next one"},
		{id: "shown", clause: "O1", what: "Inspect, List and TryLock of a held name", prepare: shownBefore, run: pairShown,
			rule: "an Inspect, a List or a refusal that is stopped at any of its requests or steps, while the name goes from one holder to the next, has the text and the token of one of them"},
		{id: "sweep", clause: "O4", what: "Sweep", sweeps: true, prepare: sweptBefore, run: pairSweep,
			rule: "a Sweep that is stopped at any of its requests or steps does not touch a name that was taken meanwhile"},
	}
}

// fates are what may become of a message.
func fates() []fate {
	return []fate{
		{id: "request-lost", clause: "A5", what: "its request was lost", ways: []way{{arm: netfault.Link.CutRequest}, {arm: netfault.Link.DropRequest, silent: true}},
			rule: "whichever request of an operation is lost: nobody else gets in, the client does not mistake its own entry for another's, and nothing stays behind"},
		{id: "reply-lost", clause: "A5", what: "the reply to it was lost", ways: []way{{arm: netfault.Link.CutReply}, {arm: netfault.Link.DropReply, silent: true}},
			rule: "whichever reply of an operation is lost: the same"},
		{id: "left-late", clause: "A4", late: true, what: "its request arrived after A had given up", ways: []way{{arm: netfault.Link.HoldRequest, silent: true}, {arm: netfault.Link.HoldRequest, silent: true, between: true},
			{arm: netfault.Link.HoldRequest, silent: true, undone: true}, {arm: netfault.Link.HoldRequest, silent: true, undone: true, swept: true}},
			rule: "whichever request of an operation arrives when its caller has given up: what it gets is undone, and what another has meanwhile is not touched"},
	}
}

func nothing(*pairScene) {}

func releasedBefore(s *pairScene) { s.b.mustTry(s.name, "which is fresh").free() }

// expiredBefore has a client take the name and die, and waits for the end of its lease.
func expiredBefore(s *pairScene) {
	diedBefore(s)
	s.c.sleepUntil(s.other.gone())
	s.other = nil
}

func diedBefore(s *pairScene) {
	p, g := s.c.openGated("P" + s.a.who)
	s.other = p.mustTry(s.name, "which is fresh", distlock.NoRenewal(), distlock.TTL(s.c.ending(s.ttl/4))) // before A, waiting, looks by itself
	g.hold(1)                                                                                              // it must not clean up
	s.c.Cleanup(g.release)
	if !p.cutOff() {
		s.c.Go(func() { <-s.c.ctx.Done(); g.release() })
	}
}

func heldBefore(s *pairScene) {
	s.other = s.b.mustTry(s.name, "which is fresh", distlock.TTL(s.c.long()))
}

// handedBefore has the locks last for longer than A is waited for: what it does not find again would end by itself.
func handedBefore(s *pairScene) {
	s.ttl = s.c.fits(4 * patience)
	heldBefore(s)
}

func takenBefore(s *pairScene) {
	if s.manner.again {
		if s.c.Virtual() {
			s.ttl = s.c.fits(5 * time.Minute)
		}
		s.a.mustTry(s.name, "which is fresh", s.opts()...).free()
	}
	if s.manner.waited {
		first := s.third.mustTry(s.name, "which is fresh", distlock.TTL(s.c.long()))
		w := s.a.begin(s.name, s.opts()...)
		s.c.awaitQueued(s.name, 1)
		first.free()
		s.held = w.woken(s.c.soon(), "C had unlocked it")
		s.c.sleep(max(quiet, s.ttl/10)) // what was confirmed for the grant may serve for an Extend just after it, without a request
	} else {
		s.held = s.a.mustTry(s.name, "which nobody has", s.opts()...)
	}
	if s.manner.extends {
		s.held.mustExtend(s.c.extends(s.ttl, s.ttl*5/4))
	}
	if s.manner.failed {
		s.a.link.DropRequest(1)
		ctx, cancel := context.WithTimeout(s.c.ctx, s.ttl/8)
		defer cancel()
		_ = s.held.Unlock(ctx) // its first request is lost; what repeats it is stopped
	}
}

// unheardBefore has A get the name without being told. What A sends next undoes that.
func unheardBefore(s *pairScene) {
	_, s.undoing = s.a.meets(s.a.link.DropReply, s.ttl/16, func() {
		ctx, cancel := context.WithTimeout(s.c.ctx, s.ttl/8)
		defer cancel()
		s.got, s.err = s.claim(ctx, oracle.OpTry)
	})
}

// awaitedBefore has a second wait where a message is lost: a release that arrives twice may hand the name on twice.
func awaitedBefore(s *pairScene) {
	if s.behind != nil {
		takenBefore(s)
		for i, w := range []*client{s.behind, s.third} {
			s.queue = append(s.queue, w.begin(s.name, distlock.TTL(s.c.long())))
			s.c.awaitQueued(s.name, i+1)
		}
		return
	}
	w := s.c.open("W" + s.a.who) // before A has a lease that ends: to open a client may take as long
	takenBefore(s)
	s.waiter = w.begin(s.name, distlock.TTL(s.c.long()))
	s.c.awaitQueued(s.name, 1)
}

// closedBefore has the lease end while Close is under way, which gives up after some seconds.
func closedBefore(s *pairScene) {
	s.ttl = s.c.fits(min(s.ttl, max(closing/8, min(s.c.short(), closing/4))))
	takenBefore(s)
}

func renewedBefore(s *pairScene) {
	for i := 0; s.manner.beside && i < 2; i++ {
		s.a.mustTry(s.c.Name(fmt.Sprint("beside ", s.a.who, i)), "which is fresh")
	}
	s.held = s.a.mustTry(s.name, "which is fresh")
	if s.manner.failed {
		before := s.a.link.Fired()
		s.a.link.CutRequest(1)
		s.c.eventually(s.c.Unit()/2, func() bool { return s.a.link.Fired() > before })
		s.a.link.Heal()
	}
}

// needBreak skips the check if it needs Break and the store has none.
func (op pairing) needBreak(c *C, third *client) {
	if op.breaks {
		c.breaksLocks()
		third.mustNotBreak(c.Name("fresh"), 1, "although nobody has ever held the name")
	}
}

func brokenBefore(s *pairScene) {
	heldBefore(s)
	s.token = s.other.Token()
	if s.manner.waited {
		s.waiter = s.c.open("W"+s.a.who).begin(s.name, distlock.TTL(s.c.long()))
		s.c.awaitQueued(s.name, 1)
	}
}

// formerText is the text of the hold before that of B.
const formerText = "the text of the one before"

func shownBefore(s *pairScene) {
	s.other = s.b.mustTry(s.name, "which is fresh", distlock.TTL(s.c.long()), distlock.Holder(formerText))
	s.token = s.other.Token()
}

func sweptBefore(s *pairScene) {
	s.third.sweep(time.Nanosecond) // skips the check if not supported; leaves A nothing else to sweep
	h := s.b.mustTry(s.name, "which is fresh", distlock.NoRenewal(), distlock.TTL(s.c.short()))
	h.free()
	s.c.sleepUntil(h.gone() + s.c.poll())
}

func pairTry(s *pairScene, ctx context.Context) (*lease, error) { return s.claim(ctx, oracle.OpTry) }

func pairLock(s *pairScene, ctx context.Context) (*lease, error) { return s.claim(ctx, oracle.OpLock) }

// pairHanded has B let go of the name when A waits, and another behind it, which lets go of what it gets.
func pairHanded(s *pairScene, ctx context.Context) (*lease, error) {
	c := s.c
	left := make(chan struct{})
	c.Go(func() {
		c.sleep(quiet)
		behind := s.behind.begin(s.name, distlock.TTL(s.ttl))
		c.sleep(quiet)
		s.arm()
		s.vacate()
		close(left)
		if c.within(behind.done, 24*time.Hour) && behind.a.lease != nil {
			_ = behind.a.lease.unlock()
		}
	})
	got, err := s.claim(ctx, oracle.OpLock)
	c.within(left, 24*time.Hour)
	return got, err
}

func (s *pairScene) claim(ctx context.Context, op oracle.Op) (*lease, error) {
	a := s.a.acquire(ctx, op, s.name, append(s.opts(), distlock.Holder(pairText))...)
	return a.lease, a.err
}

func pairUnlock(s *pairScene, ctx context.Context) (*lease, error) { return nil, s.held.Unlock(ctx) }

// pairUndo waits for the requests that may come when the call has returned: a client with one connection first has to find it dead.
func pairUndo(s *pairScene, _ context.Context) (*lease, error) {
	<-s.undoing
	s.c.sleep(s.ttl)
	return s.got, s.err
}

// pairExtend asks for more than the lock was taken for: else there may be nothing to do.
func pairExtend(s *pairScene, ctx context.Context) (*lease, error) {
	return nil, s.held.Extend(ctx, s.c.extends(s.ttl, 2*s.ttl))
}

// pairRenewal waits for a renewal to be confirmed, or the loss of the lock.
func pairRenewal(s *pairScene, _ context.Context) (*lease, error) {
	for before := s.held.Ends(); s.held.Ends() == before; {
		if s.c.within(s.held.Done(), s.c.poll()) {
			return nil, s.held.Err()
		}
	}
	return nil, nil
}

func pairClose(s *pairScene, _ context.Context) (*lease, error) { return nil, s.a.close() }

func pairBreak(s *pairScene, ctx context.Context) (*lease, error) {
	return nil, s.a.breakHold(ctx, s.name, s.token)
}

func pairSweep(s *pairScene, ctx context.Context) (*lease, error) {
	_, err := s.a.sweepIdle(ctx, time.Nanosecond)
	return nil, err
}

// pairShown judges itself what A is told. A refusal may leave out what it does not know.
func pairShown(s *pairScene, ctx context.Context) (*lease, error) {
	whole := func(clause, what, text string, token int64) {
		if (text == formerText) != (token == s.token) {
			s.c.breach(clause, "%s by A was stopped at its request or step %d, while %q went from one holder, with the text %q and token %d, to the next; it tells the text %q and token %d: both have to be read in one step",
				what, s.k, s.name, formerText, s.token, text, token)
		}
	}
	st, err := s.a.inspect(ctx, s.name)
	all, _ := s.a.listed(ctx, s.name)
	for i, st := range append([]distlock.Status{st}, all...) {
		if st.Held && st.Name == s.name && (i > 0 || err == nil) {
			whole("O1", []string{"Inspect", "List"}[min(i, 1)], st.Holder, st.Token)
		}
	}
	a := s.a.acquire(ctx, oracle.OpTry, s.name, distlock.TTL(s.ttl))
	if held, ok := errors.AsType[*distlock.HeldError](a.err); ok && held.Holder != "" && held.Token != 0 {
		whole("A6", "TryLock", held.Holder, held.Token)
	}
	return a.lease, nil
}
