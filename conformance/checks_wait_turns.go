package conformance

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// turnChecks have a few clients take turns on one name: with one, two or three others each is in
// the queue again right after it was served, and a driver that prepares its waiters anew, or
// relies on what it has proved a moment ago, meets itself.
func turnChecks() []Check {
	var checks []Check
	for i, n := range []string{"two", "three", "four"} {
		checks = append(checks, Check{
			ID: "wait/" + n + "-take-turns", Clause: "W1", Needs: []Cap{capPush}, Run: func(c *C) { takeTurns(c, i+2) },
			Rule: n + " clients that take turns on one name get it by wake-ups, and do not ask for it in between",
		})
	}
	return checks
}

const (
	// turns is how many grants a check makes, and turnHold how long each is held: a waiter that
	// polls asks four times more meanwhile.
	turns    = 36
	turnHold = 60 * time.Millisecond

	// turnTries is how many requests a grant may cost: one to queue, one when it comes, and three
	// for a waiter that is not ready at once, and polls for that moment.
	turnTries = 5

	// turnsPolled is how many grants may come without a wake-up: the first of each client, before
	// it has a subscription. A waiter also looks by itself, every third of its TTL, and may
	// come just right.
	turnsPolled = 6
)

// takeTurns counts what the drivers were asked, and not the time that it took.
func takeTurns(c *C, n int) {
	name := c.Name("x")
	var peers []*client
	for i := range n {
		peers = append(peers, c.open(fmt.Sprint("C", i+1)))
	}
	if _, ok := peers[0].locker.(interface{ Stat() driver.Stat }); !ok {
		c.Skipf("the Locker does not tell how it was served: it has no Stat, as a *driver.Client has")
	}
	// A subscription may take long to be there, and waiters poll until then.
	c.eventually(patience/3, func() bool { return c.turn(peers, name, 2, turns).Polled == 0 })
	if st := c.turn(peers, name, turns/n, turnsPolled); st.Tries > turnTries*turns {
		c.Failf("%d clients took turns on %q, each holding it for %v, and asked the store %d times for %d grants; %d are allowed", n, name, turnHold, st.Tries, turns, turnTries*turns)
	}
}

// turn has clients take a name so many times each, and returns how they were served. Of the grants, so many may come by a
// waiter that looks again by itself.
func (c *C) turn(peers []*client, name string, each, polled int) driver.Stat {
	before := served(peers)
	since := func() driver.Stat {
		st := served(peers)
		return driver.Stat{Tries: st.Tries - before.Tries, Woken: st.Woken - before.Woken, Polled: st.Polled - before.Polled}
	}
	c.together(len(peers), func(i int, _ *rand.Rand) {
		p := peers[i]
		for range each {
			a := p.lock(name, patience, distlock.TTL(c.long()))
			if a.err != nil {
				c.unheard(a.err, p.who, name)
				c.Failf("%s was not served: %d clients take turns on %q, each holds it for %v, and %s was told %v", p.who, len(peers), name, turnHold, p.who, a.err)
			}
			c.sleep(turnHold)
			a.free()
			if st := since(); st.Polled > int64(polled) {
				c.Failf("of %d grants of %q to %d clients that take turns, %d came when the waiter looked again by itself, and not by a wake-up; %d are allowed",
					st.Woken+st.Polled, name, len(peers), st.Polled, polled)
			}
		}
	})
	return since()
}

// served sums up how clients were served.
func served(peers []*client) (sum driver.Stat) {
	for _, p := range peers {
		st := p.locker.(interface{ Stat() driver.Stat }).Stat()
		sum.Tries += st.Tries
		sum.Woken += st.Woken
		sum.Polled += st.Polled
	}
	return sum
}
