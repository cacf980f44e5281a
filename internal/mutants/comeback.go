package mutants

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// comebackMutants go wrong when a client comes back to a name, or with names and clients
// that are out of the ordinary.
func comebackMutants() []Mutant {
	return []Mutant{
		{
			Name: "SulksAfterLoss", Flaw: "refuses a client for a TTL the name that it has lost",
			KilledBy: []Kill{{"after/frees", "which nobody holds"}},
			design:   design{driver: sulking},
		},
		{
			Name: "ForgetsIdle", Flaw: "counts the tokens of a name from one again when nobody has had it for an hour",
			Seen:     "keys with the counter in them that expire",
			KilledBy: []Kill{{"fence/over-idle", "in which nobody held it"}},
			design:   inside(forgetting(time.Hour)),
		},
		{
			Name: "LongNameDeaf", Flaw: "does not wake those who wait for names of more than 200 bytes",
			Seen:     "channels and lock names that have a shorter limit",
			KilledBy: []Kill{{"handover/many-names", "is still waiting"}, {"after/woken", "is still waiting"}},
			design:   deafTo(func(c *claim) bool { return len(c.asked.Name) > 200 }),
		},
		{
			Name: "TermsDeaf", Flaw: "does not wake those who wait for a fixed term",
			KilledBy: []Kill{{"handover/many-names", "is still waiting"}, {"after/woken", "is still waiting"}},
			design:   deafTo(func(c *claim) bool { return c.asked.NoRenewal }),
		},
		{
			Name: "CloseIsSilent", Flaw: "wakes nobody when Close releases what is held",
			KilledBy: []Kill{{"after/closes", "is still waiting"}},
			design:   noting(fifoDesign(flaw{try: tryNoBarging, release: releaseSilently})),
		},
		{
			Name: "CloseForgetsMany", Flaw: "releases a hundred locks on Close and forgets the others",
			KilledBy: []Kill{{"close/frees-held", "which A held when its client was closed"}},
			design:   noting(design{driver: releasingHundred}),
		},
		{
			Name: "LastEndsTerms", Flaw: "ends the fixed terms of a client with the last of its renewed locks",
			Seen:     "a session that is closed when nothing is renewed on it any more",
			KilledBy: []Kill{{"batch/others-unmoved", "of a fixed term"}},
			design:   design{driver: endingTerms},
		},
	}
}

// deafTo does not wake the claims that it is said to.
func deafTo(not func(*claim) bool) design {
	return inside(flaw{wait: func(ctx context.Context, c *claim) error {
		if not(c) {
			<-ctx.Done()
			return ctx.Err()
		}
		return c.inner.Wait(ctx)
	}})
}

// halfTruthMutants tell half of the truth of what is held.
func halfTruthMutants() []Mutant {
	quoted := func(_ *claim, st distlock.Status, held *driver.Held) {
		q := strconv.Quote(st.Holder)
		held.Holder = q[1 : len(q)-1]
	}
	cut := func(_ *claim, st distlock.Status, held *driver.Held) {
		held.Holder = st.Holder[:min(32, len(st.Holder))]
	}
	return []Mutant{
		{
			Name: "RefusalQuotes", Flaw: "shows the holder's text in refusals with its quotes and line breaks escaped",
			KilledBy: []Kill{{"after/told", "told that the holder is"}},
			design:   refusing(quoted),
		},
		{
			Name: "RefusalCuts", Flaw: "shows 32 bytes of the holder's text in refusals",
			KilledBy: []Kill{{"after/told", "told that the holder is"}},
			design:   refusing(cut),
		},
		{
			Name: "HeldForHalf", Flaw: "says with a refusal that the name stays taken for half of the time that is left",
			KilledBy: []Kill{{"after/told", "although its holder may believe in it for"}},
			design:   refusing(func(_ *claim, _ distlock.Status, held *driver.Held) { held.Remaining /= 2 }),
		},
		{
			Name: "CountsNine", Flaw: "counts nine waiters at the most",
			KilledBy: []Kill{{"handover/crowd", "by Inspect they were"}},
			design:   inside(flaw{status: func(_ *env, st *distlock.Status) { st.Waiters = min(st.Waiters, 9) }}),
		},
		{
			Name: "HolderIsNumber", Flaw: "takes a holder's text that looks like a number for one",
			Seen:     "hashes and columns without a type",
			KilledBy: []Kill{{"inspect/holder-text", "by Inspect the holder is"}},
			design: inside(flaw{status: func(_ *env, st *distlock.Status) {
				if f, err := strconv.ParseFloat(st.Holder, 64); err == nil {
					st.Holder = strconv.FormatFloat(f, 'g', -1, 64)
				}
			}}),
		},
	}
}

// sulking remembers in the client what it has lost.
func sulking(e *env) driver.Driver {
	var mu sync.Mutex
	until := make(map[string]time.Time)
	return e.inside(flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			mu.Lock()
			refused := time.Now().Before(until[c.asked.Name])
			mu.Unlock()
			if refused {
				return driver.Grant{}, &distlock.HeldError{}
			}
			return c.inner.Try(ctx)
		},
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
			g, err := c.inner.Renew(ctx, ttl)
			if errors.Is(err, distlock.ErrLost) {
				mu.Lock()
				defer mu.Unlock()
				until[c.asked.Name] = time.Now().Add(ttl)
			}
			return g, err
		},
	})
}

// forgetting is a driver with a counter for each name, which it keeps for so long.
func forgetting(idle time.Duration) flaw {
	f := rows()
	right := f.try
	f.try = func(ctx context.Context, c *claim) (driver.Grant, error) {
		c.driver.with(c.asked.Name, func(e *entry) {
			if !e.expires.IsZero() && time.Since(e.expires) > idle {
				e.token = 0
			}
		})
		return right(ctx, c)
	}
	return f
}

// noting has the driver know of a Close.
func noting(d design) design {
	d.locker = func(e *env, c *driver.Client) distlock.Locker {
		return &wrapper{Client: c, close: func(call func() error) error {
			e.closing.Store(true)
			return call()
		}}
	}
	return d
}

func releaseSilently(ctx context.Context, c *claim) error {
	if !c.driver.closing.Load() {
		return releaseInQueue(ctx, c)
	}
	err := c.inner.Release(ctx)
	c.driver.with(c.asked.Name, func(e *entry) { e.drop(func(o *claim) bool { return o == c }) })
	return err
}

func releasingHundred(e *env) driver.Driver {
	var mu sync.Mutex
	released := 0
	return e.inside(flaw{release: func(ctx context.Context, c *claim) error {
		if e.closing.Load() && c.won {
			mu.Lock()
			released++
			over := released > 100
			mu.Unlock()
			if over {
				return nil
			}
		}
		return c.inner.Release(ctx)
	}})
}

// endingTerms knows what its client holds.
func endingTerms(e *env) driver.Driver {
	var mu sync.Mutex
	renewed, terms := make(map[*claim]bool), make(map[*claim]bool)
	return e.inside(flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				if c.asked.NoRenewal {
					terms[c] = true
				} else {
					renewed[c] = true
				}
			}
			return g, err
		},
		release: func(ctx context.Context, c *claim) error {
			err := c.inner.Release(ctx)
			mu.Lock()
			defer mu.Unlock()
			last := renewed[c] && len(renewed) == 1
			delete(renewed, c)
			delete(terms, c)
			for o := range terms {
				if last {
					_ = e.mem.Claim(o.asked).Release(ctx)
					delete(terms, o)
				}
			}
			return err
		},
	})
}
