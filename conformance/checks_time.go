package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
)

const (
	day = 24 * time.Hour

	// ages is the span of the checks that wait for the longest TTL there is.
	ages = 4 * distlock.MaxTTL
)

// timeChecks look at leases of all lengths. In virtual time they wait for their end,
// be it a year; on a server they look at what can be seen at once.
func timeChecks() []Check {
	return []Check{
		{ID: "time/long-terms", Clause: "E2", Mandatory: true, Run: longTerms, span: ages,
			Rule: "a TTL of an hour, of weeks, of the longest that is allowed lasts as long as was asked for, rounded up by the declared granularity at the most"},
		{ID: "time/deadline-shows", Clause: "E2", Mandatory: true, Run: deadlineShows,
			Rule: "Deadline shows what was asked for, whatever TTL that is, and no more than the granularity on top"},
		{ID: "time/untouched", Clause: "E1", Mandatory: true, Needs: []Cap{capProxy}, Run: untouchedExpiry,
			Rule: "a lease ends by itself: the first request for the name after its end gets it, though nobody has asked since"},
		{ID: "time/long-renewed", Clause: "H5", Mandatory: true, Run: longRenewed, span: ages,
			Rule: "a lock is renewed for as long as nobody unlocks it, be it a day, be it a thousand renewals"},
		{ID: "time/extend-fractions", Clause: "H5", Mandatory: true, Run: extendFractions, span: ages,
			Rule: "Extend, at whatever moment of the lease and by whatever TTL, makes it last from the call on for that TTL, or for what was left if that is more"},
		{ID: "time/rhythm", Clause: "H5", Needs: []Cap{capInspector}, Run: renewalRhythm,
			Rule: "after a long Extend the lock is renewed as often as before: a loss is noticed within a period of its own TTL"},
	}
}

// longTTLs returns TTLs on either side of where common representations of time end: 16
// bits of milliseconds or seconds, 31 and 32 bits of microseconds or milliseconds, a
// time of day. A driver that counts in minutes or seconds loses the odd parts.
func (c *C) longTTLs() []time.Duration {
	var ttls []time.Duration
	for _, d := range []time.Duration{
		time.Minute, 66 * time.Second, 36 * time.Minute, 72 * time.Minute, time.Hour, 10 * time.Hour, 19 * time.Hour,
		25 * time.Hour, 8 * day, 25 * day, 31 * day, 50 * day, 100 * day, 200 * day,
	} {
		if d += 59*time.Second + 999*time.Millisecond; d <= c.longest() {
			ttls = append(ttls, d)
		}
	}
	return append(ttls, c.longest())
}

// longest returns the longest TTL that the driver declares.
func (c *C) longest() time.Duration {
	if limit := c.timing.MaxTTL; limit > 0 {
		return min(limit, distlock.MaxTTL)
	}
	return distlock.MaxTTL
}

func longTerms(c *C) {
	b := c.open("B")
	ttls := c.longTTLs()
	c.together(len(ttls), func(i int, _ *rand.Rand) {
		a, name, ttl := c.openMortal(fmt.Sprint("A", i+1)), c.Name(ttlName(ttls[i])), ttls[i]
		h := a.mustTry(name, "which is fresh", distlock.TTL(ttl), distlock.NoRenewal())
		c.mustShow(h, ttl)
		c.mustRemain(b, h)
		b.mustBeBusy(name, h)
		if !c.Virtual() {
			h.free()
			return
		}
		how := fmt.Sprintf("%s got it at %s for %v", a.who, millis(h.ret), ttl)
		c.approach(b, h, h.call+ttl, how)
		h.dies()
		c.outlives(b, h, h.call+ttl, h.ret+c.atMost(ttl), how)
		a.revive()
	})
}

func ttlName(ttl time.Duration) string { return "ttl " + ttl.String() }

// approach lets time pass until two hours before the end of a long lease of h without
// renewal, and demands that it lasts for so long. A holder that was cut off earlier
// would send releases all the time.
func (c *C) approach(b *client, h *lease, end time.Duration, how string) {
	for left := end - 2*time.Hour - c.now(); left > 0; left = end - 2*time.Hour - c.now() {
		c.sleep(max(left/2, time.Minute))
		if a := b.try(h.Name(), distlock.TTL(c.longest())); a.err == nil && a.ret < end {
			c.Failf("%s was granted %q at %s, %v before the lease of %s could end: %s", b.who, h.Name(), millis(a.ret), end-a.ret, h.p.who, how)
		}
	}
}

