package distlock

import (
	"context"
	"errors"
	"fmt"
)

// Do waits for the lock on name, and runs fn under it, as [Run] does. So ctx bounds fn as
// well as the wait. To bound the wait alone, or not to wait, acquire the lock yourself, and call
// Run. An error of Lock is returned as it is, and fn has not run. A nil l or fn panics before
// anything is locked.
func Do(ctx context.Context, l Locker, name string, fn func(context.Context) error, opts ...Option) error {
	switch { // before anything is locked
	case l == nil:
		panic("distlock: do of a nil Locker: backends.Open makes one")
	case fn == nil:
		panic("distlock: do of a nil function: it is what runs under the lock")
	}
	lock, err := l.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return Run(ctx, lock, fn)
}

// Run runs fn under lock and unlocks it, also if fn panics. The context that fn gets is ctx
// with two additions: it ends when the lock has ended, with the reason as its cause, and it
// carries the lock, for [FromContext].
//
// The error is nil if fn returned nil and the lock was held until after that. It matches fn's
// error if there is one, and ErrLost if the lock ended before fn returned: then fn may have run
// beside another holder, whatever it returned. It matches ErrUnlocked if the Locker was closed,
// or fn has unlocked the lock; fn may have run beside another holder then, too. A release with an
// unknown outcome is no error: it goes on in the background. If the store does not answer, Run
// returns up to five seconds after fn, also if ctx has ended: that is how long Unlock waits. A
// nil argument panics, and the lock stays as it was.
func Run(ctx context.Context, lock Lock, fn func(context.Context) error) (err error) {
	switch {
	case ctx == nil:
		panic("distlock: run with a nil context: context.Background() is one that never ends")
	case lock == nil:
		panic("distlock: run under a nil Lock: look at the error of Lock and TryLock")
	case fn == nil:
		panic("distlock: run of a nil function: it is what runs under the lock")
	}
	inner, cancel := context.WithCancelCause(NewContext(ctx, lock))
	finished := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-lock.Done():
			cancel(lock.Err())
		case <-finished:
		}
	}()
	defer func() {
		// The watcher ends first: what it would see from here on is our own Unlock, and
		// no loss.
		close(finished)
		<-watched
		cancel(nil)
		ended := lock.Err() // by Close, for example: its release may have succeeded
		lost := lock.Unlock(context.WithoutCancel(ctx))
		if errors.Is(ended, ErrUnlocked) && !errors.Is(lost, ErrLost) {
			lost = ended
		}
		told := func(end error) bool { return errors.Is(lost, end) && !errors.Is(err, end) }
		switch {
		case !told(ErrLost) && !told(ErrUnlocked):
			// Held to the end, or fn has said that it was not, by the cause of its context.
		case err == nil:
			err = lost
		default:
			err = fmt.Errorf("%w; the lock had ended before that: %w", err, lost)
		}
	}()
	return fn(inner)
}

type lockKey struct{}

// NewContext returns a context that carries lock, for [FromContext]. Nothing else follows
// from it: the context does not end with the lock, as that of [Do] does.
func NewContext(ctx context.Context, lock Lock) context.Context {
	return context.WithValue(ctx, lockKey{}, lock)
}

// FromContext returns the lock that ctx carries: the one that [Do] holds for the function
// it runs, or that of [NewContext]. So code deep inside can pass the lock's token along
// with a write. It reports false if there is none.
func FromContext(ctx context.Context) (Lock, bool) {
	lock, ok := ctx.Value(lockKey{}).(Lock)
	return lock, ok
}

// As returns the first lock of type T in the chain that begins with l and goes on
// with what Unwrap returns, as errors.As does for errors. It is how to reach what
// only one backend's locks can do, also through wrappers such as Prefix:
//
//	if el, ok := distlock.As[*etcdlock.Lock](lock); ok {
//		txn = txn.If(el.Cmp())
//	}
func As[T Lock](l Lock) (T, bool) {
	for {
		if t, ok := l.(T); ok {
			return t, true
		}
		u, ok := l.(interface{ Unwrap() Lock })
		if !ok {
			var none T
			return none, false
		}
		l = u.Unwrap()
	}
}
