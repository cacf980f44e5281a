package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
)

// doubleGrants has clients fight for a few names in every way that has been seen to
// end in two holders: leases that run out, extended at the last moment, unlocked too
// late; connections that break, and networks that swallow. Everything is recorded,
// and the suite's oracle counts the grants that came while another holder believed.
func doubleGrants(ctx context.Context, l *lab) (Outcome, error) {
	s := &stress{lab: l, recorder: conformance.NewRecorder(l.caps.Backend), short: shortTTL(l.caps)}
	routed, err := s.run(ctx)
	if err != nil {
		return Outcome{}, err
	}
	history := s.recorder.History()
	operations, grants := 0, 0
	for _, e := range history.Events {
		switch {
		case e.Op == conformance.OpBelief:
			continue
		case e.Outcome == conformance.OutcomeOK && (e.Op == conformance.OpLock || e.Op == conformance.OpTry):
			grants++
		}
		operations++
	}
	if grants == 0 {
		return Outcome{}, errors.New("no client got a lock")
	}
	overlaps := history.Overlaps()
	o := Outcome{
		Verdict: Good, Text: fmt.Sprintf("none in %d operations", operations),
		Values: Series{float64(len(overlaps))}, Unit: "overlaps",
		Detail: fmt.Sprintf("%d grants on %d names in %v, many leases left to run out and then unlocked", grants, stressNames+2, l.stress),
	}
	if routed > 0 {
		o.Detail += fmt.Sprintf("; the connections of %d of the clients were cut and black-holed", routed)
	} else {
		o.Detail += "; no connections were broken: " + lacksRoute(l.rig)
	}
	if len(overlaps) > 0 {
		o.Verdict, o.Text = Bad, fmt.Sprintf("%d in %d operations", len(overlaps), operations)
		first, _, _ := strings.Cut(overlaps[0].Text, "\n")
		o.Detail += "; the first: " + first
	}
	return o, nil
}

const (
	stressClients = 4
	stressRouted  = 2 // behind a proxy each, in addition
	stressNames   = 3
)

// shortTTL is a lease that can be left to run out often.
func shortTTL(c distlock.Capabilities) time.Duration {
	ttl, step := max(c.MinTTL, 400*time.Millisecond), max(c.TTLGranularity, time.Millisecond)
	return (ttl + step - 1) / step * step
}

type stress struct {
	*lab
	recorder *conformance.Recorder
	short    time.Duration
}

// run returns how many clients were behind a proxy.
func (s *stress) run(ctx context.Context) (routed int, err error) {
	f := &fleet{}
	defer func() { err = errors.Join(err, f.close()) }()
	for range stressClients {
		if err := f.join(s.rig.Open(ctx, s.ttl)); err != nil {
			return 0, err
		}
	}
	if s.rig.Route != nil {
		for range stressRouted + 1 {
			r, err := s.rig.Route()
			if err != nil {
				return 0, err
			}
			f.routes = append(f.routes, r)
			if err := f.join(r.Open(ctx, s.ttl)); err != nil {
				return 0, err
			}
		}
		// The last one is for who unlocks late; it is slow, and not disturbed.
		f.routes[stressRouted].Delay(lateness, 0)
		routed = stressRouted
	}
	late := f.clients[len(f.clients)-1]
	bounded, cancel := context.WithTimeout(ctx, s.stress)
	defer cancel()
	crews := []func(){func() { s.lateUnlocks(bounded, late, f.clients[0], f.clients[1]) }}
	for i, c := range f.clients[:stressClients+routed] {
		who := fmt.Sprint("client ", i+1)
		crews = append(crews, func() { s.roam(bounded, who, c) })
		if i%2 == 0 { // one of those behind a proxy among them
			crews = append(crews, func() { s.sprint(bounded, who+" in haste", c) })
		}
	}
	for _, r := range f.routes[:routed] {
		crews = append(crews, func() { s.disturb(bounded, r) })
	}
	_ = each(len(crews), func(i int) error { crews[i](); return nil })
	return routed, ctx.Err()
}

// fleet is the clients of a stress and their routes.
type fleet struct {
	clients []distlock.Locker
	routes  []*Route
}

func (f *fleet) join(c distlock.Locker, err error) error {
	if err == nil {
		f.clients = append(f.clients, c)
	}
	return err
}

