package mutants

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

func tokenMutants() []Mutant {
	return []Mutant{
		{
			Name: "TokenReset", Flaw: "counts tokens from one again when a lease has run out",
			Seen:     "sequence nodes of ZooKeeper in container nodes, which are removed when they are empty, measured",
			KilledBy: []Kill{{"after/tokens", "one before had"}},
			design:   inside(flaw{try: tryCounting, release: releaseCounting, status: statusCounting, breaks: breakCounting}),
		},
		{
			Name: "TokenPerClient", Flaw: "counts tokens in the client",
			Seen:     "",
			KilledBy: []Kill{{"after/tokens", "was granted"}},
			design: design{driver: func(e *env) driver.Driver {
				var n atomic.Int64
				return e.inside(flaw{
					try: func(ctx context.Context, c *claim) (driver.Grant, error) {
						g, err := c.inner.Try(ctx)
						if err == nil {
							g.Token = n.Add(1)
							c.driver.with(c.asked.Name, func(e *entry) { e.token = g.Token })
						}
						return g, err
					},
					status: statusCounting, breaks: breakCounting,
				})
			}},
		},
		{
			Name: "TokenDrawnBefore", Flaw: "draws the token with one request, and takes the name with the next",
			Seen:     "INCR, then SET NX",
			KilledBy: []Kill{{"pair/try-free", "a token is drawn in the step that takes the name"}, {"pair/lock-held", "a token is drawn in the step that takes the name"}},
			design:   outside(plain(flaw{try: drawThenTake, status: statusCounting, breaks: breakCounting})),
		},
		{
			Name: "TokenOnRenew", Flaw: "has a new token after every renewal",
			Seen:     "",
			KilledBy: []Kill{{"after/tokens", "but Inspect says"}},
			design:   inside(flaw{renew: renewCounting, wrap: wrapCounting}),
		},
	}
}

// tryCounting numbers the grants of a name itself, and begins anew if the last one
// was not released.
func tryCounting(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	c.driver.with(c.asked.Name, func(e *entry) {
		if e.owner != c.asked.Owner {
			if !e.ended {
				e.token = 0
			}
			e.token++
			e.owner, e.ended = c.asked.Owner, false
		}
		g.Token = e.token
	})
	return g, nil
}

// drawThenTake takes the name with a token of an earlier request. What it has already keeps its token.
func drawThenTake(ctx context.Context, c *claim) (driver.Grant, error) {
	drawn := make(chan int64, 1) // one element: the caller may have left when the answer comes
	err := c.driver.send(ctx, func(context.Context) error {
		c.driver.with("all tokens", func(e *entry) { e.token++; drawn <- e.token })
		return nil
	})
	if err != nil {
		return driver.Grant{}, err
	}
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	c.driver.with(c.asked.Name, func(e *entry) {
		if e.owner != c.asked.Owner {
			e.token, e.owner = <-drawn, c.asked.Owner
		}
		g.Token = e.token
	})
	return g, nil
}

func releaseCounting(ctx context.Context, c *claim) error {
	err := c.inner.Release(ctx)
	c.driver.with(c.asked.Name, func(e *entry) {
		if err == nil && e.owner == c.asked.Owner {
			e.ended = true
		}
	})
	return err
}

func statusCounting(e *env, st *distlock.Status) {
	e.with(st.Name, func(n *entry) { st.Token = n.token })
}

// breakCounting ends the hold that has the token which the mutant has given out, so that its Break is right.
func breakCounting(ctx context.Context, d *flawed, name string, token int64) error {
	st, err := d.inner.Inspect(ctx, name)
	if err != nil {
		return err
	}
	counted := st
	statusCounting(d.env, &counted)
	if !st.Held || counted.Token != token {
		return distlock.ErrLost
	}
	return d.inner.Break(ctx, name, st.Token)
}

func renewCounting(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) { e.token++ })
	}
	return g, err
}

// renumbered is a lock with a token that grows with the renewals of its name.
type renumbered struct {
	*driver.Handle
	c    *claim
	base int64
}

func wrapCounting(h *driver.Handle, c *claim) distlock.Lock {
	l := &renumbered{Handle: h, c: c}
	c.driver.with(c.asked.Name, func(e *entry) { l.base = e.token })
	return l
}

// Token implements distlock.Lock.
func (l *renumbered) Token() (token int64) {
	l.c.driver.with(l.c.asked.Name, func(e *entry) { token = l.Handle.Token() + e.token - l.base })
	return token
}
