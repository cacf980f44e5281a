package patterns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// ReadWrite returns two Lockers for the same names: at any instant a name is held by one
// writer, or by any number of readers up to the given one. That number must be the same
// in all processes, and both kinds of lock are dear: a reader takes two locks of l, a
// writer one more than there may be readers. So choose a small one. It is not a count
// that grows with the readers, because a Locker can only say of one name that one
// acquisition has it: a writer has to hold what each reader could hold.
//
// Readers and writers of a name get their locks in one queue, first come, first served
// where l is fair: readers that come after a writer wait for it, so none of them starves.
// A TryLock fails with ErrHeld also while another call is just being granted its lock.
//
// The tokens of a name rise over readers and writers alike, in the order of their
// grants. A store that is to refuse stale requests compares a write with the highest
// token that it has seen, and a read with the highest of a write: readers beside each
// other are not stale.
//
// A lock of a writer is lost when one of its locks is, and cannot have a fixed term:
// NoRenewal is ErrInvalid there. One that dies while it waits or holds is out of the way
// when its TTL is over. Locks of l on name/0 to name/(readers-1) and name/next are used for
// this: they show in List, and must not be used otherwise. Close, of either, closes l.
func ReadWrite(l distlock.Locker, readers int) (read, write distlock.Locker) {
	s := slots{l, readers}
	return &sharing{l, s, s.share}, &sharing{l, s, s.exclude}
}

// sharing is one of the two Lockers.
type sharing struct {
	distlock.Locker
	slots slots
	take  func(ctx context.Context, name string, wait bool, opts []distlock.Option) (distlock.Lock, error) // for one that is next
}

// Unwrap returns the Locker inside, which has the slots.
func (s *sharing) Unwrap() distlock.Locker { return s.Locker }

// Lock implements Locker.
func (s *sharing) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return s.acquire("lock", name, opts, func() (distlock.Lock, error) { return s.slots.queue(ctx, name, opts) },
		func(next distlock.Lock) (distlock.Lock, error) { return s.enter(ctx, next, name, true, opts) })
}

// TryLock implements Locker.
func (s *sharing) TryLock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return s.acquire("trylock", name, opts, func() (distlock.Lock, error) { return s.Locker.TryLock(ctx, name+"/next", renewed(opts)...) },
		func(next distlock.Lock) (distlock.Lock, error) { return s.enter(ctx, next, name, false, opts) })
}

func (s *sharing) acquire(op, name string, opts []distlock.Option, queue func() (distlock.Lock, error),
	enter func(next distlock.Lock) (distlock.Lock, error)) (distlock.Lock, error) {
	if err := s.slots.check(op, name, opts); err != nil {
		return nil, err
	}
	for {
		next, err := queue()
		if err != nil {
			return nil, opError(op, name, reason(err))
		}
		lock, err := enter(next)
		if err == nil {
			return lock, nil
		}
		if err != errAgain {
			return nil, opError(op, name, err)
		}
	}
}

// errAgain is never returned to a user: what was waited for has to be begun anew.
var errAgain = errors.New("a part was lost while the rest was waited for")

// enter takes what belongs to the lock while next, the place at the head of the queue,
// is held. So nobody has got a lock with a higher token than that of next before. It
// looks at next last, since a process may be stopped for longer than its lease between
// any two steps.
//
// If next is lost, the waiting ends: two writers that each hold some of the slots and
// wait for the others would do so for ever.
func (s *sharing) enter(ctx context.Context, next distlock.Lock, name string, wait bool, opts []distlock.Option) (distlock.Lock, error) {
	defer leave(next)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-next.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	lock, err := s.take(ctx, name, wait, opts)
	if next.Err() != nil {
		if err == nil {
			leave(lock)
		}
		return nil, errAgain
	}
	if err != nil {
		return nil, err
	}
	return &ordered{lock, name, next.Token()}, nil
}

// ordered is a lock with the token of its place in the queue.
type ordered struct {
	distlock.Lock
	name  string
	token int64
}

// Name implements Lock.
func (o *ordered) Name() string { return o.name }

// Token implements Lock.
func (o *ordered) Token() int64 { return o.token }

// Unwrap returns the lock on the slots, for As.
func (o *ordered) Unwrap() distlock.Lock { return o.Lock }

// share takes one slot.
func (s slots) share(ctx context.Context, name string, wait bool, opts []distlock.Option) (distlock.Lock, error) {
	lock, _, err := s.tryAny(ctx, name, opts, !wait)
	if wait && errors.Is(err, distlock.ErrHeld) {
		lock, _, err = s.waitAny(ctx, name, opts)
	}
	return lock, err
}

// exclude takes all slots.
func (s slots) exclude(ctx context.Context, name string, wait bool, opts []distlock.Option) (distlock.Lock, error) {
	var o distlock.CallOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.NoRenewal {
		return nil, fmt.Errorf("%w: the lock of a writer cannot have a fixed term", distlock.ErrInvalid)
	}
	take := s.l.TryLock
	if wait {
		take = s.l.Lock
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := s.each(name, func(name string) (distlock.Lock, error) { return take(ctx, name, opts...) })
	set := &LockSet{locks: make(map[string]distlock.Lock, s.n), done: make(chan struct{})}
	for i := range s.n {
		got := <-outcomes
		if got.err != nil {
			cancel()
			go giveBack(outcomes, s.n-1-i)
			leave(&all{set})
			return nil, got.err
		}
		set.locks[s.name(name, got.slot)] = got.lock
	}
	for _, lock := range set.locks {
		go set.watch(lock)
	}
	if set.Err() != nil {
		leave(&all{set})
		return nil, errAgain
	}
	return &all{set}, nil
}

// all is the lock of a writer: one that holds all slots.
type all struct{ *LockSet }

// Name implements Lock; ordered knows the name and the token.
func (a *all) Name() string { return "" }

// Token implements Lock.
func (a *all) Token() int64 { return 0 }

// Extend implements Lock.
func (a *all) Extend(ctx context.Context, ttl time.Duration) error {
	results := make(chan error, len(a.locks))
	for _, lock := range a.locks {
		go func() { results <- lock.Extend(ctx, ttl) }()
	}
	var failed error
	for range a.locks {
		failed = errors.Join(failed, <-results)
	}
	return failed
}