func (f *fleet) close() (err error) {
	for _, r := range f.routes {
		if r.Link != nil {
			r.Heal()
		}
	}
	release(f.clients...)
	for _, r := range f.routes {
		err = errors.Join(err, r.Close())
	}
	return err
}

// roam visits names at random. Errors are answers like any other here.
func (s *stress) roam(ctx context.Context, who string, c distlock.Locker) {
	for ctx.Err() == nil {
		s.visit(ctx, who, c)
	}
}

// sprintTurns bounds the history of a store that has no network in between.
const sprintTurns = 5000

// sprint takes and frees one name as fast as it goes, against the others who do.
func (s *stress) sprint(ctx context.Context, who string, c distlock.Locker) {
	for n := 0; n < sprintTurns && ctx.Err() == nil; n++ {
		lock, err := s.recorder.Lock(ctx, who, c, s.prefix+"stress/sprint", distlock.TTL(s.ttl))
		if err != nil {
			pause(ctx, 10*time.Millisecond)
			continue
		}
		s.unlock(ctx, lock)
	}
}

func (s *stress) visit(ctx context.Context, who string, c distlock.Locker) {
	name := fmt.Sprintf("%sstress/%d", s.prefix, rand.N(stressNames))
	opts := []distlock.Option{distlock.TTL(s.short)}
	if rand.N(2) == 0 {
		opts = append(opts, distlock.NoRenewal())
	}
	bounded, cancel := context.WithTimeout(ctx, time.Millisecond+rand.N(2*s.short))
	acquire := s.recorder.Lock
	if rand.N(3) == 0 {
		acquire = s.recorder.TryLock
	}
	lock, err := acquire(bounded, who, c, name, opts...)
	cancel()
	if err != nil {
		pause(ctx, rand.N(10*time.Millisecond))
		return
	}
	switch rand.N(12) {
	case 0: // forgotten: unlocked by itself much later, by us too late
		pause(ctx, s.short+rand.N(s.short/2))
	case 1: // at the last moment
		pause(ctx, time.Until(lock.Deadline())-4*time.Millisecond+rand.N(6*time.Millisecond))
		_ = lock.Extend(ctx, s.short)
	default:
		pause(ctx, rand.N(10*time.Millisecond))
	}
	s.unlock(ctx, lock)
}

// unlock frees a lock whether the time of the stress is up or not.
func (s *stress) unlock(ctx context.Context, lock distlock.Lock) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = lock.Unlock(bounded) // what is not known ends with its TTL
}

// lateness is the round trip of who unlocks late.
const lateness = 200 * time.Millisecond

// lateUnlocks plays the oldest of them: A's lease runs out, B gets the name, A's
// unlock arrives; C must not get the name while B has it. A's network is slow, so
// that it sends its unlock when B holds already.
func (s *stress) lateUnlocks(ctx context.Context, slow, other, third distlock.Locker) {
	name := s.prefix + "stress/late"
	for ctx.Err() == nil {
		a, err := s.recorder.TryLock(ctx, "A", slow, name, distlock.TTL(s.short), distlock.NoRenewal())
		if err != nil {
			pause(ctx, 10*time.Millisecond)
			continue
		}
		b, err := s.recorder.Lock(ctx, "B", other, name, distlock.TTL(s.ttl))
		s.unlock(ctx, a)
		if err != nil {
			continue
		}
		for end := time.Now().Add(2 * lateness); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, lateness/10) {
			if c, err := s.recorder.TryLock(ctx, "C", third, name, distlock.TTL(s.ttl)); err == nil {
				s.unlock(ctx, c)
			}
		}
		s.unlock(ctx, b)
	}
}

// disturb breaks the network of a client over and over.
func (s *stress) disturb(ctx context.Context, r *Route) {
	for ctx.Err() == nil {
		pause(ctx, 100*time.Millisecond+rand.N(400*time.Millisecond))
		switch rand.N(4) {
		case 0:
			r.CutAll()
		case 1:
			r.CutReply(1)
		case 2:
			r.CutRequest(1)
		default: // for longer than a lease now and then
			r.Drop(true, true)
			pause(ctx, rand.N(3*s.short/2))
			r.Heal()
		}
	}
}

// pause sleeps until ctx ends at the latest.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
