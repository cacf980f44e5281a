package mutants

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// sweepMutants remove too much of a store that keeps a row for every name.
func sweepMutants() []Mutant {
	return []Mutant{
		{
			Name: "SweepsHeld", Flaw: "removes the rows of names that are held, and with them the holds",
			KilledBy: []Kill{{"sweep/held", "the store was swept"}},
			design:   sweeping(ways{held: true, since: released}),
		},
		{
			Name: "SweepsByGrant", Flaw: "takes the time since the grant for that in which nobody has held a name",
			KilledBy: []Kill{{"sweep/exact", "the first of A's names was free"}},
			design:   sweeping(ways{since: acquired}),
		},
		{
			Name: "SweepsLongHeld", Flaw: "removes the rows of names that were acquired long ago, also of those that are held still",
			KilledBy: []Kill{{"sweep/held", "the store was swept"}},
			design:   sweeping(ways{held: true, since: acquired}),
		},
		{
			Name: "SweepsAll", Flaw: "removes the row of every name that is free, whenever that was held last",
			KilledBy: []Kill{{"sweep/exact", "was unlocked just now"}},
			design:   sweeping(ways{since: func(*entry) time.Time { return time.Time{} }}),
		},
		{
			Name: "SweepsWaited", Flaw: "removes those who wait along with the row",
			KilledBy: []Kill{{"sweep/held", "A had unlocked it, and the store was swept while it waited"}},
			design:   sweepingQueue(func(distlock.Status) bool { return true }),
		},
		{
			Name: "SweepsFreeWaited", Flaw: "removes those who wait along with the row, if nobody holds the name at the moment",
			KilledBy: []Kill{{"sweep/waited-only", "although B had been queued for it for long"}},
			design:   sweepingQueue(func(st distlock.Status) bool { return !st.Held }),
		},
		{
			Name: "LooksThenSweeps", Flaw: "removes with a second request the rows that it has found free with a first, whoever has taken them since",
			KilledBy: []Kill{{"pair/sweep", "looks in one step and acts in another"}, {"sweep/beside-traffic", "n"}},
			design:   lookThenSweep(),
		},
		{
			Name: "SweepResetsToken", Flaw: "counts the tokens of a name from one again when its row was removed",
			Seen:     "rows that are deleted with the counter in them",
			KilledBy: []Kill{{"sweep/tokens", "a sweep"}, {"after/tokens", "token"}},
			design:   sweeping(ways{since: released, forgets: true}),
		},
		{
			Name: "SweepsAlone", Flaw: "fails to sweep while another client does",
			KilledBy: []Kill{{"sweep/beside-traffic", "another sweep is running"}},
			design:   sweepingAlone(),
		},
	}
}

// ways are how a store is swept.
type ways struct {
	held    bool                   // also held names
	since   func(*entry) time.Time // nobody has held the name since then
	forgets bool                   // how high its tokens were
	most    int                    // that are removed at a time; 0 stands for all

	also     func(name, swept string) bool // what is removed along with a name; nil is nothing else
	in32Bits bool                          // the idle time is counted in milliseconds by an unsigned number of 32 bits
	byClient bool                          // by the clock of the client, which dates nothing
	unbroken bool                          // how high its tokens were is noted by what ends a hold, but not by a Break
}

func released(e *entry) time.Time { return e.expires }

func acquired(e *entry) time.Time { return e.granted }

// sweeping makes a driver with a store that keeps a row with the last token of every
// name.
func sweeping(w ways) design {
	f := rows()
	f.sweep = w.sweep
	f.breaks = func(ctx context.Context, d *flawed, name string, token int64) error {
		err := breakNumbered(ctx, d, name, token)
		if err == nil {
			d.with(name, func(e *entry) { e.seen = true })
		}
		return err
	}
	return inside(f)
}

