// Package patterns has what is often built on a lock, for any [distlock.Locker].
//
// [Elect] elects a leader, [OncePer] runs a job once per period over all processes,
// [LockAll] takes several names or none, [MaxHold] bounds how long a stuck holder keeps a
// name, [Wanted] tells a holder that others wait, [Semaphore] and [ReadWrite] let several
// in, [Reentrant] lets one in again, [Shard] spreads names over several stores. A wrapper
// is a Locker itself, so they can be put together. Each with its limits:
// https://github.com/distlock-go/distlock/blob/main/docs/patterns.md
package patterns

import (
	"context"
	"fmt"
	"sync"

	"github.com/distlock-go/distlock"
)

// wrapper is a Locker that gets its locks from the one inside, as acquire does it. Close closes
// that.
type wrapper struct {
	distlock.Locker
	acquire func(ctx context.Context, c call) (distlock.Lock, error)
}

// call is a call to Lock or TryLock.
type call struct {
	op   string // "lock" or "trylock"
	name string
	opts []distlock.Option
	take func(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) // the same method of the Locker inside

	freeing *sync.WaitGroup // what afterReleases waits for
}

// waits reports whether it is a call to Lock.
func (c call) waits() bool { return c.op == "lock" }

// options returns what the options add up to.
func (c call) options() (o distlock.CallOptions) {
	for _, opt := range c.opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

// invalid returns an ErrInvalid of the call.
func (c call) invalid(format string, args ...any) error {
	return opError(c.op, c.name, fmt.Errorf("%w: "+format, append([]any{distlock.ErrInvalid}, args...)...))
}

// mustHave panics, before anything is locked, where a caller has passed no Locker: every function with one calls it first.
func mustHave(op string, l distlock.Locker) {
	if l == nil {
		panic("distlock: " + op + " of a nil Locker: backends.Open makes one")
	}
}

// mustRun is the same for a function to run.
func mustRun(op string, given bool) {
	if !given {
		panic("distlock: " + op + " of a nil function: it is what runs under the lock")
	}
}

// mustHaveContext is the same for a context that is used in other goroutines, where a panic ends the process.
func mustHaveContext(op string, ctx context.Context) {
	if ctx == nil {
		panic("distlock: " + op + " of a nil context: context.Background() is one that never ends")
	}
}

// Lock implements Locker.
func (w *wrapper) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return w.acquire(ctx, call{op: "lock", name: name, opts: opts, take: w.Locker.Lock})
}

// TryLock implements Locker.
func (w *wrapper) TryLock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return w.acquire(ctx, call{op: "trylock", name: name, opts: opts, take: w.Locker.TryLock})
}

// Unwrap returns the Locker inside.
func (w *wrapper) Unwrap() distlock.Locker { return w.Locker }

// localLock is a lock that may end for its holder before the lock inside ends.
type localLock struct {
	distlock.Lock
	ctx context.Context // ends with the lock, and its cause says why
	end context.CancelCauseFunc
}

func newLocalLock(l distlock.Lock) localLock {
	ctx, end := context.WithCancelCause(context.Background())
	return localLock{l, ctx, end}
}

// Done implements Lock.
func (l *localLock) Done() <-chan struct{} { return l.ctx.Done() }

// Err implements Lock. Like that of the lock inside, it consults the clock.
func (l *localLock) Err() error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return l.Lock.Err()
}

// Unwrap returns the lock inside, for As.
func (l *localLock) Unwrap() distlock.Lock { return l.Lock }

// sideBySide calls f for all at the same time, and joins the errors.
func sideBySide[V any](all map[string]V, f func(key string, value V) error) (joined error) {
	results := make(chan error)
	for key, value := range all {
		go func() { results <- f(key, value) }()
	}
	for range all {
		joined = both(joined, <-results)
	}
	return joined
}

// both joins two errors, of which each may be nil, on one line.
func both(first, second error) error {
	switch {
	case second == nil:
		return first
	case first == nil:
		return second
	}
	return fmt.Errorf("%w; and %w", first, second)
}

func opError(op, name string, err error) error {
	return &distlock.Error{Op: op, Name: name, Err: err}
}

// reason is what an error of a Locker says beside operation and name, which are not those
// that the caller of a wrapper knows, and beside what it advises for a lock that is not a part of another.
func reason(err error) error {
	if e, ok := err.(*distlock.Error); ok {
		err = e.Err
	}
	if e, ok := err.(interface{ Plain() error }); ok {
		err = e.Plain()
	}
	return err
}
