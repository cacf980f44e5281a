package patterns

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
)

// ReadWrite returns two Lockers for the same names: at any instant a name is held by one
// writer, or by any number of readers up to the given one. That number must be the same
// in all processes, and both kinds of lock are expensive: a reader takes two locks of l, a
// writer one more than there may be readers. So choose a small one: less than 1 or more than 100,000 is ErrInvalid in every
// call, and so is a name that is too long for a [Semaphore] of as many. It is not a count
// that grows with the readers, because a Locker can only say of one name that one
// acquisition has it: a writer has to hold what each reader could hold.
//
// Readers and writers of a name get their locks in one queue, first come, first served
// where l is fair: readers that come after a writer wait for it, so none of them starves.
// A TryLock fails with ErrHeld also while another call is on its way to a lock, or to an
// error: while it runs, and no longer, if the store answers within a tenth of a second.
//
// The tokens of a name rise over readers and writers alike, in the order of their
// grants. A store that is to refuse stale requests compares a write with the highest
// token that it has seen, and a read with the highest of a write: readers beside each
// other are not stale.
//
// A write lock is lost when one of its locks is, and cannot have a fixed term:
// NoRenewal is ErrInvalid there. One that dies while it waits or holds is out of the way
// when its TTL is over. Locks of l on name/0 to name/(readers-1) and name/next are used for
// this: they show in List, and must not be used otherwise; Inspect of the name itself finds it
// free. Close, of either, closes l.
func ReadWrite(l distlock.Locker, readers int) (read, write distlock.Locker) {
	mustHave("readwrite", l)
	one, all := slots{l: l, n: readers}, slots{l: l, n: readers, all: true}
	return &wrapper{l, afterReleases(one.behindNext(one.share))}, &wrapper{l, afterReleases(all.behindNext(all.exclude))}
}

// behindNext returns what takes a lock of one kind: by take, for the one that is next.
func (s slots) behindNext(take func(context.Context, call) (distlock.Lock, error)) func(context.Context, call) (distlock.Lock, error) {
	return func(ctx context.Context, c call) (distlock.Lock, error) {
		if err := s.check(c); err != nil {
			return nil, err
		}
		for {
			next, err := s.queue(ctx, c)
			if err != nil {
				return nil, opError(c.op, c.name, err)
			}
			lock, err := enterWith(ctx, next, c, take)
			switch err {
			case nil:
				return lock, nil
			case errAgain:
			default:
				return nil, opError(c.op, c.name, err)
			}
		}
	}
}

// errAgain is never returned to a user: what was waited for has to be begun anew.
var errAgain = errors.New("a part was lost while the rest was waited for")

// enterWith takes what belongs to the lock while next, the place at the head of the queue,
// is held. So nobody has got a lock with a higher token than that of next before. It
// looks at next last, since a process may be stopped for longer than its lease between
// any two steps.
//
// If next is lost, the waiting ends: two writers that each hold some of the slots and
// wait for the others would do so for ever.
func enterWith(ctx context.Context, next distlock.Lock, c call, take func(context.Context, call) (distlock.Lock, error)) (distlock.Lock, error) {
	defer c.free(next)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-next.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	lock, err := take(ctx, c)
	if next.Err() != nil {
		if err == nil {
			c.free(lock)
		}
		return nil, errAgain
	}
	if err != nil {
		return nil, err
	}
	return &ordered{lock, c.name, next.Token()}, nil
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
func (s slots) share(ctx context.Context, c call) (distlock.Lock, error) {
	lock, _, err := s.tryAny(ctx, c)
	if c.waitsFor(ctx, err) {
		tried := err
		lock, _, err = s.waitAny(ctx, c)
		err = adding(err, tried, distlock.ErrHeld)
	}
	return lock, err
}

// exclude takes all slots.
func (s slots) exclude(ctx context.Context, c call) (distlock.Lock, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := s.each(c.name, func(name string) (distlock.Lock, error) { return c.take(ctx, name, c.opts...) })
	set := &LockSet{locks: make(map[string]distlock.Lock, s.n), done: make(chan struct{})}
	for i := range s.n {
		got := <-outcomes
		if got.err != nil {
			cancel()
			c.giveBack(outcomes, s.n-1-i)
			c.free(&all{set})
			return nil, got.err
		}
		set.locks[s.name(c.name, got.slot)] = got.lock
	}
	for _, lock := range set.locks {
		go set.watch(lock)
	}
	if set.Err() != nil {
		c.free(&all{set})
		return nil, errAgain
	}
	go func() { // one that has lost a slot is no writer any more, also if nobody unlocks it
		if <-set.done; errors.Is(set.Err(), distlock.ErrLost) {
			_ = set.Unlock(context.Background())
		}
	}()
	return &all{set}, nil
}

// all is a write lock: one that holds all slots.
type all struct{ *LockSet }

// Name implements Lock; ordered knows the name and the token.
func (a *all) Name() string { return "" }

// Token implements Lock.
func (a *all) Token() int64 { return 0 }

// Extend implements Lock.
func (a *all) Extend(ctx context.Context, ttl time.Duration) error {
	mustHaveContext("extend", ctx)
	return sideBySide(a.locks, func(_ string, lock distlock.Lock) error { return lock.Extend(ctx, ttl) })
}