// rows is right, but for the sweep that it lacks.
func rows() flaw {
	return flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err != nil {
				return g, err
			}
			c.driver.with(c.asked.Name, func(e *entry) {
				if e.owner != c.asked.Owner {
					e.token = max(e.token, c.driver.floor) + 1
					e.owner, e.granted, e.seen = c.asked.Owner, time.Now(), false
				}
				e.expires = time.Now().Add(c.asked.TTL)
				g.Token = e.token
			})
			return g, nil
		},
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
			g, err := c.inner.Renew(ctx, ttl)
			if err == nil {
				c.driver.with(c.asked.Name, func(e *entry) { e.expires = time.Now().Add(g.TTL) })
			}
			return g, err
		},
		release: func(ctx context.Context, c *claim) error {
			err := c.inner.Release(ctx)
			c.driver.with(c.asked.Name, func(e *entry) {
				if e.owner == c.asked.Owner {
					e.expires = time.Now()
				}
			})
			return err
		},
		status: statusCounting,
		breaks: breakNumbered,
	}
}

func (w ways) sweep(ctx context.Context, d *flawed, idle time.Duration) (removed int, err error) {
	if w.in32Bits {
		idle = time.Duration(uint32(idle/time.Millisecond)) * time.Millisecond
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, e := range d.entries {
		st, err := d.row(ctx, name)
		if err != nil {
			continue
		}
		idleFor := time.Since(w.since(e))
		if w.byClient {
			idleFor -= d.ahead
		}
		if busy := (st.Held || st.Waiters > 0) && !w.byClient; busy && !w.held || idleFor < idle && !(st.Held && w.held && idle <= time.Millisecond) {
			continue
		}
		if st.Held {
			if err := d.mem.Break(ctx, name, st.Token); err != nil {
				return removed, err
			}
		}
		if !w.forgets && !(w.unbroken && e.seen) {
			d.floor = max(d.floor, e.token)
		}
		delete(d.entries, name)
		for other := range d.entries {
			if w.also != nil && w.also(other, name) {
				_ = remove(ctx, d.mem, other) // ErrLost if nobody has it
			}
		}
		if removed++; removed == w.most {
			break
		}
	}
	return removed, nil
}

// sweepingAlone makes a driver that has one sweep at a time, of 20 ms.
func sweepingAlone() design {
	f := rows()
	f.sweep = func(ctx context.Context, d *flawed, idle time.Duration) (int, error) {
		if !d.sweeping.CompareAndSwap(false, true) {
			return 0, errors.New("another sweep is running")
		}
		defer d.sweeping.Store(false)
		time.Sleep(20 * time.Millisecond)
		return ways{since: released}.sweep(ctx, d, idle)
	}
	return inside(f)
}

// lookThenSweep makes a driver that sweeps by two requests.
func lookThenSweep() design {
	f := rows()
	f.sweep = func(ctx context.Context, d *flawed, idle time.Duration) (removed int, err error) {
		var found []string
		d.mu.Lock()
		for name, e := range d.entries {
			if st, err := d.row(ctx, name); err == nil && !st.Held && st.Waiters == 0 && time.Since(e.expires) >= idle {
				found = append(found, name)
			}
		}
		d.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		return len(found), d.send(ctx, func(ctx context.Context) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, name := range found {
				if e := d.entries[name]; e != nil {
					_ = remove(ctx, d.mem, name)
					d.floor = max(d.floor, e.token)
					delete(d.entries, name)
				}
			}
			return nil
		})
	}
	return inside(f)
}

// sweepingQueue keeps the queue in the row, and removes the rows that clears says.
func sweepingQueue(clears func(distlock.Status) bool) design {
	return fifoDesign(flaw{try: tryNoBarging, sweep: func(ctx context.Context, d *flawed, _ time.Duration) (removed int, err error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for name, e := range d.entries {
			if st, err := d.row(ctx, name); err == nil && len(e.queue) > 0 && clears(st) {
				e.queue = nil
				removed++
			}
		}
		return removed, nil
	}})
}
