package conformance

import (
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// operateChecks compare what operators see and do, with each other and with locks
// older, longer and more alike than most.
func operateChecks() []Check {
	return []Check{
		{ID: "sweep/exact", Clause: "O4", Mandatory: true, Run: sweepExact, span: 40 * day,
			Rule: "Sweep counts the idle time in full, from the end of the last hold, and removes what has been idle for as long"},
	}
}

// mustAgree compares what List said of a lock at began or later, when its deadline was known,
// with what Inspect says.
func (c *C) mustAgree(eye *client, h *lease, listed distlock.Status, began, known time.Duration, knows bool) {
	deadline := h.Ends()
	st := eye.look(h.Name())
	after := c.now()
	if after >= deadline {
		c.Inconclusivef("by the time C had looked at %q, its lease had ended", h.Name())
	}
	same := listed
	same.Remaining, same.AcquiredAt = st.Remaining, st.AcquiredAt
	if st.Wanted && !same.Wanted { // a waiter may have come between the two
		for _, now := range eye.list(h.Name()) {
			same.Wanted = same.Wanted || now.Name == h.Name() && now.Wanted
		}
	}
	if same != st || !sameDate(listed.AcquiredAt, st.AcquiredAt) {
		c.Failf("%s holds %q; List says of it %+v, but Inspect %+v", h.p.who, h.Name(), listed, st)
	}
	grain := c.timing.TTLGranularity + c.skew(h.asked)
	for _, by := range []struct {
		what       string
		said, ends time.Duration
	}{{"List", listed.Remaining, known}, {"Inspect", st.Remaining, deadline}} {
		switch {
		case by.said == 0 && (!knows || by.ends-after <= grain): // rounded down
		case by.said == 0:
			c.Failf("%s does not say how long the lease of %q runs, which %s holds until %s, although the store knows it of leases", by.what, h.Name(), h.p.who, millis(by.ends))
		case after+by.said+grain < by.ends:
			c.Failf("%s says at %s that %v remain of the lease of %q, although %s may believe in it until %s", by.what, millis(began), by.said, h.Name(), h.p.who, millis(by.ends))
		}
	}
}

func sweepExact(c *C) {
	a, apart := c.openApart("A")
	a.sweep(365 * day)
	if !apart {
		c.Skipf("others have names in this store: what Sweep removes cannot be told from theirs")
	}
	n := 30
	if c.Virtual() {
		n = 1100
	}
	released, expired, late := c.leaves(a)
	want := n*released + expired
	removed, last := c.sweepAll(a, n, late, 1999*time.Millisecond, c.Unit()+999*time.Millisecond)
	if removed != want {
		c.Failf("%d names of A, and no others, were held, the last for a fixed term; of such names one that is unlocked leaves %d, and one whose lease runs out %d; Sweep of what was idle for %v said at %s that it removed %d",
			n+1, released, expired, last, millis(c.now()), removed)
	}
	if !c.Virtual() {
		return
	}
	// What leaves by itself, after a day or a week, need not be swept.
	if removed, last = c.sweepAll(a, n, late, 119*time.Minute, 47*time.Hour, 20*day); removed != want && removed > 0 {
		c.Failf("%d names of A, and no others, were held, the last for a fixed term, which leave %d; Sweep of what was idle for %v said at %s that it removed %d",
			n+1, want, last, millis(c.now()), removed)
	}
}

// leaves returns how much of a name there is to sweep when it was unlocked, and when its lease has run out, and how much later than
// was asked for: a store may remember in the same row for driver.MaxLate what was released.
func (c *C) leaves(p *client) (released, expired int, late time.Duration) {
	idle := c.rounded(time.Second)
	swept := func() (n int) {
		if n = p.sweep(idle); n > 0 || !c.Virtual() {
			return n
		}
		c.sleep(driver.MaxLate)
		if n = p.sweep(idle); n > 0 {
			late = driver.MaxLate
		}
		return n
	}
	p.mustTry(c.Name("released"), "which is fresh").free()
	for _, unit := range []time.Duration{time.Microsecond, time.Millisecond, time.Second} {
		for _, units := range []time.Duration{1 << 31, 1 << 32} { // of which 32 bits keep nothing, or less than that
			if n := p.sweep(units * unit); n > 0 {
				c.Failf("one name was unlocked just now; Sweep of what was idle for %v removed %d", units*unit, n)
			}
		}
	}
	c.sleep(2 * idle)
	released = swept()
	h := p.mustTry(c.Name("run out"), "which is fresh", distlock.NoRenewal(), distlock.TTL(c.short()))
	c.sleepUntil(h.gone() + c.skew(h.asked) + 2*idle)
	expired = swept()
	if released > 0 && expired == 0 {
		if st, err := p.inspect(c.ctx, h.Name()); err == nil && st.Token > 0 {
			c.Failf("the lease of %q has run out; Sweep of what was idle for %v removed nothing of it, but Inspect still tells its last token: %+v", h.Name(), idle, st)
		}
		c.sleep(2 * idle)
		p.sweep(idle) // what a driver may have noticed by that look alone
	}
	if released+expired > 0 {
		return released, expired, late
	}
	c.leavesSeldom(p)
	c.sleep(2 * idle)
	switch {
	case swept() > 0:
		return released, expired, late
	case !c.Virtual():
		c.Skipf("nothing was left of two names after %v; what the store remembers for %v is swept in virtual time only", 2*idle, driver.MaxLate)
	}
	c.Failf("one name was unlocked, and the lease of another has run out; Sweep of what was idle for %v said that it removed %d and %d of them, and nothing of one that was waited for, and of one that was broken: nothing can be left of names only where the driver is no Sweeper",
		idle, released, expired)
	return
}

// leavesSeldom leaves a name that was waited for, and one that was broken: a store may keep rows of such names only.
func (c *C) leavesSeldom(p *client) {
	c.breaksLocks()
	waited, broken := p.mustTry(c.Name("waited"), "which is fresh", distlock.TTL(c.long())), p.mustTry(c.Name("broken"), "which is fresh")
	w := p.begin(waited.Name(), distlock.TTL(c.long()))
	c.sleep(quiet)
	waited.free()
	w.woken(c.soon(), waited.p.who+" had unlocked it").free()
	_ = p.breakHold(c.ctx, broken.Name(), broken.Token()) // if the driver can
	_ = broken.unlock()                                   // ErrLost if it could
}

// sweepAll has n names unlocked, and one run out, and returns how many were swept of them, by the last of the idle times and so much
// later. None may be before it was idle for as long.
func (c *C) sweepAll(a *client, n int, late time.Duration, idles ...time.Duration) (swept int, last time.Duration) {
	held := c.takeAll(a, c.names(n), "which nobody has", distlock.TTL(c.fits(8*c.Unit())))
	term := a.mustTry(c.Name("expired"), "which nobody has", distlock.NoRenewal(), distlock.TTL(c.fits(2*c.Unit())))
	c.sleepUntil(term.end() + c.skew(term.asked))
	c.freeAll(held)
	freed, free := c.now(), term.end() // the earliest of the ends
	for _, idle := range idles {
		c.sleepUntil(free + idle - idle/8)
		n := a.sweep(idle)
		if swept += n; n > 0 && c.now() < free+idle { // if it is later, the store or the machine was late
			c.Failf("the first of A's names was free at %s, but Sweep of what was idle for %v removed %d at %s", millis(free), idle, n, millis(c.now()))
		}
		last = idle
	}
	// A store that dates in its granularity rounds up both the date and the idle time.
	c.sleepUntil(max(term.gone(), freed) + last + last/4 + max(dated, 2*c.timing.TTLGranularity) + late)
	return swept + a.sweep(last), last
}
