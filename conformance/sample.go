package conformance

import (
	"errors"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

// sampled is how many situations a check looks at, besides the first, if it looks at a sample.
const sampled = 2

// sampledLag is the longest ExpiryLag that a sample waits for: a session of ZooKeeper may have one of two minutes.
const sampledLag = 15 * time.Second

// situations are those that can be here and that the effect is judged in, or a sample of them. What is not judged must be no
// part of a sample, which would be smaller for it, or empty, and still pass.
func (c *C) situations(e effect, p *client) []situation {
	look := c.lookTakes(p)
	table := slices.DeleteFunc(situations(), func(s situation) bool {
		if !c.Virtual() && (s.exact || s.late && c.samples() && c.timing.ExpiryLag > sampledLag) {
			return true
		}
		return !c.judges(e, s, look) || !s.there(p)
	})
	if c.samples() {
		c.Rand().Shuffle(len(table)-1, func(i, j int) { table[i+1], table[j+1] = table[j+1], table[i+1] })
		table = table[:min(len(table), 1+sampled)]
	}
	return table
}

// judges reports whether the effect is judged in the situation, where a look takes so long. What is not judged must not be
// renewed beside the others, be it for hours.
func (c *C) judges(e effect, s situation, look time.Duration) bool {
	ttl := s.ttl(c)
	if s.exact && ttl < 8*c.cal.Pair || e.looks && s.exact && ttl < 8*look || s.shortest > 0 && !e.dies {
		return false // the lease would be over before anybody has looked
	}
	mortal := s.fixed || c.mortal() && s.needs != capNamespaces
	return !(e.dies && (s.ages || !mortal) || s.itself && (e.dies || e.clause == "C1"))
}

// lookTakes is how long a call to Inspect takes.
func (c *C) lookTakes(p *client) time.Duration {
	ctx, cancel := c.patiently()
	defer cancel()
	began := c.now()
	_, _ = p.inspect(ctx, c.Name("nobody's")) // it may not be supported
	return c.now() - began
}

// What a driver can do besides, as situations need it. It is told by a call.
const (
	canBreak Cap = "break"
	canSweep Cap = "sweep"
)

// there reports whether the situation can be with this harness and the driver of p.
func (s situation) there(p *client) bool {
	c := p.c
	ctx, cancel := c.patiently()
	defer cancel()
	var err error
	switch s.needs {
	case "":
	case canBreak:
		err = p.breakHold(ctx, c.Name("nobody's"), 1)
	case canSweep:
		_, err = p.sweepIdle(ctx, time.Hour)
	default:
		support, _ := c.harness.Caps().of(s.needs)
		has, _ := implements(c.harness, s.needs)
		return support == Yes && has
	}
	return !errors.Is(err, distlock.ErrUnsupported)
}
