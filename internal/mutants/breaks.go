package mutants

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// breakMutants take locks away in a wrong way.
func breakMutants() []Mutant { return slices.Concat(tokenBreakers(), queueBreakers(), victimMutants()) }

// tokenBreakers do not end the hold that was seen.
func tokenBreakers() []Mutant {
	seen := func(name, flawed, says string, ends func(held, token int64) bool) Mutant {
		return Mutant{Name: name, Flaw: flawed, KilledBy: []Kill{{"break/seen-token", says}},
			design: inside(flaw{breaks: breakIf(ends)})}
	}
	const answer = "the answer must match ErrLost"
	return []Mutant{
		seen("BreaksAny", "breaks the lock of whoever holds the name now, whatever token was seen", answer, func(int64, int64) bool { return true }),
		seen("BreaksUpTo", "breaks every hold with the token that was seen, or a lower one", answer, func(held, token int64) bool { return held <= token }),
		seen("BreaksFrom", "breaks every hold with the token that was seen, or a higher one", answer, func(held, token int64) bool { return held >= token }),
		{
			Name: "BreaksNothing", Flaw: "answers that a lock was broken, and does nothing",
			KilledBy: []Kill{{"after/breaks", "was broken"}},
			design:   inside(flaw{breaks: func(context.Context, *flawed, string, int64) error { return nil }}),
		},
		{
			Name: "BreaksTwice", Flaw: "answers that a lock was broken although nobody has held it",
			KilledBy: []Kill{{"break/seen-token", answer}},
			design: inside(flaw{breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
				if err := d.inner.Break(ctx, name, token); !errors.Is(err, distlock.ErrLost) {
					return err
				}
				return nil
			}}),
		},
		{
			Name: "LooksThenBreaks", Flaw: "compares the token with one request, and ends what hold there is with a second",
			KilledBy: []Kill{{"pair/break", "looks in one step and acts in another"}},
			design:   outside(flaw{breaks: lookThenBreak}),
		},
		{
			Name: "BreaksByPrefix", Flaw: "breaks the locks of all names that begin with the one that was given",
			KilledBy: []Kill{{"break/only-that", "were broken"}},
			design:   inside(flaw{breaks: breakByPrefix}),
		},
		{
			Name: "BreaksClient", Flaw: "breaks all locks of the client that holds the name",
			Seen:     "a session or lease that is shared, and revoked",
			KilledBy: []Kill{{"break/only-that", "broke it with that token"}},
			design:   inside(flaw{try: tryAndNote, breaks: breakClient}),
		},
	}
}

// queueBreakers do harm to waiters.
func queueBreakers() []Mutant {
	queue := func(name, flawed, says string, change func(e *entry)) Mutant {
		return Mutant{Name: name, Flaw: flawed, KilledBy: []Kill{{"break/waiters-stay", says}},
			design: fifoDesign(flaw{try: tryNoBarging, breaks: breakInQueue(change)})}
	}
	return []Mutant{
		queue("BreakIsSilent", "wakes nobody when it breaks a lock", "nobody of the", func(*entry) {}),
		queue("BreakDropsQueue", "removes those who wait along with the holder", "nobody of the", func(e *entry) { e.queue = nil }),
		queue("BreakSkipsFirst", "lets the second waiter have what was broken", "has lost its place", func(e *entry) {
			if len(e.queue) > 1 {
				e.queue[0], e.queue[1] = e.queue[1], e.queue[0]
			}
			wakeAll(e)
		}),
		queue("BreakTurnsQueue", "puts the first waiter behind the others when it breaks a lock", "has lost its place", func(e *entry) {
			if len(e.queue) > 0 {
				e.queue = append(e.queue[1:], e.queue[0])
			}
			wakeAll(e)
		}),
	}
}

// victimMutants do not end the hold for good.
func victimMutants() []Mutant {
	return []Mutant{
		{
			Name: "BreakComesBack", Flaw: "lets the next renewal of a broken lock bring it back",
			KilledBy: []Kill{{"after/breaks", "no renewal has told it so"}},
			design:   inside(flaw{renew: renewAnew}),
		},
		{
			Name: "BreakUnheard", Flaw: "does not tell the holder of a broken lock, as long as nobody else has the name",
			KilledBy: []Kill{{"after/breaks", "no renewal has told it so"}},
			design:   inside(flaw{renew: renewUnlessTaken}),
		},
		{
			Name: "BreakResetsToken", Flaw: "counts the tokens of a name from one again after its lock was broken",
			KilledBy: []Kill{{"after/breaks", "the last token, before that of A"}},
			design:   inside(flaw{try: tryNumbered, status: statusCounting, breaks: breakAndReset}),
		},
		{
			Name: "VictimUnlocks", Flaw: "lets the Unlock of a broken lock free the name for its next holder",
			KilledBy: []Kill{{"after/breaks", "was broken, and its Unlock"}, {"after/expires", "two holders at once"}},
			design:   inside(flaw{release: releaseBlindly}),
		},
		{
			Name: "UnlocksBroken", Flaw: "lets the Unlock of a broken lock succeed as long as nobody has taken the name since",
			KilledBy: []Kill{{"after/breaks", "was broken, and its Unlock"}},
			design:   inside(flaw{try: tryAndNote, release: releaseIfLast}),
		},
		{
			Name: "RevivesTerm", Flaw: "lets Extend bring back a fixed term that was broken",
			KilledBy: []Kill{{"after/breaks", "was broken, and its Unlock"}},
			design:   revivesBroken(func(c *claim, _ time.Duration) bool { return c.asked.NoRenewal }),
		},
		{
			Name: "RevivesLonger", Flaw: "lets Extend by more than the TTL bring back a lock that is renewed and was broken",
			KilledBy: []Kill{{"after/breaks", "no renewal has told it so"}},
			design:   revivesBroken(func(c *claim, ttl time.Duration) bool { return !c.asked.NoRenewal && ttl > c.asked.TTL }),
		},
	}
}

