package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
)

// stoppedRounds is how often a process is stopped. Where the check need not be thorough, one round of each worker has to do.
const stoppedRounds, stoppedWorkers = 300, 6

// stoppedIn are the operations that it is stopped in.
var stoppedIn = []string{"TryLock of a free name", "TryLock of an expired name", "Unlock", "Extend"}

func stoppedChecks() []Check {
	return []Check{{
		ID: "pair/stopped-process", Clause: "H1", Mandatory: true, Needs: []Cap{capChild}, Heavy: true, Run: stoppedProcess,
		Rule: "a process that is stopped anywhere in TryLock, Unlock or Extend, until its lease is over and another has the name, does not touch it when it goes on",
	}}
}

func stoppedProcess(c *C) {
	c.unmodelled()
	rounds := stoppedWorkers
	if c.thorough() {
		rounds = stoppedRounds
	}
	usual := make(map[string]time.Duration)
	begin := func(rng *rand.Rand) *stopping {
		return &stopping{C: c, b: c.open("B"), third: c.open("C"), rng: rng, child: c.spawn("child"), usual: usual}
	}
	first, in := begin(c.Rand()), stoppedIn
	if c.brief() {
		in = slices.DeleteFunc(slices.Clone(in), func(what string) bool { return strings.Contains(what, "expired") })
	}
	for _, what := range in {
		q := first.prepare(what, c.Name("n-"+what))
		r, _, _ := first.child.ask(q)
		usual[what] = r.Took
	}
	var passed atomic.Int64
	c.together(stoppedWorkers, func(i int, rng *rand.Rand) {
		s := begin(rng)
		for n := range rounds / stoppedWorkers {
			if s.round(in[(i+n)%len(in)], c.Name(fmt.Sprintf("n%d-%d", i, n))) {
				passed.Add(1)
			}
		}
	})
	c.Logf("in %d of %d rounds B had the name while the process was stopped", passed.Load(), rounds)
}

// stopping is one process that is stopped and goes on, round by round.
type stopping struct {
	*C
	b, third *client
	child    *process
	rng      *rand.Rand
	usual    map[string]time.Duration // how long each operation takes
}

// prepare brings the name into its state, and returns the operation.
func (s *stopping) prepare(what, name string) childRequest {
	q := childRequest{Op: "trylock", Name: name, TTL: s.fits(s.Unit() / 8), Fixed: true}
	switch what {
	case stoppedIn[1]:
		s.sleepUntil(s.b.mustTry(name, "which is fresh", distlock.NoRenewal(), distlock.TTL(q.TTL)).gone())
	case "Unlock", "Extend":
		if r, _, _ := s.child.ask(q); !r.OK {
			s.Inconclusivef("the child was refused %q, which is fresh: %s", name, r.Err)
		}
		q.Op = strings.ToLower(what)
	}
	return q
}

// round reports whether B had the name meanwhile.
func (s *stopping) round(what, name string) bool {
	q := s.prepare(what, name)
	answered := make(chan struct{})
	var r childReply
	s.Go(func() {
		defer close(answered)
		r, _, _ = s.child.ask(q)
	})
	s.wait(random(s.rng, 2*s.usual[what]+200*time.Microsecond))
	if err := pause(s.child.cmd.Process); err != nil {
		s.Skipf("a process cannot be stopped here: %v", err)
	}
	next, passed := s.passes(what, name)
	s.within(answered, patience)
	if !passed {
		_ = next.unlock() // the child went on before B had it: nothing is to be seen
		return false
	}
	s.judge(what, next, r)
	return true
}

// wait is sleep for microseconds.
func (s *stopping) wait(d time.Duration) {
	for until := s.now() + d; s.now() < until; {
	}
}

// passes has B get the name, and the child go on. It returns false if the child keeps B from it by what it has on
// the machine, such as a file lock, and so goes on before.
func (s *stopping) passes(what, name string) (next *lease, passed bool) {
	gone := s.atMost(s.fits(s.Unit()/8)) + s.timing.ExpiryLag
	over := make(chan struct{})
	s.Go(func() {
		defer close(over)
		next = s.pollFor(s.b, name, gone+2*stuckAfter+s.soon(), "the lease of a process that was stopped in "+what+" is over", distlock.TTL(s.long()))
	})
	passed = s.within(over, gone+2*stuckAfter)
	if err := resume(s.child.cmd.Process); err != nil {
		s.Failf("the child could not be resumed: %v", err)
	}
	s.within(over, patience)
	return next, passed
}

// judge demands that B, which got the name while the child was stopped, has it still.
func (s *stopping) judge(what string, next *lease, r childReply) {
	because := fmt.Sprintf("a process was stopped in %s; B was granted %q at %s, then the process went on: a driver that looks in one step and acts in another does so; the test and the change must be one step",
		what, next.Name(), millis(next.ret))
	if what != "Unlock" && r.OK {
		if late, _, _ := s.child.ask(childRequest{Op: "err"}); late.OK {
			s.breach("H1", "the process was told ok, and its Err is nil, although B has %q: %s", next.Name(), because)
		}
	}
	s.third.mustBeBusyAfter(next.Name(), next, because)
	if _, _, err := next.extend(s.long()); errors.Is(err, distlock.ErrLost) {
		s.breach("H1", "Extend by B, which has %q until %s, said %q: %s", next.Name(), millis(next.end()), err, because)
	}
	next.free()
}
