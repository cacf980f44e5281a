package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

// againChecks come back to a name, after a loss and after a long time, and wait for it in
// ways in which others do not.
func againChecks() []Check {
	return []Check{
		{
			ID: "lost/taken-again", Clause: "A6", Mandatory: true, Run: lostTakenAgain,
			Rule: "a client that has lost a lock gets the name again like any other, as soon as it is free",
		},
		{
			ID: "fence/over-idle", Clause: "F1", Mandatory: true, Run: fenceOverIdle, span: 400 * day,
			Rule: "the token rises over any time in which nobody has held the name",
		},
		{
			ID: "wait/any-name", Clause: "W1", Mandatory: true, Run: wakesOnAnyName,
			Rule: "a waiter is woken whatever its name is, and whatever term it has asked for",
		},
		{
			ID: "wait/wakes-on-close", Clause: "W1", Mandatory: true, Run: wakesOnClose,
			Rule: "a waiter gets the name soon after the client of its holder has been closed",
		},
	}
}

func lostTakenAgain(c *C) {
	c.unjudged("an entry is removed behind the back of its holder, which may believe in it for a renewal period")
	a, b := c.open("A"), c.open("B")
	for i, fixed := range []bool{false, true, false} {
		opts := []distlock.Option{distlock.TTL(c.Unit())}
		if fixed {
			opts = append(opts, distlock.NoRenewal())
		}
		h := a.mustTry(c.Name(fmt.Sprint("n", i)), "which is fresh", opts...)
		if i == 2 {
			c.strip(h, b)
			h.mustLearn(c.now(), fmt.Sprintf("the entry of %q was removed from the store", h.Name()))
		} else if fixed {
			c.sleepUntil(h.gone() + c.skew(c.Unit()))
		} else {
			h.free()
		}
		next := a.mustTry(h.Name(), "which nobody holds: A has lost it, and knows it")
		next.free()
	}
}

func fenceOverIdle(c *C) {
	pauses := []time.Duration{c.Unit() / 4, c.Unit()}
	if c.Virtual() {
		pauses = append(pauses, time.Hour+time.Minute, 25*time.Hour, 8*day, 32*day, 366*day/2)
	}
	a, b := c.open("A"), c.open("B")
	unlocked, expired := c.Name("unlocked"), c.Name("expired")
	var first, second int64
	for i, pause := range pauses {
		p := a
		if i%2 == 1 {
			p = b
		}
		h := p.mustTry(unlocked, "which everybody has unlocked")
		c.rises(&first, h, fmt.Sprintf("%v in which nobody held it", pause))
		term := c.pollFor(p, expired, c.timing.ExpiryLag+c.soon(), "its last holder had a fixed term, which is over", distlock.NoRenewal())
		c.rises(&second, term, fmt.Sprintf("%v in which nobody held it", pause))
		h.free()
		c.sleepUntil(term.gone() + pause)
	}
}

func wakesOnAnyName(c *C) {
	a, b := c.open("A"), c.open("B")
	names := c.labels(11)
	for _, like := range []string{"日本語/ключ", "😀 {x}", "a*b?[c]\\", "\"'`;--", "\n\t\x7f"} {
		names = append(names, c.Name(like))
	}
	for _, length := range []int{128, 256, distlock.MaxName} {
		name := c.Name("")
		names = append(names, name+strings.Repeat("x", length-len(name)))
	}
	for i, name := range names {
		opts := []distlock.Option{distlock.TTL(c.long())}
		h := a.mustTry(name, "which is fresh", opts...)
		if i%2 == 1 {
			opts = append(opts, distlock.NoRenewal())
		}
		w := b.begin(name, opts...)
		c.awaitQueued(name, 1)
		h.free()
		w.lease(c.soon(), "A had unlocked it").free()
	}
}

func wakesOnClose(c *C) {
	a, b := c.open("A"), c.open("B")
	var queue []*pending
	for i := range 3 {
		h := a.mustTry(c.Name(fmt.Sprint("n", i)), "which is fresh", distlock.TTL(c.long()))
		queue = append(queue, b.begin(h.Name(), distlock.TTL(c.long())))
		c.awaitQueued(h.Name(), 1)
	}
	if err := a.close(); err != nil {
		c.Failf("A closed its client, the server being in order: %v", err)
	}
	for _, w := range queue {
		w.lease(c.soon(), "the client of A, which held it, was closed").free()
	}
}
