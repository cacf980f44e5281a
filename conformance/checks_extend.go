package conformance

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
)

// extendFractions extends fixed terms at several moments, by several TTLs, and looks
// when they end.
func extendFractions(c *C) {
	moments := []time.Duration{16, 48} // in sixty-fourths of the lease
	by := []time.Duration{c.Unit() / 2, c.Unit(), 2 * c.Unit()}
	if c.Virtual() {
		moments = []time.Duration{0, 8, 24, 40, 56, 63}
		by = append(by, c.timing.MinTTL, c.Unit()/4, 4*c.Unit(), time.Minute, time.Hour)
	}
	b := c.open("B")
	cases := len(moments) * len(by)
	long := []time.Duration{25*day + 59*time.Second + 999*time.Millisecond, 50 * day, c.longest()}
	if !c.Virtual() {
		long = nil
	}
	beyond := 0
	if c.timing.MaxExtend > 0 && c.mortal() { // its locks are not all of fixed terms
		beyond = 2
	}
	c.together(cases+len(long)+beyond, func(i int, _ *rand.Rand) {
		if i >= cases+len(long) {
			c.extendsBeyond(b, i, i%2 == 0)
			return
		}
		moment, first, ttl := time.Duration(24), c.fits(2*time.Hour), time.Duration(0)
		if i < cases {
			moment, first, ttl = moments[i%len(moments)], c.term(), c.extends(c.term(), by[i/len(moments)])
		} else {
			ttl = c.extends(first, long[i-cases])
		}
		a := c.openMortal(fmt.Sprint("A", i+1)) // a fixed term ends by itself
		h := a.mustTry(c.Name(fmt.Sprint(i)), "which is fresh", distlock.TTL(first), distlock.NoRenewal())
		c.sleepInto(h, moment)
		e := c.extended(h, ttl)
		how := fmt.Sprintf("%s had got it at %s for a fixed term of %v, and extended it at %s by %v", a.who, millis(h.ret), h.asked, millis(e.call), ttl)
		c.approach(b, h, e.call+ttl, how)
		h.dies()
		c.outlives(b, h, max(h.call+h.asked, e.call+ttl), max(h.ret+h.granted(), e.ret+c.atMost(ttl)), how)
		a.revive()
	})
}

// extendsBeyond asks for more than the driver declares: that is refused, or Deadline shows what there is.
func (c *C) extendsBeyond(b *client, i int, fixed bool) {
	first := c.term()
	most := time.Duration(c.timing.MaxExtend * float64(first))
	ttl := c.fits(max(4*first, 2*most))
	if ttl <= most {
		return
	}
	a := c.openVia(fmt.Sprint("A", i+1))
	opts := []distlock.Option{distlock.TTL(first)}
	if fixed {
		opts = append(opts, distlock.NoRenewal())
	}
	h := a.mustTry(c.Name(fmt.Sprint(i)), "which is fresh", opts...)
	call, ret, err := h.extend(ttl)
	a.cutOff()
	how := fmt.Sprintf("%s had got it at %s for %v, asked at %s to extend it by %v, and was answered: %s", a.who, millis(h.ret), first, millis(call), ttl, describe(err))
	c.outlives(b, h, h.Ends(), ret+c.atMost(ttl), how)
	a.revive()
}

// extension is a call to Extend that has succeeded.
type extension struct{ call, ret time.Duration }

// extended extends h and demands that the Deadline shows it.
func (c *C) extended(h *lease, ttl time.Duration) extension {
	before := h.Ends()
	call, ret := h.mustExtend(ttl)
	after := h.Ends()
	who, name := h.p.who, h.Name()
	switch {
	case after < before:
		c.Failf("%s had %q until %s; Extend by %v took the Deadline back to %s", who, name, millis(before), ttl, millis(after))
	case after < call+c.leastShown(ttl):
		c.breach("H3", "%s extended %q by %v at %s, Extend returned nil, but the Deadline is %s, only %v after the call", who, name, ttl, millis(call), millis(after), after-call)
	case after > max(before+time.Second, h.ret+h.granted(), ret+c.atMost(ttl)): // the margin that a holder takes off is up to a second, and may be another now
		c.Failf("%s extended %q by %v at %s, when its Deadline was %s, and the Deadline is %s now: more than was asked for, counted from the call, by %v",
			who, name, ttl, millis(call), millis(before), millis(after), after-ret-ttl)
	}
	return extension{call, ret}
}

func renewalRhythm(c *C) {
	c.unjudged("the entry is removed behind the back of its holder, which may believe in it for a renewal period")
	a := c.open("A")
	h := a.mustTry(c.Name("x"), "which is fresh")
	c.sleep(c.Unit() / 4)
	ttl := c.extends(c.Unit(), 10*c.Unit())
	h.mustExtend(ttl)
	c.sleep(c.Unit())
	c.mustLive(h, fmt.Sprintf("after it was extended by %v", ttl))
	c.strip(h, c.open("B"))
	h.mustLearn(c.now(), fmt.Sprintf("the entry of %q, which A had extended by %v, was removed", h.Name(), ttl))
}
