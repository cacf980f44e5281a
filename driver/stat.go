package driver

import "time"

// Stat is a snapshot of a Client: numbers for operators without a metrics library. How the locks
// came that were waited for shows whether the wake-ups of the store arrive.
type Stat struct {
	Held           int           // locks
	Waiting        int           // calls to Lock under way
	Lost           int64         // locks, since New
	FailedRenewals int64         // calls to Extend among them; since New
	LeastLeft      time.Duration // of all locks with automatic renewal, until the deadline; 0 if there is none
	Tries          int64         // how often the store was asked for a lock, since New
	Woken          int64         // locks that came after a wake-up, since New
	Polled         int64         // locks that had to be waited for, and came when the call looked again by itself; since New
}

// Stat returns a snapshot. It looks at every lock, and sends no request.
func (c *Client) Stat() Stat {
	st := Stat{Lost: c.lost.Load(), FailedRenewals: c.failedRenewals.Load(), Tries: c.tries.Load(), Woken: c.woken.Load(), Polled: c.polled.Load()}
	c.names.mu.Lock()
	for _, n := range c.names.records {
		st.Waiting += n.waiting
	}
	c.names.mu.Unlock()
	c.mu.Lock()
	handles := c.locks()
	c.mu.Unlock()
	now, renewed := c.now(), false
	for _, h := range handles {
		h.mu.Lock()
		left, held := h.deadline.sub(now), h.cause == nil
		h.mu.Unlock()
		if !held || left <= 0 {
			continue
		}
		st.Held++
		if !h.fixed && (!renewed || left < st.LeastLeft) {
			st.LeastLeft, renewed = left, true
		}
	}
	return st
}
