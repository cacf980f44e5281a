package mutants

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// lockMutants have their flaw in the lock that the caller gets, or in what a driver
// does for it.
func lockMutants() []Mutant {
	return []Mutant{
		{
			Name: "LazyUnlock", Flaw: "keeps the name for five seconds after Unlock",
			Seen:     "ShedLock's lockAtLeastFor, taken for a default",
			KilledBy: []Kill{{"core/acquire-release", "after A has unlocked it"}, {"after/frees", "was refused"}},
			design:   inside(flaw{release: releaseLater}),
		},
		{
			Name: "DeadCtxUnlock", Flaw: "does nothing on Unlock if the context has ended",
			Seen:     "deferred unlocks with the context of a request",
			KilledBy: []Kill{{"owner/unlock-cancelled-ctx", "with a context that was done"}},
			design:   inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock { return eager{h} }}),
		},
		{
			Name: "UnlockIsLoss", Flaw: "reports its own Unlock as a loss",
			KilledBy: []Kill{{"core/acquire-release", "must match ErrUnlocked and not ErrLost"}},
			design:   inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock { return grumbling{h} }}),
		},
	}
}

// extendMutants do with Extend, and with renewals, what they should not.
func extendMutants() []Mutant {
	return []Mutant{
		{
			Name: "ExtendRevives", Flaw: "acquires the name anew if it is extended after its end",
			KilledBy: []Kill{{"owner/stale-unlock-free", "the answer must match ErrLost"}, {"after/frees", "the answer must match ErrUnlocked"}, {"after/expires", "but A's Extend returned"}},
			design:   inside(flaw{wrap: func(h *driver.Handle, c *claim) distlock.Lock { return reviving{h, c} }}),
		},
		{
			Name: "ExtendNothing", Flaw: "confirms renewals that it has not sent",
			KilledBy: []Kill{{"after/extends", "before the lease of A could end"}, {"after/lives", "was granted"}},
			design: inside(flaw{renew: func(_ context.Context, _ *claim, ttl time.Duration) (driver.Grant, error) {
				return driver.Grant{TTL: ttl}, nil
			}}),
		},
		{
			Name: "ExtendShortens", Flaw: "sets the TTL on Extend, also to less than is left",
			Seen:     "PEXPIRE without a look at PTTL",
			KilledBy: []Kill{{"after/lives", "two holders at once"}},
			design:   inside(flaw{renew: renewTo}),
		},
		{
			Name: "ExtendAdds", Flaw: "adds the TTL to what is left on Extend",
			KilledBy: []Kill{{"after/extends", "it had to be free by"}},
			design:   inside(flaw{renew: renewOnTop}),
		},
		{
			Name: "ExtendsThrice", Flaw: "confirms the fourth Extend of a fixed term, and each later one, and does nothing",
			KilledBy: []Kill{{"after/extends", "before the lease of A could end"}},
			design:   inside(flaw{renew: extendThrice}),
		},
		{
			Name: "RenewsNine", Flaw: "renews nine locks of a client at a time, and the others in name only",
			KilledBy: []Kill{{"batch/each-renewed", "was granted"}},
			design:   design{driver: renewingNine},
		},
	}
}

// sharingMutants share what every lock has to have of its own.
func sharingMutants() []Mutant {
	return []Mutant{
		{
			Name: "GlobalLock", Flaw: "has one lock for all names",
			KilledBy: []Kill{{"names/waited-apart", "C was refused"}},
			design:   namesFlaw(func(string) string { return "the lock" }),
		},
		{
			Name: "InternalKeys", Flaw: "keeps the token of a name where the name with \":token\" would be",
			KilledBy: []Kill{{"names/internals", "is held"}},
			design:   inside(flaw{try: tryUnlessKey}),
		},
		{
			Name: "SharedSession", Flaw: "has one session for all clients, which the first Close ends",
			Seen:     "a client in a package variable",
			KilledBy: []Kill{{"meta/clients-independent", "was granted"}, {"after/excludes", `"conf-`}}, // two at once, or a client that is told of a loss
			design:   design{driver: sharing},
		},
	}
}

func releaseLater(ctx context.Context, c *claim) error {
	if !c.won {
		return c.inner.Release(ctx)
	}
	if _, err := c.inner.Renew(ctx, time.Nanosecond); err != nil {
		return err
	}
	return c.reset(ctx, 5*time.Second)
}

// eager is a lock that hands the context of Unlock on.
type eager struct{ *driver.Handle }

// Unlock implements distlock.Lock.
func (l eager) Unlock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.Handle.Unlock(ctx)
}

// grumbling is a lock that knows one end only.
type grumbling struct{ *driver.Handle }

// Err implements distlock.Lock.
func (l grumbling) Err() error {
	if l.Handle.Err() != nil {
		return distlock.ErrLost
	}
	return nil
}

// reviving is a lock that has no end.
type reviving struct {
	*driver.Handle
	c *claim
}

// Extend implements distlock.Lock.
func (l reviving) Extend(ctx context.Context, ttl time.Duration) error {
	err := l.Handle.Extend(ctx, ttl)
	if !errors.Is(err, distlock.ErrLost) && !errors.Is(err, distlock.ErrUnlocked) {
		return err
	}
	_, err = l.c.as(func(r *driver.Request) { r.TTL, r.NoWait = ttl, true }).Try(ctx)
	return err
}

func renewTo(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	if _, err := c.inner.Renew(ctx, time.Nanosecond); err != nil {
		return driver.Grant{}, err
	}
	return driver.Grant{TTL: ttl}, c.reset(ctx, ttl)
}

func extendThrice(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	if c.renewals++; c.asked.NoRenewal && c.renewals > 3 {
		return driver.Grant{TTL: ttl}, nil
	}
	return c.inner.Renew(ctx, ttl)
}

func renewOnTop(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, time.Nanosecond)
	if err != nil {
		return g, err
	}
	_, err = c.inner.Renew(ctx, g.TTL+ttl)
	return driver.Grant{TTL: ttl}, err
}

func renewingNine(e *env) driver.Driver {
	known := make(map[*claim]bool)
	mine := func(c *claim) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		known[c] = known[c] || len(known) < 9
		if !known[c] {
			delete(known, c)
		}
		return known[c]
	}
	return e.inside(flaw{
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
			if !mine(c) {
				return driver.Grant{TTL: ttl}, nil
			}
			return c.inner.Renew(ctx, ttl)
		},
		release: func(ctx context.Context, c *claim) error {
			e.mu.Lock()
			delete(known, c)
			e.mu.Unlock()
			return c.inner.Release(ctx)
		},
	})
}

func tryUnlessKey(ctx context.Context, c *claim) (driver.Grant, error) {
	if name, ok := strings.CutSuffix(c.asked.Name, ":token"); ok {
		st, err := c.driver.mem.Inspect(ctx, name)
		switch {
		case err != nil:
			return driver.Grant{}, err
		case st.Held:
			return driver.Grant{}, &distlock.HeldError{Remaining: st.Remaining}
		}
	}
	return c.inner.Try(ctx)
}

// sharing makes a driver that ends all locks in the store with its own end.
func sharing(e *env) driver.Driver {
	return e.inside(flaw{close: func(e *env) error {
		held, err := e.mem.List(context.Background(), "")
		for _, st := range held {
			err = errors.Join(err, remove(context.Background(), e.mem, st.Name))
		}
		return err
	}})
}
