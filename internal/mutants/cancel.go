package mutants

import (
	"context"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

func cancelMutants() []Mutant {
	return []Mutant{
		{
			Name: "GhostWaiter", Flaw: "leaves its place in the queue when the caller has gone",
			Seen:     "zk-ruby #49 and #51, etcd #9715",
			KilledBy: []Kill{{"cancel/race-with-grant", "B's cancelled call had returned an error"}, {"handover/woken-leaves", "is still waiting"}},

			design: inside(flaw{release: func(ctx context.Context, c *claim) error {
				if !c.won {
					return nil
				}
				return c.inner.Release(ctx)
			}}),
		},
		{
			Name: "LateGrant", Flaw: "forgets a request whose caller has gone, and that it may still be granted",
			Seen:     "redsync, redislock, INSERTs in MySQL: measured, 19 of 20 seconds were left",
			KilledBy: []Kill{{"pair/left-late", "something was left behind"}, {"cancel/race-with-grant", "B's cancelled call had returned an error"}},

			design: undoing(func(_ context.Context, caller context.Context, _ *claim) (done bool, err error) {
				return caller.Err() != nil, nil
			}),
		},
		{
			Name: "CleanupWithDeadCtx", Flaw: "cleans up with the context whose end made it necessary",
			Seen:     "redsync 4.18.1",
			KilledBy: []Kill{{"pair/left-late", "something was left behind"}},

			design: undoing(func(_ context.Context, caller context.Context, _ *claim) (done bool, err error) {
				return caller.Err() != nil, caller.Err()
			}),
		},
		{
			Name: "OrphanOnError", Flaw: "takes a request that has failed for one that had no effect, and leaves what it has created",
			Seen:     "go-zookeeper's Lock, measured",
			KilledBy: []Kill{{"pair/reply-lost", "something was left behind"}},

			design: undoing(func(_ context.Context, caller context.Context, _ *claim) (done bool, err error) {
				return caller.Err() == nil, nil
			}),
		},
	}
}

// callerKey finds, among the values of a context, the context of the call for the
// lock. The engine keeps it from drivers for good reason.
type callerKey struct{}

// calling hands its callers' contexts down to the driver.
type calling struct{ *driver.Client }

// Lock implements distlock.Locker.
func (l calling) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return l.Client.Lock(context.WithValue(ctx, callerKey{}, ctx), name, opts...)
}

// TryLock implements distlock.Locker.
func (l calling) TryLock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return l.Client.TryLock(context.WithValue(ctx, callerKey{}, ctx), name, opts...)
}

// undoing makes a plain driver that undoes a failed Lock in its own way. If instead
// is not done with it, the entry is removed as it should be.
func undoing(instead func(ctx, caller context.Context, c *claim) (done bool, err error)) design {
	d := outside(plain(flaw{release: func(ctx context.Context, c *claim) error {
		// Of the calls that lead here, only Lock and TryLock have left their context.
		if caller, ok := ctx.Value(callerKey{}).(context.Context); ok {
			if done, err := instead(ctx, caller, c); done {
				return err
			}
		}
		return c.inner.Release(ctx)
	}}))
	d.locker = func(_ *env, c *driver.Client) distlock.Locker { return calling{c} }
	return d
}
