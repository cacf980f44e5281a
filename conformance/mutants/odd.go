package mutants

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
)

// Odd returns drivers that are unusual in one way and keep the contract.
func Odd() []Oddity { return append(oddTimes(), oddWays()...) }

// oddTimes take their time, or tell it in their own way.
func oddTimes() []Oddity {
	const (
		slow = 300 * time.Millisecond
		late = 6 * time.Second
	)
	return []Oddity{
		{
			Name: "Slow", Odd: "takes 300 ms for every call",
			design:  outside(slowly(slow)),
			options: []conformance.Option{conformance.WithSlack(20 * slow)}, // what a calibration would find
		},
		{
			Name: "CoarseTTL", Odd: "rounds TTLs up to whole seconds, two at the least",
			design: inside(flaw{
				caps: func(c *distlock.Capabilities) { c.MinTTL, c.TTLGranularity = 2*time.Second, time.Second },
				request: func(_ *env, r *distlock.Request) {
					r.TTL = max((r.TTL + time.Second - 1).Truncate(time.Second), 2*time.Second)
				},
			}),
		},
		{
			Name: "LateExpiry", Odd: "lets go of a dead holder's name 6 s late, as it declares",
			design: inside(flaw{
				caps:    func(c *distlock.Capabilities) { c.ExpiryLag = late },
				request: func(_ *env, r *distlock.Request) { r.TTL += late },
				try:     asAsked,
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (distlock.Grant, error) {
					g, err := c.inner.Renew(ctx, ttl+late)
					g.TTL -= late
					return g, err
				},
			}),
		},
	}
}

// oddWays do things in another way than most.
func oddWays() []Oddity {
	const gap = 1_000_000
	return []Oddity{
		{
			Name: "TokenGaps", Odd: "leaves gaps of a million and more between its tokens",
			design: inside(flaw{
				try: func(ctx context.Context, c *claim) (distlock.Grant, error) {
					g, err := c.inner.Try(ctx)
					g.Token *= gap
					return g, err
				},
				status: func(_ *env, st *distlock.Status) { st.Token *= gap },
			}),
		},
		{
			Name: "Unfair", Odd: "keeps no queue and tells nobody of a release",
			design: inside(plain(flaw{})),
		},
		{
			Name: "LastFirst", Odd: "wakes the last who has come to wait first, and declares no order",
			design: fifoDesign(flaw{
				caps:    func(c *distlock.Capabilities) { c.Fair = false },
				try:     tryAny,
				release: releaseToLast,
			}),
		},
		{
			Name: "EarlyLost", Odd: "counts its leases from a sixth of their TTL before they were asked for",
			design: inside(flaw{
				try: func(ctx context.Context, c *claim) (distlock.Grant, error) {
					g, err := c.inner.Try(ctx)
					g.Sent = time.Now().Add(-g.TTL / 6)
					return g, err
				},
				renew: func(ctx context.Context, c *claim, ttl time.Duration) (distlock.Grant, error) {
					g, err := c.inner.Renew(ctx, ttl)
					g.Sent = time.Now().Add(-g.TTL / 6)
					return g, err
				},
			}),
		},
		{
			Name: "ReleaseTwice", Odd: "loses the reply to one release in twenty, and has to ask again",
			design: outside(flaw{release: releaseTwice}),
		},
		{
			Name: "Survivor", Odd: "declares that its locks survive a fail-over, which they do",
			design: inside(flaw{caps: claimsQuorum}),
		},
		{
			Name: "NoInspector", Odd: "cannot be looked into, neither by its clients nor by the harness",
			design: design{
				driver: func(e *env) distlock.Driver { return e.link.Driver(onlyDriver{e.mem}) },
				caps:   func(c *conformance.Caps) { c.Inspector = conformance.No },
			},
		},
	}
}

// slowly delays the return of every call.
func slowly(d time.Duration) flaw {
	around := func(f func()) {
		f()
		time.Sleep(d)
	}
	return flaw{
		caps: func(c *distlock.Capabilities) { c.MinTTL = 8 * d },
		try: func(ctx context.Context, c *claim) (g distlock.Grant, err error) {
			around(func() { g, err = c.inner.Try(ctx) })
			return g, err
		},
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (g distlock.Grant, err error) {
			around(func() { g, err = c.inner.Renew(ctx, ttl) })
			return g, err
		},
		release: func(ctx context.Context, c *claim) (err error) {
			around(func() { err = c.inner.Release(ctx) })
			return err
		},
	}
}

// tryAny lets whoever asks have a free name.
func tryAny(ctx context.Context, c *claim) (distlock.Grant, error) {
	return c.tryAt(ctx, func([]*claim) bool { return true })
}

// releaseTwice loses a reply only if there is something to release: after a loss, an
// answer that is lost as well leaves nobody who could tell.
func releaseTwice(ctx context.Context, c *claim) error {
	st, err := c.driver.mem.Inspect(ctx, c.asked.Name)
	if err == nil && st.Held && st.Token == c.token && rand.IntN(20) == 0 {
		c.driver.link.CutReply(1)
	}
	return c.inner.Release(ctx)
}

func releaseToLast(ctx context.Context, c *claim) error {
	err := c.inner.Release(ctx)
	c.driver.with(c.asked.Name, func(e *entry) {
		e.drop(func(o *claim) bool { return o == c })
		if n := len(e.queue); n > 0 {
			e.queue[n-1].ring()
		}
	})
	return err
}

// onlyDriver hides what a driver can do besides.
type onlyDriver struct{ distlock.Driver }
