package conformance

import "time"

// Every "by then" of a check allows for what the machine is late by: the slack that was
// measured before the first check, and what a canary beside all checks is woken too late
// since then. A bound that is exceeded while the machine is not late stays a failure.

// lateness is how late the machine was between two stamps.
func (c *C) lateness(from, to time.Duration) time.Duration {
	if c.delays == nil || to <= from {
		return 0
	}
	now, stamp := time.Now(), c.now()
	return c.delays(now.Add(from-stamp), now.Add(to-stamp))
}

// past reports whether it is later than limit, by more than the machine was late since
// the stamp from.
func (c *C) past(from, limit time.Duration) bool {
	now := c.now()
	return now > limit && now > limit+c.lateness(from, now)
}

// doubt ends the check as inconclusive if the machine was late by more than all that was
// allowed from a stamp until limit. It is for what has taken longer than that.
func (c *C) doubt(from, limit time.Duration) {
	if late := c.lateness(from, c.now()); late > max(limit-from, c.Slack()/4) {
		c.Inconclusivef("the machine was late by %v, and what has not happened in time was allowed %v", late.Round(time.Millisecond), limit-from)
	}
}

// tooLong reports whether something that took from one stamp to another took longer than
// the bound, and than the machine was late. If the machine was late by more than the bound,
// the check is inconclusive.
func (c *C) tooLong(from, to, bound time.Duration) bool {
	if to-from <= bound {
		return false
	}
	c.doubt(from, from+bound)
	return to-from > bound+c.lateness(from, to)
}

// awaits reports whether ch is closed before so long from now, and what the machine is
// late meanwhile; false also if over is closed before.
func (c *C) awaits(ch, over <-chan struct{}, d time.Duration) bool {
	if isDone(ch) {
		return true
	}
	began := c.now()
	for left := d; left > 0; {
		t := time.NewTimer(max(left, c.poll())) // steps that get ever smaller would have no end
		select {
		case <-ch:
		case <-over:
		case <-t.C:
		}
		t.Stop()
		switch {
		case isDone(ch):
			return true
		case over != nil && isDone(over):
			return false
		}
		now := c.now()
		left = began + d + c.lateness(began, now) - now
	}
	if d >= c.Slack()/2 { // less is the pace of a loop, not a bound
		c.doubt(began, began+d)
	}
	return false
}
