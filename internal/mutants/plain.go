package mutants

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// plainMutants go wrong with calls that have no options, and with the ends of contexts.
func plainMutants() []Mutant {
	both := func(f func(context.Context, lockFunc, string, []distlock.Option) (distlock.Lock, error)) design {
		return wrapper{lock: f, try: f}.in()
	}
	return []Mutant{
		{
			Name: "NeedsTTL", Flaw: "refuses a call that names no TTL",
			Seen:     "options that are used as they are, with a zero for what was not set",
			KilledBy: []Kill{{"core/no-options", "without an option"}},
			design: both(func(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
				if len(opts) == 0 {
					opts = []distlock.Option{distlock.TTL(0)}
				}
				return call(ctx, name, opts...)
			}),
		},
		{
			Name: "NoTTLNoEnd", Flaw: "keeps a lock for which no TTL was named until it is unlocked, and shows the Deadline of the default",
			Seen:     "SET NX, with PX if there is a TTL",
			KilledBy: []Kill{{"core/no-options", "still cannot have"}},
			design:   both(lockForEverIfPlain),
		},
		{
			Name: "TellsCause", Flaw: "returns the cause of the context's end instead of the context's error",
			Seen:     "context.Cause, taken for a better Err",
			KilledBy: []Kill{{"core/error-taxonomy", "context.DeadlineExceeded"}, {"after/leaves", "context.Canceled"}, {"wait/deadline", "context.DeadlineExceeded"}},
			design: both(func(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
				l, err := call(ctx, name, opts...)
				if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
					return nil, &distlock.Error{Op: "lock", Name: name, Err: context.Cause(ctx)}
				}
				return l, err
			}),
		},
		{
			Name: "TriesOn", Flaw: "asks again when the store fails, and says at the end of its context that the name was held",
			Seen:     "loops that end with \"could not be acquired\"",
			KilledBy: []Kill{{"core/down-is-not-held", "nobody holds"}},
			design:   wrapper{lock: lockWhateverFails}.in(),
		},
	}
}

// meetingMutants go wrong with calls that meet, and with names.
func meetingMutants() []Mutant {
	return []Mutant{
		{
			Name: "DropsControls", Flaw: "drops the control characters beyond the first 32 from names",
			KilledBy: []Kill{{"names/spaces", "the two names are one lock"}},
			design: namesFlaw(func(s string) string {
				return strings.Map(func(r rune) rune {
					if r >= 0x7f && r < 0xa0 {
						return -1
					}
					return r
				}, s)
			}),
		},
		{
			Name: "ExtendsAlone", Flaw: "refuses to extend a lock that is being extended",
			KilledBy: []Kill{{"renew/at-once", "one of the calls returned"}},
			design: inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock {
				return &unshared{Handle: h}
			}}),
		},
		{
			Name: "UnlockBeside", Flaw: "lets a second Unlock return nil while the first is under way",
			Seen:     "an atomic flag, where a sync.Once is needed",
			KilledBy: []Kill{{"renew/at-once", "was told that the name is held"}},
			design: inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock {
				return &flagged{Handle: h}
			}}),
		},
	}
}

// bookMutants keep books of their locks that are wrong.
func bookMutants() []Mutant {
	return []Mutant{
		{
			Name: "TryBehindLock", Flaw: "has a mutex for each name, which a Lock keeps while it waits, so that TryLock waits for it",
			Seen:     "a map of mutexes, for the goroutines of a process",
			KilledBy: []Kill{{"wait/try-does-not-wait", "the answer must match ErrHeld"}},
			design:   oneByOne(),
		},
		{
			Name: "TriesForAWhile", Flaw: "has TryLock ask twenty times, 30 ms apart",
			Seen:     "a retry option that is on by default",
			KilledBy: []Kill{{"wait/try-does-not-wait", "it waits for something"}},
			design:   outside(flaw{try: tryForAWhile}),
		},
		{
			Name: "ThreeFailures", Flaw: "takes a lock for lost when three renewals have failed",
			Seen:     "a limit of attempts instead of the end of the lease",
			KilledBy: []Kill{{"lost/quiet-when-healthy", "several renewals having failed"}},
			design:   outside(flaw{renew: renewThrice}),
		},
		{
			Name: "BooksByName", Flaw: "keeps its locks by name, and with the Unlock of one that was lost stops the renewal of its successor",
			Seen:     "a map from names to renewals",
			KilledBy: []Kill{{"owner/same-client-stale", "unlocked an older lock"}},
			design:   booksByName(),
		},
		{
			Name: "LooksAfterClose", Flaw: "goes on answering Inspect after Close",
			Seen:     "a client that is shared, and closed by nobody",
			KilledBy: []Kill{{"close/use-after-close", "Inspect on a closed client"}},
			design: design{locker: func(e *env, c *driver.Client) distlock.Locker {
				return &watching{Client: c, env: e}
			}},
		},
	}
}

