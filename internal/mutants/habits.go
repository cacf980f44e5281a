package mutants

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// toleratedHabits say less than most, or wake in another way.
func toleratedHabits() []Tolerated {
	const high = 1 << 62
	return []Tolerated{
		{
			Name: "PlainRefusal", Unusual: "wakes nobody, and says nothing with a refusal but that the name is held",
			design: inside(plain(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				if errors.Is(err, distlock.ErrHeld) {
					err = distlock.ErrHeld
				}
				return g, err
			}})),
		},
		{
			Name: "WakesForNothing", Unusual: "wakes its waiters every two seconds, whatever has become of the name",
			design: inside(flaw{wait: func(ctx context.Context, c *claim) error {
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				_ = c.inner.Wait(ctx)
				return nil
			}}),
		},
		{
			Name: "HighTokens", Unusual: "has tokens of 63 bits",
			design: inside(flaw{
				try: func(ctx context.Context, c *claim) (driver.Grant, error) {
					g, err := c.inner.Try(ctx)
					g.Token += high
					return g, err
				},
				status: func(_ *env, st *distlock.Status) {
					if st.Token > 0 {
						st.Token += high
					}
				},
				breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
					if token <= high {
						return distlock.ErrLost
					}
					return d.inner.Break(ctx, name, token-high)
				},
			}),
		},
		{
			Name: "SlowOperators", Unusual: "takes a second to inspect, to list and to break",
			design: outside(slowOperators()),
		},
		{
			Name: "KnowsLittle", Unusual: "keeps no queue, and knows neither when a name was acquired, nor for how long, nor who waits",
			design: inside(plain(flaw{status: func(_ *env, st *distlock.Status) {
				st.AcquiredAt, st.Remaining, st.Waiters = time.Time{}, 0, -1
			}})),
		},
	}
}

// slowOperators delays what operators ask for.
func slowOperators() flaw {
	return flaw{
		inspect: func(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
			aSecond(ctx)
			return d.look(ctx, name)
		},
		list: func(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
			aSecond(ctx)
			return d.inner.List(ctx, prefix)
		},
		breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
			aSecond(ctx)
			return d.inner.Break(ctx, name, token)
		},
	}
}

// aSecond sleeps for so long, or until ctx ends.
func aSecond(ctx context.Context) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// uncomparable is a Locker that cannot be compared, nor can its locks: == on two of them
// panics.
type uncomparable struct {
	*driver.Client
	tags []string
}

type tagged struct {
	*driver.Handle
	tags []string
}

// toleratedTypes are made of types that few would take.
func toleratedTypes() []Tolerated {
	return []Tolerated{
		{
			Name: "Uncomparable", Unusual: "has Lockers and locks of types that == panics on",
			design: design{
				driver: func(e *env) driver.Driver {
					return e.inside(flaw{wrap: func(h *driver.Handle, c *claim) distlock.Lock {
						return tagged{h, []string{c.asked.Name}}
					}})
				},
				locker: func(_ *env, c *driver.Client) distlock.Locker { return uncomparable{c, []string{"tag"}} },
			},
		},
		{
			Name: "KeepsNothing", Unusual: "has locks that Close cannot leave in the store",
			design: wrapper{lock: lockBarely, try: lockBarely}.in(),
		},
	}
}

// lockBarely returns locks that can do what distlock.Lock asks for, and no more.
func lockBarely(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	l, err := call(ctx, name, opts...)
	if err != nil {
		return nil, err
	}
	return struct{ distlock.Lock }{l}, nil
}

// toleratedBatches answer the entries of a batch, or count, in their own way.
func toleratedBatches() []Tolerated {
	const tenth = time.Second / 10
	return []Tolerated{
		{
			Name: "Disorderly", Unusual: "renews and answers the entries of a batch in any order",
			design: batched(func(ctx context.Context, _ *flawed, batch []driver.Renewal) {
				order := rand.Perm(len(batch))
				mixed := make([]driver.Renewal, len(batch))
				for i, j := range order {
					mixed[i] = batch[j]
				}
				renewEach(ctx, mixed)
				for i, j := range order {
					batch[j].Answer(mixed[i].Grant, mixed[i].Err)
				}
			}),
		},
		{
			Name: "Bursty", Unusual: "fails one batch in ten, though the store has done what it says",
			design: batched(func(ctx context.Context, _ *flawed, batch []driver.Renewal) {
				renewEach(ctx, batch)
				for i := range batch {
					if len(batch) > 1 && batch[i].Err == nil && rand.IntN(10) == 0 {
						batch[i].Err = errors.New("no answer to this entry")
					}
				}
			}),
		},
		{
			Name: "Lingering", Unusual: "has goroutines that sleep some milliseconds, and outlive a release by that",
			design: inside(flaw{release: func(ctx context.Context, c *claim) error {
				go func() { time.Sleep(30 * time.Millisecond) }()
				return c.inner.Release(ctx)
			}}),
		},
		{
			Name: "ShortMost", Unusual: "promises five minutes at the most, and declares it",
			design: inside(flaw{caps: func(c *driver.Capabilities) { c.MaxTTL = 5 * time.Minute }}),
		},
		{
			Name: "CoarseClock", Unusual: "counts in tenths of a second, as it declares, and rounds down what it says is left",
			design: inside(flaw{
				caps: func(c *driver.Capabilities) { c.MinTTL, c.TTLGranularity = tenth, tenth },
				request: func(_ *env, r *driver.Request) {
					r.TTL = (r.TTL + tenth - 1).Truncate(tenth)
				},
				try: func(ctx context.Context, c *claim) (driver.Grant, error) {
					g, err := c.inner.Try(ctx)
					if held, ok := errors.AsType[*distlock.HeldError](err); ok {
						held.Remaining = max(held.Remaining.Truncate(tenth), time.Millisecond)
					}
					return g, err
				},
				status: func(_ *env, st *distlock.Status) { st.Remaining = st.Remaining.Truncate(tenth) },
			}),
		},
	}
}
