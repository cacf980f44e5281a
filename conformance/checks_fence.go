package conformance

import (
	"context"
)

func fenceChecks() []Check {
	return []Check{
		{ID: "fence/over-restart", Clause: "F1", Needs: []Cap{capProcess}, Alone: true, Run: fenceOverRestart,
			Rule: "the token rises over a restart of the server"},
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
