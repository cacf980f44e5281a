package conformance

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
)

func autoChecks() []Check {
	return []Check{
		{ID: "auto/stops-on-unlock", Clause: "H5", Mandatory: true, Run: autoStopsOnUnlock,
			Rule: "renewal ends before the release is sent: the entry does not come back, and no request is sent for it any more"},
		{ID: "auto/stops-on-close", Clause: "C1", Mandatory: true, Needs: []Cap{capProxy}, Run: autoStopsOnClose,
			Rule: "nothing is sent to the server for a client that has been closed"},
	}
}

func autoStopsOnUnlock(c *C) {
	const names = 10
	a, b := c.openMortal("A"), c.open("B")
	ttl := c.short()
	// A client may open a session for such a TTL, which has heartbeats of its own. A lock that nobody renews leaves no renewer.
	_ = a.mustTry(c.Name("first"), "which is fresh", distlock.TTL(ttl), distlock.NoRenewal()).unlock()
	idle := c.idleRequests(a, 2*ttl)
	c.together(names, func(i int, rng *rand.Rand) {
		name := c.Name(fmt.Sprint("n", i))
		for round := range c.rounds(20) {
			h := c.pollFor(a, name, c.soon(), "everybody had unlocked it", distlock.TTL(ttl))
			// Up to the second renewal: it goes out at two thirds of a TTL.
			c.sleep(time.Duration(rng.Int64N(int64(ttl * 3 / 4))))
			_ = h.unlock() // too late on a machine that stood still; what counts comes next
			c.pollFor(b, name, c.soon(), fmt.Sprintf("A had unlocked it in the middle of its renewals, in round %d", round+1),
				distlock.TTL(c.long())).free()
		}
	})
	i := c.inspector()
	for n := range names {
		name := c.Name(fmt.Sprint("n", n))
		if i == nil {
			b.mustTry(name, "which everybody has unlocked").free()
		} else if got, err := i.Records(c.ctx, name); err == nil && got > 0 {
			c.Failf("everybody has unlocked %q, but the store has %d entries of it", name, got)
		}
	}
	c.mustBeIdle(a, 2*ttl, idle, "all its locks were unlocked")
}

// idleRequests counts what a client sends in d while it holds nothing.
func (c *C) idleRequests(p *client, d time.Duration) int {
	if p.link == nil {
		return 0
	}
	before := p.link.Requests()
	c.sleep(d)
	return p.link.Requests() - before
}

// mustBeIdle demands that a client comes to send as little in d as it did before. A
// renewal period is a third of a TTL: in two TTLs a renewer that was left behind
// sends six requests, twice what is forgiven to heartbeats for their phase, and it goes on. A
// connection that is made anew, or the release of a lock that was lost, sends some more once.
func (c *C) mustBeIdle(p *client, d time.Duration, idle int, since string) {
	if p.link == nil {
		return
	}
	allowed := idle + 3
	if n := c.settles(p, d, allowed); n > allowed {
		c.Failf("%s sent %d requests in %v after %s; before it had anything to renew, it sent %d in that time", p.who, n, d, since, idle)
	}
}

// settles returns what a client sends in d, as soon as that is not more than allowed. What was begun before may come late, so
// it has the slack for that. A time in which the machine stood still counts for nothing.
func (c *C) settles(p *client, d time.Duration, allowed int) int {
	began := c.now()
	limit := began + c.Slack()
	for {
		from := c.now()
		last := c.Virtual() || c.past(began, limit)
		n := c.idleRequests(p, d)
		if n <= allowed || last && c.lateness(from, c.now()) < d/4 {
			return n
		}
		if last {
			c.doubt(began, limit)
		}
	}
}

func autoStopsOnClose(c *C) {
	a, b := c.openVia("A"), c.open("B")
	ttl := c.short()
	names := c.names(5)
	c.takeAll(a, names, "which is fresh", distlock.TTL(ttl))
	c.sleep(ttl)
	a.mustClose()
	// Its farewells may still be on their way; leak/connections judges what stays.
	c.eventually(c.Slack(), func() bool { return a.link.Connections() == 0 })
	for _, name := range names {
		c.pollFor(b, name, c.soon(), "A, which held it, was closed").free()
	}
	closed := c.now()
	n := c.idleRequests(a, 2*ttl)
	if 0 < n && n <= 2 { // more is no connection that was begun before
		n = c.settles(a, 2*ttl, 0)
	}
	if n > 0 {
		c.Failf("A sends %d requests in %v, %v after its client was closed", n, 2*ttl, c.now()-closed)
	}
}