// releaseIfLast succeeds if the name is free, and was the claim's last.
func releaseIfLast(ctx context.Context, c *claim) error {
	err := c.inner.Release(ctx)
	if !errors.Is(err, distlock.ErrLost) {
		return err
	}
	c.driver.with(c.asked.Name, func(e *entry) {
		if e.owner == c.asked.Owner {
			err = nil
		}
	})
	return err
}

// revivesBroken has some renewals bring a broken lock back.
func revivesBroken(some func(c *claim, ttl time.Duration) bool) design {
	return inside(flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err == nil {
				c.driver.with(c.asked.Name, func(e *entry) { e.owner, e.ended = c.asked.Owner, false })
			}
			return g, err
		},
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
			revives := false
			c.driver.with(c.asked.Name, func(e *entry) { revives = e.ended && e.owner == c.asked.Owner && some(c, ttl) })
			if revives {
				return renewAnew(ctx, c, ttl)
			}
			return c.inner.Renew(ctx, ttl)
		},
		breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
			err := d.inner.Break(ctx, name, token)
			if err == nil {
				d.with(name, func(e *entry) { e.ended = true })
			}
			return err
		},
	})
}

// breakIf ends the hold if the two tokens are as they have to be.
func breakIf(ends func(held, token int64) bool) func(context.Context, *flawed, string, int64) error {
	return func(ctx context.Context, d *flawed, name string, token int64) error {
		st, err := d.inner.Inspect(ctx, name)
		switch {
		case err != nil:
			return err
		case !st.Held || !ends(st.Token, token):
			return distlock.ErrLost
		}
		return d.inner.Break(ctx, name, st.Token)
	}
}

func lookThenBreak(ctx context.Context, d *flawed, name string, token int64) error {
	st, err := d.inner.Inspect(ctx, name)
	switch {
	case err != nil:
		return err
	case !st.Held || st.Token != token:
		return distlock.ErrLost
	}
	return d.send(ctx, func(ctx context.Context) error { return remove(ctx, d.mem, name) })
}

func breakByPrefix(ctx context.Context, d *flawed, name string, token int64) error {
	all, err := d.inner.List(ctx, name)
	if err != nil {
		return err
	}
	if err := d.inner.Break(ctx, name, token); err != nil {
		return err
	}
	for _, st := range all {
		_ = d.inner.Break(ctx, st.Name, st.Token)
	}
	return nil
}

func breakClient(ctx context.Context, d *flawed, name string, token int64) error {
	if err := d.inner.Break(ctx, name, token); err != nil {
		return err
	}
	var names []string
	d.mu.Lock()
	for other, e := range d.entries {
		if e.client == d.entries[name].client {
			names = append(names, other)
		}
	}
	d.mu.Unlock()
	for _, other := range names {
		_ = remove(ctx, d.mem, other)
	}
	return nil
}

// breakInQueue breaks a lock of a driver that keeps the queue itself.
func breakInQueue(change func(e *entry)) func(context.Context, *flawed, string, int64) error {
	return func(ctx context.Context, d *flawed, name string, token int64) error {
		err := d.inner.Break(ctx, name, token)
		if err == nil {
			d.with(name, change)
		}
		return err
	}
}

// wakeAll tells all waiters that the queue has moved.
func wakeAll(e *entry) {
	for _, o := range e.queue {
		o.wakeUp()
	}
}

// tryNoBarging is tryInQueue with a TryLock that does not overtake.
func tryNoBarging(ctx context.Context, c *claim) (driver.Grant, error) {
	waits := false
	if c.asked.NoWait {
		c.driver.with(c.asked.Name, func(e *entry) {
			e.drop((*claim).silent)
			waits = len(e.queue) > 0
		})
	}
	if waits {
		return driver.Grant{}, &distlock.HeldError{Remaining: c.asked.TTL}
	}
	return tryInQueue(ctx, c)
}

// renewUnlessTaken reports a renewal of a lock that has gone.
func renewUnlessTaken(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	if errors.Is(err, distlock.ErrLost) {
		if st, failed := c.driver.mem.Inspect(ctx, c.asked.Name); failed == nil && !st.Held {
			return driver.Grant{TTL: ttl}, nil
		}
	}
	return g, err
}

// tryNumbered numbers the grants of a name itself.
func tryNumbered(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	c.driver.with(c.asked.Name, func(e *entry) {
		if e.owner != c.asked.Owner {
			e.token++
			e.owner = c.asked.Owner
		}
		g.Token = e.token
	})
	return g, nil
}

// breakNumbered compares the token that such a driver has given.
func breakNumbered(ctx context.Context, d *flawed, name string, token int64) error {
	right := false
	d.with(name, func(e *entry) { right = e.token == token })
	if !right {
		return distlock.ErrLost
	}
	return remove(ctx, d.mem, name)
}

func breakAndReset(ctx context.Context, d *flawed, name string, token int64) error {
	err := breakNumbered(ctx, d, name, token)
	if err == nil {
		d.with(name, func(e *entry) { e.token, e.owner = 0, "" })
	}
	return err
}
