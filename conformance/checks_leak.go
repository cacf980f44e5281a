package conformance

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime/pprof"
	"strconv"
	"strings"

	"github.com/distlock-go/distlock"
)

func leakChecks() []Check {
	return []Check{
		{ID: "leak/goroutines", Clause: "C1", Mandatory: true, Run: leakGoroutines,
			Rule: "no goroutine of a client outlives its Close"},
		{ID: "leak/connections", Clause: "C1", Needs: []Cap{capProxy}, Run: leakConnections,
			Rule: "connections do not pile up with the locks taken, and none outlives Close"},
	}
}

// exercise makes a client do all that may leave something behind, against a rival.
func (c *C) exercise(p, rival *client, rounds int) {
	name, ttl := c.Name("exercise"), distlock.TTL(c.long())
	for i := range rounds {
		h := c.pollFor(p, name, c.timing.CleanupBound+c.soon(), "everybody had unlocked it", ttl)
		h.mustExtend(c.long())
		h.free()
		if i%4 != 0 {
			continue
		}
		h = c.pollFor(rival, name, c.soon(), "it was unlocked", ttl)
		w := p.begin(name, ttl)
		if i%8 == 0 {
			c.awaitQueued(name, 1)
		}
		w.giveUp()
		_ = p.try(name, ttl)
		w = p.begin(name, ttl)
		h.free()
		w.woken(c.soon(), "the rival had unlocked it").free()
	}
}

func leakGoroutines(c *C) {
	// Goroutines inherit the labels of the one that starts them, so everything
	// that the clients ever start can be told from what else runs in the process.
	label := c.Name("leak")
	c.together(1, func(int, *rand.Rand) {
		pprof.Do(c.ctx, pprof.Labels("conformance", label), func(context.Context) {
			p, rival := c.open("A"), c.open("B")
			c.exercise(p, rival, 9)
			expires := p.mustTry(c.Name("expires"), "which is fresh", distlock.TTL(c.short()), distlock.NoRenewal())
			p.mustTry(c.Name("held"), "which is fresh")
			c.sleepUntil(expires.gone())
			for _, p := range []*client{p, rival} {
				p.mustClose()
			}
		})
	})
	closed := c.now()
	var left string
	if !c.eventually(c.Slack(), func() bool { left = labelled(label); return left == "" }) {
		c.Failf("%v after Close, these goroutines are left that the clients A and B or their calls have started (connections that clients share, "+
			"such as those of http.DefaultTransport or of one *sql.DB, count as well: let each client have its own):\n%s", c.now()-closed, left)
	}
}

// labelled returns the stacks of the goroutines with this label.
func labelled(label string) string {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // a Buffer takes everything
	var kept []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, strconv.Quote(label)) {
			kept = append(kept, stack)
		}
	}
	return strings.Join(kept, "\n\n")
}

func leakConnections(c *C) {
	a, b := c.openVia("A"), c.open("B")
	c.exercise(a, b, 9)
	before := a.link.Connections()
	c.exercise(a, b, 45)
	// A pool may grow by a few with the luck of what overlaps.
	if !c.eventually(c.Slack(), func() bool { return a.link.Connections() <= before+5 }) {
		c.Failf("A had %d connections after 9 rounds of locking and cancelling, and %d after 45 more", before, a.link.Connections())
	}
	a.mustClose()
	closed := c.now()
	if !c.eventually(c.Slack(), func() bool { return a.link.Connections() == 0 }) {
		c.Failf("%v after A's client was closed, %d connections of it are open", c.now()-closed, a.link.Connections())
	}
}
