package mutants

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// turnMutants go wrong where a client waits again for what it has just had.
func turnMutants() []Mutant {
	killed := func(text string) (kills []Kill) {
		for _, n := range []string{"two", "three", "four"} {
			kills = append(kills, Kill{"wait/" + n + "-take-turns", text})
		}
		return kills
	}
	return []Mutant{
		{
			Name: "ProvesAnew", Flaw: "relies on its subscription to a name again only a second after it was handed the name by it",
			Seen:     "a channel that is tested by a message, which was not sent along with a grant",
			KilledBy: killed("asked the store"),
			design:   justHad(nil),
		},
		{
			Name: "DeafAfterTurn", Flaw: "hears of no release of a name for a second after it had that name",
			KilledBy: killed("by a wake-up"),
			design: justHad(func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}),
		},
	}
}

// justHad is a driver that says NoWake to a claim on a name that its client has had a second
// ago or less, and waits for it in its own way; nil is the right one.
func justHad(wait func(context.Context) error) design {
	return design{driver: func(e *env) driver.Driver {
		var mu sync.Mutex
		had := make(map[string]time.Time)
		just := func(name string) bool {
			mu.Lock()
			defer mu.Unlock()
			at, ok := had[name]
			return ok && time.Since(at) < time.Second
		}
		return e.inside(flaw{
			try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				if held, refused := errors.AsType[*distlock.HeldError](err); refused && just(c.asked.Name) {
					return g, &driver.Held{HeldError: *held, NoWake: true}
				}
				return g, err
			},
			wait: func(ctx context.Context, c *claim) error {
				if wait != nil && just(c.asked.Name) {
					return wait(ctx)
				}
				return c.inner.Wait(ctx)
			},
			release: func(ctx context.Context, c *claim) error {
				if c.won {
					mu.Lock()
					had[c.asked.Name] = time.Now()
					mu.Unlock()
				}
				return c.inner.Release(ctx)
			},
		})
	}}
}
