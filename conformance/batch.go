package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
)

// workers is how many goroutines of a check take or look at a crowd of names.
const workers = 16

// takeAll takes names that have to be free, a few at a time, and returns the locks in
// the order of the names.
func (c *C) takeAll(p *client, names []string, why string, opts ...distlock.Option) []*lease {
	leases := make([]*lease, len(names))
	c.share(len(names), func(i int) { leases[i] = p.mustTry(names[i], why, opts...) })
	return leases
}

// share calls f for 0 to n-1, from a few goroutines.
func (c *C) share(n int, f func(i int)) {
	c.together(min(workers, n), func(w int, _ *rand.Rand) {
		for i := w; i < n; i += workers {
			f(i)
		}
	})
}

// freeAll unlocks what has to be held, a few at a time.
func (c *C) freeAll(leases []*lease) { c.share(len(leases), func(i int) { leases[i].free() }) }

// mustKeep demands of every lock that its holder believes in it, and that the store
// tells everybody else so.
func (c *C) mustKeep(leases []*lease, probe *client, why string) {
	c.share(len(leases), func(i int) {
		c.mustLive(leases[i], why)
		probe.mustBeBusyAfter(leases[i].Name(), leases[i], why)
	})
}

// strip removes the entry of h from the store behind the back of its holder: by the
// harness, or else by Break.
func (c *C) strip(h *lease, by *client) {
	var err error
	if i := c.inspector(); i != nil {
		err = i.Delete(c.ctx, h.Name())
	} else if err = by.breakHold(c.ctx, h.Name(), h.Token()); errors.Is(err, distlock.ErrUnsupported) {
		c.Skipf("neither harness nor driver can remove the entry of a holder")
	}
	switch {
	case err == nil:
	case c.now() >= h.Ends(): // whether it should have ended, other checks judge
		c.Inconclusivef("the lock of %q ended at %s, before its entry could be removed: %v", h.Name(), millis(h.Ends()), err)
	default:
		c.unheard(err, by.who, h.Name())
		c.Failf("the entry of %q, which %s holds, could not be removed: %v", h.Name(), h.p.who, err)
	}
}

// mustLearn demands that a holder learns within a renewal period of its TTL that its
// lock is gone. It is gone since then.
func (h *lease) mustLearn(since time.Duration, what string) {
	c := h.p.c
	bound := h.asked/2 + c.Slack()
	if !c.within(h.done, since+bound-c.now()) {
		c.breach("H1", "%s at %s; %s's Done is not closed by %s although a renewal period is %v: no renewal has told it so",
			what, millis(since), h.p.who, millis(c.now()), h.asked/3)
	}
	if err := h.Err(); !errors.Is(err, distlock.ErrLost) {
		c.breach("H1", "%s at %s; %s's Err must match ErrLost, it is %s", what, millis(since), h.p.who, describe(err))
	}
}

// queueAll has a client of its own wait for each name.
func (c *C) queueAll(p *client, leases []*lease) []*pending {
	var queue []*pending
	for _, h := range leases {
		queue = append(queue, p.begin(h.Name(), distlock.TTL(c.long()), distlock.NoRenewal()))
		c.awaitQueued(h.Name(), 1)
	}
	return queue
}

// mustEnd demands that the name of a dead holder comes free within the bound, and no
// sooner than at least; w waits for it.
func (h *lease) mustEnd(w *pending, least, most time.Duration, why string) {
	c := h.p.c
	if !w.within(max(most, w.began) + c.soon() - c.now()) {
		c.Failf("%s waits for %q, whose dead holder had asked for %v; %s. It had to be free at %s, %v after %s at the latest, and is not by %s",
			w.p.who, h.Name(), h.asked, why, millis(most), c.timing.ExpiryLag, millis(most-c.timing.ExpiryLag), millis(c.now()))
	}
	got := w.lease(0, why)
	if got.ret < least {
		c.Failf("%s was granted %q at %s, %v before the lease of its dead holder can have ended, at %s: %s",
			w.p.who, h.Name(), millis(got.ret), least-got.ret, millis(least), why)
	}
	got.free()
}

// lasts is how long a TTL may be made by rounding, and the store late with its end.
func (c *C) lasts(ttl time.Duration) time.Duration {
	return ttl + c.timing.TTLGranularity + c.timing.ExpiryLag + c.skew(ttl)
}

// restOf is the most that a store may tell of how long it still keeps the entry of h, if it
// was asked from before to after. It may read its clock first and the entry later. The holder may
// have renewed that in between, so what is told is more than the TTL by as much.
func (c *C) restOf(h *lease, before, after time.Duration) time.Duration {
	return max(c.lasts(h.asked)+after, h.longest+c.lasts(0)+c.skew(h.longest)) - before
}

// labels returns n names: some differ in a number, and some are as like to the first
// of them as names can be.
func (c *C) labels(n int) []string {
	names := make([]string, 0, n)
	for _, like := range []string{"n0 ", "N0", "n0/", "n0\x00", "n00", "n%", "n_", "/n0", "ń0", "n0:1"} {
		names = append(names, c.Name(like))
	}
	return append(names, c.names(n-len(names))...)
}

// names returns n names that differ in a number.
func (c *C) names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = c.Name(fmt.Sprint("n", i))
	}
	return names
}
