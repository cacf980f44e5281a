package mutants

import (
	"context"
	"time"

	"github.com/distlock-go/distlock/driver"
)

// promptMutants return from a method when its request is answered, or some time after
// the end of its context, and not within 20 ms of it.
func promptMutants() []Mutant {
	const (
		seen = "go-zookeeper; go-redis while it reads an answer"
		says = "the call has not returned"
	)
	return []Mutant{
		{
			Name: "TryHeedless", Flaw: "ignores the end of its context in Try",
			Seen:     seen,
			KilledBy: []Kill{{"fault/black-hole", says}},
			design: outside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				return c.inner.Try(context.WithoutCancel(ctx))
			}}),
		},
		{
			Name: "WaitHeedless", Flaw: "ignores the end of its context in Wait",
			Seen:     "a blocking read of a subscription",
			KilledBy: []Kill{{"after/leaves", "has not returned by"}, {"close/waiters", "have not returned"}},
			design: outside(flaw{wait: func(ctx context.Context, c *claim) error {
				return c.inner.Wait(context.WithoutCancel(ctx))
			}}),
		},
		{
			Name: "RenewHeedless", Flaw: "ignores the end of its context in Renew",
			Seen:     seen,
			KilledBy: []Kill{{"fault/black-hole", says}},
			design: outside(flaw{renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				return c.inner.Renew(context.WithoutCancel(ctx), ttl)
			}}),
		},
		{
			Name: "ReleaseHeedless", Flaw: "ignores the end of its context in Release",
			Seen:     seen,
			KilledBy: []Kill{{"fault/black-hole", says}},
			design: outside(flaw{release: func(ctx context.Context, c *claim) error {
				return c.inner.Release(context.WithoutCancel(ctx))
			}}),
		},
		{
			Name: "LooksLate", Flaw: "looks at its context every half a second",
			Seen:     "polling",
			KilledBy: []Kill{{"fault/black-hole", says}, {"after/leaves", "has not returned by"}},
			design: outside(flaw{
				try: func(ctx context.Context, c *claim) (driver.Grant, error) {
					defer late(ctx)
					return c.inner.Try(ctx)
				},
				wait: func(ctx context.Context, c *claim) error {
					defer late(ctx)
					return c.inner.Wait(ctx)
				},
			}),
		},
	}
}

// late returns half a second after ctx has ended, if it has.
func late(ctx context.Context) {
	if ctx.Err() != nil {
		time.Sleep(time.Second / 2)
	}
}
