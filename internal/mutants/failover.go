package mutants

import (
	"context"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

func failoverMutants() []Mutant {
	return []Mutant{{
		Name: "AsyncReplica", Flaw: "declares that its locks survive a failover, and answers before a replica has the write",
		Seen:     "locks on one Redis with replicas, and on MySQL with asynchronous ones, sold as highly available",
		KilledBy: []Kill{{"fault/failover", "had two holders at once"}},
		design: design{
			async:  true,
			driver: func(e *env) driver.Driver { return e.inside(flaw{caps: claimsQuorum}) },
		},
	}}
}

func claimsQuorum(c *driver.Capabilities) { c.Durability = driver.Quorum }

// Lag implements conformance.Failover.
func (h *harness) Lag(context.Context) error { return nil }

// Failover implements conformance.Failover. The next server of a synchronous store
// knows all that this one knows: it may as well be the same.
func (h *harness) Failover(context.Context) error {
	if r, ok := h.world.mem.(*asynchronous); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.primary = memlock.NewDriver(memlock.NewStore(nil)).(store)
	}
	return nil
}

var _ conformance.Failover = (*harness)(nil)

// asynchronous is a store that fails over: the next server does not know what this one
// has granted.
type asynchronous struct {
	mu      sync.Mutex
	primary store
}

func (r *asynchronous) now() store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.primary
}

// Capabilities implements driver.Driver.
func (r *asynchronous) Capabilities() driver.Capabilities { return r.now().Capabilities() }

// Claim implements driver.Driver.
func (r *asynchronous) Claim(q driver.Request) driver.Claim {
	return &movingClaim{store: r, asked: q}
}

// Renew implements driver.Driver.
func (r *asynchronous) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return c.(*movingClaim).here().Renew(ctx, ttl)
	})
}

// Inspect implements driver.Inspector.
func (r *asynchronous) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	return r.now().Inspect(ctx, name)
}

// List implements driver.Inspector.
func (r *asynchronous) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return r.now().List(ctx, prefix)
}

// Break implements driver.Breaker.
func (r *asynchronous) Break(ctx context.Context, name string, token int64) error {
	return r.now().Break(ctx, name, token)
}

// movingClaim asks whichever server is the primary. Its fields are used by one call
// at a time.
type movingClaim struct {
	store *asynchronous
	asked driver.Request
	inner single // empty before the first request
}

func (c *movingClaim) here() single {
	if at := c.store.now(); c.inner.driver != at {
		c.inner = single{at.Claim(c.asked), at}
	}
	return c.inner
}

// Try implements driver.Claim.
func (c *movingClaim) Try(ctx context.Context) (driver.Grant, error) { return c.here().Try(ctx) }

// Wait implements driver.Claim.
func (c *movingClaim) Wait(ctx context.Context) error { return c.here().Wait(ctx) }

// Release implements driver.Claim.
func (c *movingClaim) Release(ctx context.Context) error { return c.here().Release(ctx) }