// watching is a Locker that looks into the store by a way of its own when it is closed.
type watching struct {
	*driver.Client
	env *env
}

// Inspect implements driver.Inspector.
func (l *watching) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	st, err := l.Client.Inspect(ctx, name)
	if errors.Is(err, distlock.ErrClosed) {
		return l.env.mem.Inspect(ctx, name)
	}
	return st, err
}

// tryForAWhile asks again for what is held, also where the caller does not wait.
func tryForAWhile(ctx context.Context, c *claim) (g driver.Grant, err error) {
	for range 20 {
		if g, err = c.inner.Try(ctx); !errors.Is(err, distlock.ErrHeld) || !c.asked.NoWait {
			return g, err
		}
		time.Sleep(30 * time.Millisecond)
	}
	return g, err
}

// lockForEverIfPlain takes a name for as long as may be if no TTL was named.
func lockForEverIfPlain(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	if len(opts) > 0 {
		return call(ctx, name, opts...)
	}
	end := time.Now().Add(distlock.DefaultTTL)
	l, err := call(ctx, name, distlock.TTL(distlock.MaxTTL))
	if err != nil {
		return nil, err
	}
	return endless{l, end}, nil
}

// endless is a lock that shows another Deadline than its own.
type endless struct {
	distlock.Lock
	end time.Time
}

// Deadline implements distlock.Lock.
func (l endless) Deadline() time.Time { return l.end }

func lockWhateverFails(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	for {
		l, err := call(ctx, name, opts...)
		switch {
		case err == nil, errors.Is(err, distlock.ErrInvalid), errors.Is(err, distlock.ErrClosed):
			return l, err
		case ctx.Err() != nil:
			return nil, &distlock.Error{Op: "lock", Name: name, Err: errors.Join(ctx.Err(), distlock.ErrHeld)}
		}
		time.Sleep(time.Millisecond)
	}
}

// unshared is a lock for one goroutine.
type unshared struct {
	*driver.Handle
	busy atomic.Bool
}

// Extend implements distlock.Lock.
func (l *unshared) Extend(ctx context.Context, ttl time.Duration) error {
	if l.busy.Swap(true) {
		return &distlock.Error{Op: "extend", Name: l.Name(), Err: errors.New("another call is under way")}
	}
	defer l.busy.Store(false)
	return l.Handle.Extend(ctx, ttl)
}

// flagged is a lock with a flag for what Unlock has begun.
type flagged struct {
	*driver.Handle
	begun atomic.Bool
}

// Unlock implements distlock.Lock.
func (l *flagged) Unlock(ctx context.Context) error {
	if l.begun.Swap(true) && errors.Is(l.Err(), distlock.ErrUnlocked) {
		return nil
	}
	return l.Handle.Unlock(ctx)
}

// oneByOne lets one call at a time ask for a name.
func oneByOne() design {
	return design{locker: func(_ *env, c *driver.Client) distlock.Locker {
		var mutexes sync.Map
		one := func(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
			m, _ := mutexes.LoadOrStore(name, make(chan struct{}, 1))
			mutex := m.(chan struct{})
			select {
			case mutex <- struct{}{}:
				defer func() { <-mutex }()
				return call(ctx, name, opts...)
			case <-ctx.Done():
				return nil, &distlock.Error{Op: "lock", Name: name, Err: errors.Join(ctx.Err(), distlock.ErrHeld)}
			}
		}
		return &wrapper{Client: c, lock: one, try: one}
	}}
}

func renewThrice(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	if err == nil {
		c.renewals = 0
		return g, nil
	}
	if c.renewals++; c.renewals >= 3 {
		return g, distlock.ErrLost
	}
	return g, err
}

// booksByName makes a driver with one entry for each name in its books.
func booksByName() design {
	return design{driver: func(e *env) driver.Driver {
		var books sync.Map
		return e.inside(flaw{
			try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				if err == nil {
					books.Store(c.asked.Name, c)
				}
				return g, err
			},
			renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				if mine, _ := books.Load(c.asked.Name); mine != any(c) {
					return driver.Grant{}, errors.New("not in the books")
				}
				return c.inner.Renew(ctx, ttl)
			},
			wrap: func(h *driver.Handle, c *claim) distlock.Lock {
				return &booked{h, func() { books.Delete(c.asked.Name) }}
			},
		})
	}}
}

// booked is a lock that leaves the books with Unlock.
type booked struct {
	*driver.Handle
	leave func()
}

// Unlock implements distlock.Lock.
func (l *booked) Unlock(ctx context.Context) error {
	l.leave()
	return l.Handle.Unlock(ctx)
}
