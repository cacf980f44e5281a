package mutants

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// saidMutants answer a call for a lock in a wrong way.
func saidMutants() []Mutant {
	both := func(f func(context.Context, lockFunc, string, []distlock.Option) (distlock.Lock, error)) design {
		return wrapper{lock: f, try: f}.in()
	}
	return []Mutant{
		{
			Name: "LockBesideError", Flaw: "returns a nil pointer in a Lock beside the error",
			Seen:     "a function that returns its own type through an interface",
			KilledBy: []Kill{{"core/error-taxonomy", "a Lock that is not nil"}},
			design: both(func(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
				l, err := call(ctx, name, opts...)
				if err != nil {
					return (*driver.Handle)(nil), err
				}
				return l, nil
			}),
		},
		{
			Name: "WrapsTwice", Flaw: "says twice in an error what was tried",
			KilledBy: []Kill{{"core/error-taxonomy", "says twice"}},
			design: both(func(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
				l, err := call(ctx, name, opts...)
				if outer, ok := errors.AsType[*distlock.Error](err); ok {
					return nil, &distlock.Error{Op: outer.Op, Name: name, Err: err}
				}
				return l, err
			}),
		},
		{
			Name: "GrantDropped", Flaw: "forgets a grant if the context has ended by the time that it comes",
			KilledBy: []Kill{{"cancel/race-with-grant", "a grant was forgotten"}},
			design: both(func(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
				l, err := call(ctx, name, opts...)
				if err == nil && ctx.Err() != nil {
					return nil, &distlock.Error{Op: "lock", Name: name, Err: ctx.Err()}
				}
				return l, err
			}),
		},
	}
}

// endMutants say that something has come to its end which has not.
func endMutants() []Mutant {
	return []Mutant{
		{
			Name: "BrokenIsClosed", Flaw: "says of a connection that has broken that the client is closed",
			Seen:     "io.EOF and net.ErrClosed taken for the end of the client",
			KilledBy: []Kill{{"core/down-is-not-held", "or has closed A"}},
			design: outside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				if err != nil && !errors.Is(err, distlock.ErrHeld) && ctx.Err() == nil {
					return g, distlock.ErrClosed
				}
				return g, err
			}}),
		},
		{
			Name: "CloseBesideClose", Flaw: "lets a second Close return before the first has come to its end",
			Seen:     "an atomic flag, where a sync.Once is needed",
			KilledBy: []Kill{{"close/idempotent", "has returned"}},
			design: design{locker: func(_ *env, c *driver.Client) distlock.Locker {
				var closed atomic.Bool
				return &wrapper{Client: c, close: func(call func() error) error {
					if closed.Swap(true) {
						return nil
					}
					return call()
				}}
			}},
		},
	}
}

// clauseMutants break a clause that is easily taken for another.
func clauseMutants() []Mutant {
	return []Mutant{
		{
			Name: "DeadlineOfGrant", Flaw: "shows the Deadline of the grant, whatever was renewed since",
			KilledBy: []Kill{{"after/extends", "Extend returned nil, but the Deadline is"}},
			design:   inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock { return dated{h, h.Deadline()} }}),
		},
		{
			Name: "NameTrimmed", Flaw: "shows the name of a lock without the white space at its ends",
			KilledBy: []Kill{{"names/spaces", "says that its name is"}},
			design:   inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock { return trimmed{h} }}),
		},
	}
}

// unlockMutants answer wrongly to Unlock, or end too much by it.
func unlockMutants() []Mutant {
	return []Mutant{
		{
			Name: "ReleaseHopes", Flaw: "takes a release without an answer for one that was done",
			KilledBy: []Kill{{"fault/black-hole", "but Unlock returned nil"}},
			design: outside(flaw{release: func(ctx context.Context, c *claim) error {
				if err := c.inner.Release(ctx); errors.Is(err, distlock.ErrLost) {
					return err
				}
				return nil
			}}),
		},
		{
			Name: "ReleaseRefused", Flaw: "takes a release without an answer for one that the store has refused",
			Seen:     "a fate that is set where the error is made, for all errors alike",
			KilledBy: []Kill{{"pair/request-lost", "though only one message was lost"}, {"pair/reply-lost", "though only one message was lost"}},
			design: outside(flaw{release: func(ctx context.Context, c *claim) error {
				err := c.inner.Release(ctx)
				if err != nil && !errors.Is(err, distlock.ErrLost) {
					err = &driver.Fault{Fate: driver.Answered, Err: err}
				}
				return err
			}}),
		},
		{
			Name: "SecondIsNil", Flaw: "returns nil from a second Unlock, whatever became of the first",
			Seen:     "a sync.Once with its error left behind",
			KilledBy: []Kill{{"fault/black-hole", "a second Unlock returned nil"}},
			design:   inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock { return &once{Handle: h} }}),
		},
		{
			Name: "UnlocksByPrefix", Flaw: "ends with Unlock all locks of names that begin with its own",
			Seen:     "a range that is deleted, where a single key was meant",
			KilledBy: []Kill{{"names/path", "the name had two holders at once"}},
			design: inside(flaw{release: func(ctx context.Context, c *claim) error {
				err := c.inner.Release(ctx)
				if err == nil && c.won {
					below, _ := c.driver.mem.List(ctx, c.asked.Name)
					for _, st := range below {
						if len(st.Name) > len(c.asked.Name) {
							_ = remove(ctx, c.driver.mem, st.Name)
						}
					}
				}
				return err
			}}),
		},
	}
}

// dated is a lock that knows one Deadline only.
type dated struct {
	*driver.Handle
	deadline time.Time
}

// Deadline implements distlock.Lock.
func (l dated) Deadline() time.Time { return l.deadline }

// trimmed is a lock that does not show its whole name.
type trimmed struct{ *driver.Handle }

// Name implements distlock.Lock.
func (l trimmed) Name() string { return strings.TrimSpace(l.Handle.Name()) }

// once is a lock that is unlocked once.
type once struct {
	*driver.Handle
	unlocked atomic.Bool
}

// Unlock implements distlock.Lock.
func (l *once) Unlock(ctx context.Context) error {
	if l.unlocked.Swap(true) {
		return nil
	}
	return l.Handle.Unlock(ctx)
}