// outlives demands that the name of a dead holder is free for b not before from, and
// no later than until and the declared lag. how says what the holder had done.
func (c *C) outlives(b *client, h *lease, from, until time.Duration, how string) {
	ttl := c.long()
	if c.Virtual() {
		ttl = c.longest() // a renewal left behind then has little to do in all the years
	}
	next := c.stalk("E1", b, h.Name(), from, until, how, distlock.TTL(ttl))
	if next.ret < from-c.skew(h.asked) {
		c.Failf("%s was granted %q at %s, %v before the lease of %s could end: %s", b.who, h.Name(), millis(next.ret), from-next.ret, h.p.who, how)
	}
	c.observe(boundExpiry, max(next.refused-until, 0))
	next.free()
}

// untilLook is the pause between two looks at a lease that has to end: fifty over the
// time before the end, ever more often as it comes nearer, to find one that ends
// early; then some while it has to end.
func (c *C) untilLook(began, from, until, limit time.Duration) time.Duration {
	now := c.now()
	switch {
	case now < from:
		pause := max(min((from-now)/2, (from-began)/50), 50*time.Microsecond)
		if !c.Virtual() {
			pause = max(pause, time.Millisecond)
		}
		return pause
	case now < until:
		return max(c.poll(), (until-from)/100)
	}
	return max(c.poll(), (limit-until)/100)
}

// mustShow demands that Deadline shows a TTL that was asked for: not less, but for
// what a careful holder takes off it, and not more than rounding explains.
func (c *C) mustShow(h *lease, ttl time.Duration) {
	deadline, seen := h.Ends(), c.now() // a renewal may have come since h.ret
	if least := h.call + c.leastShown(ttl); deadline < least {
		c.Failf("%s asked for %q with a TTL of %v at %s and got it, but its Deadline is %s, only %v after the call",
			h.p.who, h.Name(), ttl, millis(h.call), millis(deadline), deadline-h.call)
	}
	if most := seen + c.atMost(ttl); deadline > most {
		c.Failf("%s asked for %q with a TTL of %v and had it at %s, but its Deadline is %s: that is %v more than was asked for, the declared granularity is %v",
			h.p.who, h.Name(), ttl, millis(seen), millis(deadline), deadline-seen-ttl, c.timing.TTLGranularity)
	}
}

// leastShown is what is left of a TTL at the least: a driver may count from up to a
// third of the TTL before its request, and a careful holder takes a margin off.
func (c *C) leastShown(ttl time.Duration) time.Duration {
	margin := min(max(ttl/100, time.Millisecond), time.Second, ttl/4)
	return ttl*5/8 - margin
}

// mustRemain demands that the store, where it can be asked, knows of the whole lease.
func (c *C) mustRemain(b *client, h *lease) {
	if c.inspector() == nil {
		return
	}
	ctx, cancel := c.patiently()
	defer cancel()
	st, err := b.inspect(ctx, h.Name())
	now := c.now()
	if err != nil || !st.Held || st.Remaining == 0 {
		return // what Inspect must know is for others to check
	}
	granularity := max(c.timing.TTLGranularity, time.Millisecond)
	if least := h.call + h.asked - now - granularity - c.skew(h.asked); st.Remaining < least {
		c.Failf("%s got %q at %s with a TTL of %v, but at %s the store says that %v remain: the lease it keeps is shorter than was asked for",
			h.p.who, h.Name(), millis(h.ret), h.asked, millis(now), st.Remaining)
	}
	if most := h.granted() + c.timing.ExpiryLag + c.skew(h.asked); st.Remaining > most {
		c.Failf("%s got %q at %s with a TTL of %v, but at %s the store says that %v remain: the declared granularity is %v, the ExpiryLag %v",
			h.p.who, h.Name(), millis(h.ret), h.asked, millis(now), st.Remaining, c.timing.TTLGranularity, c.timing.ExpiryLag)
	}
}

