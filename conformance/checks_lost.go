package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/distlock-go/distlock"
)

func lostChecks() []Check {
	return []Check{
		{
			ID: "lost/before-successor", Clause: "H4", Mandatory: true, Needs: []Cap{capProxy}, Run: lostBeforeSuccessor,
			Rule: "a holder that is cut off learns by itself, at its Deadline at the latest, that its lock is lost, before anybody else can have it",
		},
		{
			ID: "lost/record-deleted", Clause: "H4", Needs: []Cap{capInspector}, Run: lostRecordDeleted,
			Rule: "a holder whose entry was removed from the store learns of it within a renewal period, or from Unlock",
		},
		{
			ID: "lost/quiet-when-healthy", Clause: "H5", Needs: []Cap{capProxy}, Run: quietWhenHealthy,
			Rule: "slow replies and a broken connection, for less than a TTL, do not lose a lock",
		},
		{
			ID: "lost/not-on-unlock", Clause: "H4", Mandatory: true, Run: notLostOnUnlock,
			Rule: "Unlock closes Done with ErrUnlocked, and is not reported as a loss",
		},
		{
			ID: "lost/late-subscriber", Clause: "H4", Mandatory: true, Run: lateSubscriber,
			Rule: "Done returns a closed channel after the loss, each time the same",
		},
		{
			ID: "lost/paused-client", Clause: "H4", Needs: []Cap{capChild}, Run: pausedClient,
			Rule: "a holder that was stopped for longer than its TTL is told of its loss at its first look after it goes on",
		},
	}
}

// doneAt returns when Done was seen closed.
func (h *lease) doneAt() <-chan time.Duration {
	c, at := h.p.c, make(chan time.Duration, 1) // one element: the goroutine must not outlive its value
	done := h.Done()
	c.Go(func() {
		select {
		case <-done:
			at <- c.now()
		case <-c.ctx.Done():
		}
	})
	return at
}

func lostBeforeSuccessor(c *C) {
	a, b := c.openVia("A"), c.open("B")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh")
	done := h.doneAt()
	w := b.begin(name)
	c.awaitQueued(name, 1)
	c.sleepUntil(h.ret + c.Unit()*3/2) // let it be renewed before
	cut := c.now()
	a.cutOff()
	c.requireFired(1)
	next := w.lease(h.granted()+c.timing.ExpiryLag+c.soon(), "A was cut off and its lease had ended")
	if err := h.Err(); !errors.Is(err, distlock.ErrLost) {
		c.Failf("A was cut off at %s; B was granted %q at %s and A's Err is %s; it had to be ErrLost before that",
			millis(cut), name, millis(next.ret), describe(err))
	}
	// Err looks at the clock, but Done is closed by a goroutine, and a busy machine
	// may wake that too late. In virtual time nothing is late.
	slack := c.Slack()
	if c.Virtual() {
		slack = 0
	}
	deadline := h.Ends()
	if !c.within(h.Done(), slack) {
		c.Failf("A was cut off at %s and B was granted %q at %s, but A's Done is not closed by %s (its Deadline: %s)",
			millis(cut), name, millis(next.ret), millis(c.now()), millis(deadline))
	}
	select {
	case at := <-done:
		if c.tooLong(deadline, at, slack) {
			c.Failf("A's Done closed at %s, its Deadline was %s (slack %v)", millis(at), millis(deadline), slack)
		}
	case <-c.ctx.Done():
	}
	next.free()
}

func lostRecordDeleted(c *C) {
	c.unjudged("the entry was removed behind the back of its holder, which may believe in it for a renewal period")
	a := c.open("A")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh")
	done := h.Done()
	c.sleepUntil(h.ret + c.Unit()/2)
	if err := c.inspector().Delete(c.ctx, name); err != nil {
		c.Failf("the harness could not delete the entry of %q, which A holds: %v", name, err)
	}
	deleted := c.now()
	if !c.within(done, c.Unit()/2+c.Slack()) {
		c.Failf("the entry of %q was removed from the store at %s; A's Done is not closed by %s, a renewal period is %v",
			name, millis(deleted), millis(c.now()), c.Unit()/3)
	}
	if err := h.Err(); !errors.Is(err, distlock.ErrLost) {
		c.Failf("A's Done closed because its entry was removed; Err must match ErrLost, it is %s", describe(err))
	}
	// An Unlock before that learns of it from the release.
	early := a.mustTry(c.Name("early"), "which is fresh", distlock.TTL(c.long()))
	if err := c.inspector().Delete(c.ctx, early.Name()); err != nil {
		c.Failf("the harness could not delete the entry of %q, which A holds: %v", early.Name(), err)
	}
	for _, l := range []*lease{h, early} {
		if err := l.unlock(); !errors.Is(err, distlock.ErrLost) {
			c.Failf("the entry of %q was removed while A held it; its Unlock must match ErrLost, it returned %s", l.Name(), describe(err))
		}
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
		c.mustLive(h, "its link being slow, and cut now and then for a moment, but never for as long as its TTL")
		b.mustBeBusy(name, h)
	}
	c.requireFired(2) // CutAll finds nothing to cut where connections come and go
	a.link.Heal()
	if c.Virtual() {
		c.outlasts(a, b, h)
	}
	h.free()
}

// outlasts has every request of A fail for some time, but for less than its TTL has left. On
// a real network nobody knows how soon a client library connects again.
func (c *C) outlasts(a, b *client, h *lease) {
	stop := c.repeat(func() { a.link.Drop(true, true); a.link.CutAll() })
	c.sleep(c.Unit() * 2 / 5)
	stop()
	a.link.Heal()
	c.sleep(c.Unit() / 2)
	c.mustLive(h, "several renewals having failed, but not for as long as its TTL")
	b.mustBeBusy(h.Name(), h)
}

func notLostOnUnlock(c *C) {
	a := c.open("A")
	for _, opts := range [][]distlock.Option{nil, {distlock.NoRenewal()}} {
		h := a.mustTry(c.Name("x"), "which nobody has", opts...)
		done := h.Done()
		if c.within(done, 0) || h.Err() != nil {
			c.Failf("A holds %q, but its Done is closed or its Err is set: %s", h.Name(), describe(h.Err()))
		}
		h.free()
		if !c.within(done, 0) {
			c.Failf("A has unlocked %q, but its Done is still open", h.Name())
		}
		if err := h.Err(); !errors.Is(err, distlock.ErrUnlocked) || errors.Is(err, distlock.ErrLost) {
			c.Failf("A has unlocked %q; its Err must match ErrUnlocked and not ErrLost, it is %s", h.Name(), describe(err))
		}
	}
}

func lateSubscriber(c *C) {
	a := c.open("A")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.NoRenewal())
	c.sleepUntil(h.Ends())
	// The Deadline has passed, so the very first question must be answered right,
	// also if no timer has run since.
	if err := h.Err(); !errors.Is(err, distlock.ErrLost) {
		c.Failf("the Deadline of A's lock, %s, has passed; its Err must match ErrLost, it is %s", h.Ends(), describe(err))
	}
	first := h.Done()
	if !c.within(first, 0) {
		c.Failf("A's lock of %q is lost and Err says so, but the channel that Done returns afterwards is open", name)
	}
	for range 2 {
		_ = h.unlock()
		if h.Done() != first {
			c.Failf("Done of A's lock returned another channel than before")
		}
		if err := h.Err(); !errors.Is(err, distlock.ErrLost) {
			c.Failf("A's lock of %q was lost and then unlocked; its Err must still match ErrLost, it is %s", name, describe(err))
		}
	}
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
