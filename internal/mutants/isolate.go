package mutants

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// isolationMutants let what is stuck with one name take others along.
func isolationMutants() []Mutant {
	return []Mutant{
		{
			Name: "OneAtATime", Flaw: "makes one request at a time",
			Seen:     "a mutex around a client that is not safe for concurrent use",
			KilledBy: []Kill{{"isolate/hung-request", "hang; meanwhile A"}, {"isolate/stuck-name", "are stuck, one of them held by A"}},
			design:   design{driver: pooling(1, 1)},
		},
		{
			Name: "SmallPool", Flaw: "has sixteen connections for all requests, which those that hang keep",
			KilledBy: []Kill{{"isolate/hung-request", "hang; meanwhile A"}},
			design:   design{driver: pooling(16, 16)},
		},
		{
			Name: "HungRenewal", Flaw: "sends a renewal only when the one before it has been answered",
			KilledBy: []Kill{{"isolate/hung-renewal", "a renewal hangs, number"}},
			design:   design{driver: pooling(1000, 1)},
		},
		{
			Name: "BatchInTurn", Flaw: "renews the locks of a batch one after the other, each with all the time there is",
			KilledBy: []Kill{{"isolate/stuck-name", "lost"}, {"isolate/stuck-server", "lost"}},
			design:   inside(flaw{batch: batchInTurn}),
		},
		{
			Name: "BatchOneOutcome", Flaw: "takes a batch as failed if one of its locks got no answer",
			KilledBy: []Kill{{"isolate/stuck-name", "lost"}, {"isolate/stuck-server", "lost"}},
			design:   inside(flaw{batch: batchOneOutcome}),
		},
		{
			Name: "StuckIsLost", Flaw: "takes all locks of a batch for lost if one of them got no answer",
			KilledBy: []Kill{{"isolate/stuck-name", "lost"}, {"isolate/stuck-server", "lost"}},
			design:   inside(flaw{batch: batchStuckIsLost}),
		},
		{
			Name: "AsksAllServers", Flaw: "asks every server before it takes a name",
			KilledBy: []Kill{{"isolate/stuck-server", "one server is stuck"}},
			design:   inside(flaw{try: tryEverywhere}),
		},
		{
			Name: "SweepWaits", Flaw: "lets nobody take a name while it sweeps, and waits for a row that is stuck",
			Seen:     "DELETE in one statement, which waits for a row lock with those on the rows before it",
			KilledBy: []Kill{{"isolate/stuck-name", "sweep the store"}},
			design:   inside(sweepingAtOnce()),
		},
	}
}

// pooling is a driver that has so many connections for its requests, and for renewals.
func pooling(all, renewals int) func(e *env) driver.Driver {
	return func(e *env) driver.Driver {
		conns, renewing := make(chan struct{}, all), make(chan struct{}, renewals)
		use := func(ctx context.Context, pool chan struct{}, f func()) error {
			select {
			case pool <- struct{}{}:
				defer func() { <-pool }()
				f()
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return e.outside(flaw{
			try: func(ctx context.Context, c *claim) (g driver.Grant, err error) {
				late := use(ctx, conns, func() { g, err = c.inner.Try(ctx) })
				return g, cmp.Or(late, err)
			},
			renew: func(ctx context.Context, c *claim, ttl time.Duration) (g driver.Grant, err error) {
				late := use(ctx, renewing, func() { g, err = c.inner.Renew(ctx, ttl) })
				return g, cmp.Or(late, err)
			},
			release: func(ctx context.Context, c *claim) (err error) {
				late := use(ctx, conns, func() { err = c.inner.Release(ctx) })
				return cmp.Or(late, err)
			},
		})
	}
}

func batchInTurn(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	for i, r := range batch {
		batch[i].Grant, batch[i].Err = r.Claim.(*claim).Renew(ctx, r.TTL)
	}
}

// isStuck reports whether one lock of a batch got no answer.
func isStuck(ctx context.Context, batch []driver.Renewal) bool {
	renewEach(ctx, batch)
	return slices.ContainsFunc(batch, func(r driver.Renewal) bool { return r.Err != nil && !isLost(r) })
}

func batchOneOutcome(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	if isStuck(ctx, batch) {
		for i := range batch {
			batch[i].Grant, batch[i].Err = driver.Grant{}, errors.New("no answer")
		}
	}
}

func batchStuckIsLost(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	if isStuck(ctx, batch) {
		for i := range batch {
			batch[i].Grant, batch[i].Err = driver.Grant{}, distlock.ErrLost
		}
	}
}

func tryEverywhere(ctx context.Context, c *claim) (driver.Grant, error) {
	for _, other := range strings.Split("a b c d e f g h i j k l m n o p", " ") {
		if _, err := c.driver.mem.Inspect(ctx, other); err != nil {
			return driver.Grant{}, err
		}
	}
	return c.inner.Try(ctx)
}

// sweepingAtOnce is rows for a store that is locked while it is swept.
func sweepingAtOnce() flaw {
	f := sweptRows(func(ctx context.Context, d *flawed, idle time.Duration) (int, error) {
		d.sweeping.Store(true)
		defer d.sweeping.Store(false)
		var names []string
		d.mu.Lock()
		for name := range d.entries {
			names = append(names, name)
		}
		d.mu.Unlock()
		for _, name := range names {
			if _, err := d.mem.Inspect(ctx, name); err != nil {
				return 0, err
			}
		}
		return ways{since: released}.sweep(ctx, d, idle)
	})
	try := f.try
	f.try = func(ctx context.Context, c *claim) (driver.Grant, error) {
		for c.driver.sweeping.Load() {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return driver.Grant{}, ctx.Err()
			}
		}
		return try(ctx, c)
	}
	return f
}
