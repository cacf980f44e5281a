package mutants

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// lockFunc is Lock or TryLock.
type lockFunc func(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error)

// shell is a Locker with a flaw in the engine; what is nil stays right.
type wrapper struct {
	*driver.Client
	lock  func(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error)
	try   func(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error)
	close func(call func() error) error
}

// in makes the design that wraps a memlock in a shell.
func (s wrapper) in() design {
	return design{locker: func(_ *env, c *driver.Client) distlock.Locker {
		own := s
		own.Client = c
		return &own
	}}
}

// Lock implements distlock.Locker.
func (s *wrapper) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	if s.lock != nil {
		return s.lock(ctx, s.Client.Lock, name, opts)
	}
	return s.Client.Lock(ctx, name, opts...)
}

// TryLock implements distlock.Locker.
func (s *wrapper) TryLock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	if s.try != nil {
		return s.try(ctx, s.Client.TryLock, name, opts)
	}
	return s.Client.TryLock(ctx, name, opts...)
}

// Close implements distlock.Locker.
func (s *wrapper) Close() error {
	if s.close != nil {
		return s.close(s.Client.Close)
	}
	return s.Client.Close()
}

func wrapperMutants() []Mutant {
	both := func(f func(context.Context, lockFunc, string, []distlock.Option) (distlock.Lock, error)) design {
		return wrapper{lock: f, try: f}.in()
	}
	return []Mutant{
		{
			Name: "TimeoutIsHeld", Flaw: "says that the name is held, and not that the context has ended",
			KilledBy: []Kill{{"core/error-taxonomy", "context.DeadlineExceeded"}, {"wait/deadline", "context.DeadlineExceeded"}, {"after/leaves", "context.Canceled"}},
			design:   wrapper{lock: lockOrHeld}.in(),
		},
		{
			Name: "IgnoresDoneCtx", Flaw: "takes a free name although the context has ended before",
			KilledBy: []Kill{{"core/pre-cancelled", "with a context that was done"}},
			design:   both(lockAnyway),
		},
		{
			Name: "CtxRetained", Flaw: "unlocks when the context ends that the lock was acquired with",
			Seen:     "contexts stored in sessions",
			KilledBy: []Kill{{"cancel/ctx-not-retained", "after the context of the call that acquired it was cancelled"}},
			design:   both(lockWhile),
		},
		{
			Name: "ZeroIsForever", Flaw: "takes a TTL that is not positive for none at all",
			Seen:     "options in which 0 stands for no timeout",
			KilledBy: []Kill{{"expiry/odd-ttl", "must be refused with ErrInvalid"}},
			design:   both(lockForever),
		},
		{
			Name: "TryWaits", Flaw: "lets TryLock wait for a second",
			KilledBy: []Kill{{"wait/try-does-not-wait", "it waits for something"}},
			design:   wrapper{try: tryForLong}.in(),
		},
		{
			Name: "TryBehindQueue", Flaw: "lets TryLock wait for half a second where others wait for the name",
			KilledBy: []Kill{{"wait/try-does-not-wait", "it waits for something"}},
			design:   inside(flaw{try: tryBehindQueue}),
		},
		{
			Name: "DeafToCancel", Flaw: "looks at its context once in five seconds",
			Seen:     "sleeping between two attempts",
			KilledBy: []Kill{{"after/leaves", "has not returned by"}, {"fault/black-hole", "has not returned"}},

			design: wrapper{lock: lockSlowly}.in(),
		},
	}
}

func lockOrHeld(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	l, err := call(ctx, name, opts...)
	if errors.Is(err, distlock.ErrHeld) {
		return nil, distlock.ErrHeld
	}
	return l, err
}

func lockAnyway(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	if ctx.Err() == nil {
		return call(ctx, name, opts...)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return call(ctx, name, opts...)
}

func lockWhile(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	l, err := call(ctx, name, opts...)
	if err == nil {
		context.AfterFunc(ctx, func() { _ = l.Unlock(context.Background()) })
	}
	return l, err
}

func lockForever(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	o := distlock.CallOptions{TTL: 1}
	for _, opt := range opts {
		opt(&o)
	}
	if o.TTL <= 0 {
		opts = append(opts, distlock.TTL(distlock.MaxTTL))
	}
	return call(ctx, name, opts...)
}

func tryForLong(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	for range 4 {
		l, err := call(ctx, name, opts...)
		if !errors.Is(err, distlock.ErrHeld) {
			return l, err
		}
		time.Sleep(time.Second / 4)
	}
	return call(ctx, name, opts...)
}

func tryBehindQueue(ctx context.Context, c *claim) (driver.Grant, error) {
	if st, err := c.driver.mem.Inspect(ctx, c.asked.Name); err == nil && c.asked.NoWait && st.Waiters > 0 {
		select {
		case <-time.After(time.Second / 2):
		case <-ctx.Done():
		}
	}
	return c.inner.Try(ctx)
}

// lockSlowly gives the call five seconds at a time, whatever its context says.
func lockSlowly(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	var late error
	for ctx.Err() == nil {
		part, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		l, err := call(part, name, opts...)
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			return l, err
		}
		late = err
	}
	return nil, errors.Join(ctx.Err(), late)
}