func deadlineShows(c *C) {
	a, b := c.open("A"), c.open("B")
	ttls := append(c.longTTLs(), c.timing.MinTTL, c.timing.MinTTL+1, c.timing.MinTTL+c.timing.TTLGranularity/2,
		99*time.Millisecond, 250*time.Millisecond, 999*time.Millisecond, time.Second+1, 1500*time.Microsecond,
		2999*time.Millisecond, 4300*time.Millisecond, 9999*time.Millisecond, c.Unit(), c.Unit()+1)
	for i, ttl := range ttls {
		for _, fixed := range []bool{true, false} {
			if ttl < c.timing.MinTTL || ttl > c.longest() {
				continue
			}
			opts := []distlock.Option{distlock.TTL(ttl)}
			if fixed {
				opts = append(opts, distlock.NoRenewal())
			}
			c.show(a, b, c.Name(fmt.Sprint(i, fixed)), ttl, opts)
		}
	}
}

func (c *C) show(a, b *client, name string, ttl time.Duration, opts []distlock.Option) {
	got := a.try(name, opts...)
	switch {
	case got.err == nil:
	case errors.Is(got.err, distlock.ErrInvalid):
		c.Failf("a TTL of %v is refused, although MinTTL is declared as %v and MaxTTL as %v: %v", ttl, c.timing.MinTTL, c.longest(), got.err)
	case ttl < c.Slack():
		return // so short a lease may have ended before the answer came
	default:
		c.refused(a, got, name, "which is fresh")
	}
	c.mustShow(got.lease, ttl)
	if ttl > 2*c.Slack() {
		c.mustRemain(b, got.lease)
	}
	_ = got.unlock() // too late, perhaps
}

func untouchedExpiry(c *C) {
	b := c.open("B")
	c.together(3, func(i int, _ *rand.Rand) {
		a, name := c.openMortal(fmt.Sprint("A", i+1)), c.Name(fmt.Sprint(i))
		opts := []distlock.Option{distlock.TTL(c.Unit())}
		if i == 0 {
			opts = append(opts, distlock.NoRenewal())
		}
		h := a.mustTry(name, "which is fresh", opts...)
		end := h.ret
		if i > 0 {
			c.sleep(c.Unit() / 2)
			end = c.now()
		}
		if i == 2 { // it is asked for while it is held, and not after that
			b.mustBeBusy(name, h)
		}
		h.dies()
		end = max(end, c.now()) + c.atMost(c.Unit()) + c.timing.ExpiryLag
		c.sleepUntil(end + c.soon())
		if got := b.try(name, distlock.TTL(c.long())); got.err != nil {
			if !got.busy() {
				c.refused(b, got, name, "whose holder has died")
			}
			c.Failf("%s died holding %q with a TTL of %v, which had ended by %s, the ExpiryLag of %v included; B was the first who asked for it since, at %s, and was told: %v",
				a.who, name, c.Unit(), millis(end), c.timing.ExpiryLag, millis(got.call), got.err)
		}
	})
}

func longRenewed(c *C) {
	a, b := c.open("A"), c.open("B")
	// Longer when the check is repeated on a slow machine. A driver with a MinTTL near
	// to that is given a unit. Shorter would leave no room for a server that slows down now
	// and then: at a tenth of a unit, one that stood still for 130 ms was taken for the driver.
	ttl := c.fits(c.Unit() / 4)
	if ttl > c.Unit()/4 {
		ttl = c.Unit()
	}
	type renewed struct{ ttl, span time.Duration }
	all := []renewed{{ttl, min(25*ttl, 6*c.Unit())}}
	if c.Virtual() {
		all = []renewed{
			{c.Unit(), 30 * time.Hour}, // more than ten thousand renewals
			{c.fits(time.Hour), 5 * day},
		}
	}
	c.together(len(all), func(i int, _ *rand.Rand) {
		ttl, span := all[i].ttl, all[i].span
		h := a.mustTry(c.Name(ttlName(ttl)), "which is fresh", distlock.TTL(ttl))
		for end := h.ret + span; c.now() < end; c.sleep(span / 40) {
			c.mustLive(h, fmt.Sprintf("with a TTL of %v, after it had been renewed for %v", ttl, c.now()-h.ret))
			b.mustBeBusy(h.Name(), h)
		}
		h.free()
	})
}
