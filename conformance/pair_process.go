package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// pairProcesses is pair with another process as B. A mutex keeps the clients of one process apart, whatever a driver that looks
// in one step and acts in another does; nothing keeps a child from passing by. Over a wire a request that is stopped under a mutex
// is seen by the other checks of the group, too: B gets no answer. So there a sample is enough.
func pairProcesses(c *C) {
	depth, ops := pairDepth, []string{"try-free", "unlock"}
	if _, ok := c.harness.(Stepped); ok {
		depth, ops = stepDepth, []string{"try-free", "try-expired", "unlock", "extend", "renewal"}
	}
	third := c.open("C")
	var mu sync.Mutex
	seen := make(map[outcome]int)
	for _, op := range pairings() {
		if !slices.Contains(ops, op.id) {
			continue
		}
		c.together(depth, func(i int, _ *rand.Rand) {
			s := &pairScene{c: c, op: op, third: third, k: i + 1, name: c.Name(fmt.Sprint(op.id, i+1)), ttl: c.Unit(), told: make(chan struct{})}
			s.a, s.gate = c.openGated(fmt.Sprintf("A%d of %s", i+1, op.id))
			defer s.gate.release()
			o := s.playBeside()
			mu.Lock()
			defer mu.Unlock()
			seen[o]++
		})
	}
	c.Logf("the first %d requests or steps of %v; how often: %v", depth, ops, seen)
	if seen[passedBy] == 0 {
		c.Inconclusivef("A could not be stopped, nor another process pass it: %v", seen)
	}
}

// playBeside is play with a child as B, which is started once A has been stopped.
func (s *pairScene) playBeside() outcome {
	c := s.c
	c.pollFor(s.a, c.Name("warm-"+s.a.who), patience, "nobody had ever held it", distlock.TTL(c.long())).free()
	s.op.prepare(s)
	s.start(s.k)
	if !s.stopped() {
		return s.over(notReached)
	}
	child := c.spawn("child beside " + s.a.who)
	defer child.kill()
	child.must(childRequest{Op: "holding"}, "could not be asked for what it holds") // it has opened its client
	if s.held != nil {
		c.sleepUntil(s.held.Ends())
	}
	token, until, o := s.passes(child)
	if o != passedBy {
		return s.over(o)
	}
	wrong := s.goesOn()
	because := fmt.Sprintf("%s by A was stopped at its request or step %d, another process was granted %q with token %d, "+lookThenAct+", also between processes",
		s.op.what, s.k, s.name, token)
	if wrong && c.now() < until { // what an Unlock is told is judged by pair/unlock
		c.breach(s.op.clause, "A was told ok although another process has %q: %s", s.name, because)
	}
	if a := s.third.try(s.name, distlock.NoRenewal()); a.err == nil && a.ret < until {
		c.breach(s.op.clause, "C was granted %q at %s although another process has it until %s: %s", s.name, millis(a.ret), millis(until), because)
	}
	for _, op := range []string{"extend", "unlock"} {
		if r, _, ret := child.ask(childRequest{Op: op, Name: s.name, TTL: c.long()}); r.Lost && ret < until {
			c.breach(s.op.clause, "%s by the other process, which has %q until %s, said %q: %s", op, s.name, millis(until), r.Err, because)
		}
		s.gate.heal() // and what A does about it must not hurt either
	}
	return s.over(passedBy)
}

// passes has the child take the name as soon as it can.
func (s *pairScene) passes(child *process) (token int64, until time.Duration, o outcome) {
	c := s.c
	limit := c.now() + c.atMost(c.Unit()) + c.timing.ExpiryLag + c.soon()
	for c.now() < limit {
		if isDone(s.told) && s.err == nil {
			return 0, 0, toldBefore
		}
		var r childReply
		var call time.Duration
		asked := make(chan struct{})
		c.Go(func() {
			defer close(asked)
			r, call, _ = child.ask(childRequest{Op: "trylock", Name: s.name, TTL: c.long()})
		})
		if !c.within(asked, stuckAfter+c.Slack()/4) {
			s.gate.release() // A may have what the child waits for
			s.gate.heal()
			c.within(asked, 24*time.Hour)
			return 0, 0, blocked
		}
		if r.OK {
			return r.Token, call + r.Left, passedBy
		}
		c.sleep(10 * c.poll())
	}
	return 0, 0, blocked
}
