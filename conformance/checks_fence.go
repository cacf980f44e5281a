package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
)

func fenceChecks() []Check {
	return []Check{
		{
			ID: "fence/over-cleanup", Clause: "F1", Needs: []Cap{capInspector}, Run: fenceOverCleanup,
			Rule: "the token rises although the store was cleaned of what was left of the name",
		},
		{
			ID: "fence/over-restart", Clause: "F1", Needs: []Cap{capProcess}, Alone: true, Run: fenceOverRestart,
			Rule: "the token rises over a restart of the server",
		},
		{
			ID: "fence/unknown-gap", Clause: "F1", Needs: []Cap{capProxy}, Run: fenceUnknownGap,
			Rule: "the token rises over attempts with an unknown outcome; gaps are fine",
		},
	}
}

// rises demands that a grant has a higher token than all before it.
func (c *C) rises(last *int64, h *lease, over string) {
	if h.Token() <= *last {
		c.Failf("%s was granted %q with token %d; the last token, before %s, was %d", h.p.who, h.Name(), h.Token(), over, *last)
	}
	*last = h.Token()
}

// warm makes sure that a client has new connections after a fault.
func (c *C) warm(p *client) {
	name := c.Name("warm-" + p.who)
	c.pollFor(p, name, patience, "nothing keeps it from its store any more").free()
}

func fenceOverCleanup(c *C) {
	a, b := c.open("A"), c.open("B")
	name, last := c.Name("x"), int64(0)
	const idle = 10 * time.Millisecond
	for range 3 {
		h := a.mustTry(name, "which nobody has")
		c.rises(&last, h, "a grant that was unlocked")
		h.free()
		c.sleep(10 * idle)
		n, err := b.sweepIdle(c.ctx, idle)
		switch {
		case errors.Is(err, distlock.ErrUnsupported):
			c.Skipf("the driver is no Sweeper: its store keeps nothing that could be swept")
		case err != nil:
			c.Failf("B swept the store of what was idle for %v: %v", idle, err)
		}
		c.Logf("swept %d names", n)
		h = b.mustTry(name, "which was swept")
		c.rises(&last, h, "a sweep")
		h.free()
	}
}

func fenceOverRestart(c *C) {
	name, last := c.Name("x"), int64(0)
	a := c.open("A")
	for range 3 {
		h := a.mustTry(name, "which nobody has")
		c.rises(&last, h, "a grant that was unlocked")
		h.free()
	}
	c.restart()
	h := c.pollFor(c.open("B"), name, patience+c.soon(), "the server was killed and restarted")
	c.rises(&last, h, "the restart")
	h.free()
}

func fenceUnknownGap(c *C) {
	a, b := c.openVia("A"), c.open("B")
	name, last := c.Name("x"), int64(0)
	ttl := c.short()
	for k := range 4 {
		c.warm(a)
		a.link.CutReply(k + 1)
		got := a.try(name, distlock.TTL(ttl), distlock.NoRenewal())
		a.link.Heal()
		if got.err == nil {
			c.rises(&last, got.lease, "an attempt without an answer")
			_ = got.unlock()
		}
		h := c.pollFor(b, name, ttl+c.timing.ExpiryLag+c.soon(), "the attempt of A, whose reply was lost, and its lease were over")
		c.rises(&last, h, "an attempt without an answer")
		h.free()
	}
	c.requireFired(1)
}

// restart kills the server and brings it back on its data.
func (c *C) restart() {
	p := c.harness.(Process) // the check names capProcess in Needs
	ctx, cancel := context.WithTimeout(c.ctx, 4*patience)
	defer cancel()
	if err := p.Kill(ctx); err != nil {
		c.Inconclusivef("the harness could not kill the server: %v", err)
	}
	if err := p.Restart(ctx); err != nil {
		c.Inconclusivef("the harness could not restart the server: %v", err)
	}
}
