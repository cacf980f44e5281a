package mutants

import (
	"context"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/memlock"
)

func failoverMutants() []Mutant {
	return []Mutant{{
		Name: "AsyncReplica", Flaw: "declares that its locks survive a fail-over, and answers before a replica has the write",
		Seen:     "locks on one Redis with replicas, and on MySQL with asynchronous ones, sold as highly available",
		KilledBy: []Kill{{"fault/failover", "had two holders at once"}},
		design: design{
			async:  true,
			driver: func(e *env) distlock.Driver { return e.inside(flaw{caps: claimsQuorum}) },
		},
	}}
}

func claimsQuorum(c *distlock.Capabilities) { c.Durability = distlock.Quorum }

// Lag implements conformance.Failover.
func (h *harness) Lag(context.Context) error { return nil }

// Failover implements conformance.Failover. The next server of a store that is not
// asynchronous knows all that this one knows: it may as well be the same.
func (h *harness) Failover(context.Context) error {
	if r, ok := h.world.mem.(*asynchronous); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.primary = memlock.NewDriver(memlock.NewStore(nil)).(store)
	}
	return nil
}

var _ conformance.Failover = (*harness)(nil)

// asynchronous is a store whose next server knows nothing of what this one has
// granted.
type asynchronous struct {
	mu      sync.Mutex
	primary store
}

func (r *asynchronous) now() store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.primary
}

// Capabilities implements distlock.Driver.
func (r *asynchronous) Capabilities() distlock.Capabilities { return r.now().Capabilities() }

// Claim implements distlock.Driver.
func (r *asynchronous) Claim(q distlock.Request) distlock.Claim {
	return &movingClaim{store: r, asked: q}
}

// Inspect implements distlock.Inspector.
func (r *asynchronous) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	return r.now().Inspect(ctx, name)
}

// List implements distlock.Inspector.
func (r *asynchronous) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return r.now().List(ctx, prefix)
}

// Break implements distlock.Breaker.
func (r *asynchronous) Break(ctx context.Context, name string) error {
	return r.now().Break(ctx, name)
}

// movingClaim asks whichever server is the primary. Its fields are used by one call
// at a time.
type movingClaim struct {
	store *asynchronous
	asked distlock.Request
	at    store          // where inner is
	inner distlock.Claim // nil before the first request
}

func (c *movingClaim) here() distlock.Claim {
	if at := c.store.now(); c.inner == nil || c.at != at {
		c.at, c.inner = at, at.Claim(c.asked)
	}
	return c.inner
}

// Try implements distlock.Claim.
func (c *movingClaim) Try(ctx context.Context) (distlock.Grant, error) { return c.here().Try(ctx) }

// Wait implements distlock.Claim.
func (c *movingClaim) Wait(ctx context.Context) error { return c.here().Wait(ctx) }

// Renew implements distlock.Claim.
func (c *movingClaim) Renew(ctx context.Context, d time.Duration) (distlock.Grant, error) {
	return c.here().Renew(ctx, d)
}

// Release implements distlock.Claim.
func (c *movingClaim) Release(ctx context.Context) error { return c.here().Release(ctx) }
