package conformance

import (
	"fmt"
	"strconv"
	"time"

	"github.com/distlock-go/distlock"
)

func lostChecks() []Check {
	return []Check{
		{ID: "lost/quiet-when-healthy", Clause: "H5", Needs: []Cap{capProxy}, Run: quietWhenHealthy,
			Rule: "slow replies and a broken connection, for less than a TTL, do not lose a lock"},
		{ID: "lost/paused-client", Clause: "H4", Needs: []Cap{capChild}, Run: pausedClient,
			Rule: "a holder that was stopped for longer than its TTL is told of its loss at its first look after it goes on"},
	}
}

func quietWhenHealthy(c *C) {
	a, b := c.openVia("A"), c.open("B")
	name := c.Name("x")
	c.watchStore()
	// A repeated renewal connects again, which takes some six of the delays. In real time the TTL leaves room for a
	// machine that is a little late at each of them.
	ttl := c.Unit()
	if !c.Virtual() {
		ttl *= 2
	}
	h := a.mustTry(name, "which is fresh", distlock.TTL(ttl))
	others := c.takeAll(a, []string{c.Name("y"), c.Name("z")}, "which is fresh", distlock.TTL(ttl)) // they go along in one batch
	a.link.Delay(50*time.Millisecond, 20*time.Millisecond)
	a.delayed = true
	// One after the other, a unit apart at the least: each time all but one renewal come through. The next
	// waits until one has been confirmed since: on a slow link the repeat of a renewal takes some round
	// trips, to connect again, and two faults within one lease are another matter.
	faults := []func(){a.link.CutAll, func() { a.link.CutRequest(1) }, func() { a.link.CutReply(1) }}
	end, limit := h.ret+time.Duration(len(faults)+2)*c.Unit(), h.ret+time.Duration(10*len(faults))*c.Unit()
	var hit time.Time // the Deadline once the last fault had fired; zero until then
	fired, confirmed := 0, true
	for n := 0; c.now() < end || n < len(faults) && c.now() < limit; {
		c.sleep(c.Unit() / 4)
		if hit.IsZero() && (n == 1 || a.link.Fired() > fired) {
			hit = h.Deadline()
		}
		confirmed = confirmed || !hit.IsZero() && h.Deadline().After(hit)
		if n < len(faults) && confirmed && c.now() > h.ret+time.Duration(n+1)*c.Unit() {
			fired, confirmed, hit = a.link.Fired(), false, time.Time{}
			faults[n]()
			n++
			end = max(end, c.now()+2*ttl)
		}
		for _, h := range append(others, h) {
			c.mustLive(h, "its link being slow, and cut now and then for a moment, but never for as long as its TTL")
		}
		b.mustBeBusy(name, h)
	}
	c.requireFired(2) // CutAll finds nothing to cut where connections come and go
	a.link.Heal()
	c.freeAll(others)
	if c.Virtual() {
		c.outlasts(a, b, h)
	}
	h.free()
}

// outlasts has every request of A fail for some time, but for less than its TTL has left. On
// a real network nobody knows how soon a client library connects again.
func (c *C) outlasts(a, b *client, h *lease) {
	mend := a.breaksAll()
	c.sleep(c.Unit() * 2 / 5)
	mend()
	c.sleep(c.Unit() / 2)
	c.mustLive(h, "several renewals having failed, but not for as long as its TTL")
	b.mustBeBusy(h.Name(), h)
}

func pausedClient(c *C) {
	b := c.open("B")
	child := c.spawn("child")
	name := c.Name("x")
	r, _, _ := child.must(childRequest{Op: "lock", Name: name, TTL: c.Unit()}, fmt.Sprintf("was refused the fresh name %q", name))
	if err := pause(child.cmd.Process); err != nil {
		c.Skipf("a process cannot be stopped here: %v", err)
	}
	stopped := c.now()
	// The lease is at its longest if the child renewed it just before the stop.
	h := c.pollFor(b, name, c.atMost(c.Unit())+c.timing.ExpiryLag+c.soon(), "the child was stopped and its lease had ended")
	store := new(register)
	if err := store.write("B", h.Token()); err != nil {
		c.Failf("B holds %q and writes: %v", name, err)
	}
	c.sleepUntil(stopped + 2*c.Unit())
	if err := resume(child.cmd.Process); err != nil {
		c.Failf("the child could not be resumed: %v", err)
	}
	late, _, asked := child.ask(childRequest{Op: "err", Name: name})
	if late.OK || !late.Lost {
		c.Failf("the child was stopped at %s with a TTL of %v, B was granted %q at %s, and at %s the child, awake again, has the Err %s; it must match ErrLost",
			millis(stopped), c.Unit(), name, millis(h.ret), millis(asked), describeText(late.Err))
	}
	if err := store.write("the child, late", r.Token); err == nil {
		c.Failf("the child writes with token %d after B has written with %d, and nothing tells the two apart", r.Token, h.Token())
	}
	h.free()
}

// describeText is describe for the error of another process.
func describeText(text string) string {
	if text == "" {
		return "nil"
	}
	return strconv.Quote(text)
}
