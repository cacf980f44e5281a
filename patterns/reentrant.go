package patterns

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// WithOwner returns a context that stands for one owner: locks taken through a
// [Reentrant] Locker with it, or with a context derived from it, belong together. Call it
// where a unit of work begins. Goroutines that share the context share the locks, and are
// not kept apart by them.
func WithOwner(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{}, &owner{holds: make(map[ownedName]*hold)})
}

// Reentrant returns a Locker that lets an owner take a name again that it holds
// already, as the locks of Redisson and Curator do. Holds are counted: the name is
// free when each of the locks returned has been unlocked. The context names the
// owner, see [WithOwner]; a context without one fails with ErrInvalid.
//
// The options of the first hold apply; those of further ones are ignored. All holds
// share one token, one deadline and one loss: the next call takes a name anew that
// was lost. A call that finds its owner taking the name already, in another goroutine,
// waits for the outcome, also a TryLock; if that one gives up, it asks anew, behind those
// that wait. Close closes l.
func Reentrant(l distlock.Locker) distlock.Locker {
	mustHave("reentrant", l)
	r := &wrapper{Locker: l}
	r.acquire = func(ctx context.Context, c call) (distlock.Lock, error) { return enter(ctx, r, c) }
	return r
}

type ownerKey struct{}

// owner is a unit of work and what it holds, by Locker and name.
type owner struct {
	mu    sync.Mutex
	holds map[ownedName]*hold
}

type ownedName struct {
	locker *wrapper
	name   string
}

// hold is one lock in the store, shared by count locks of one owner.
type hold struct {
	ready chan struct{} // closed when lock or err is set
	lock  distlock.Lock
	err   error
	count int // guarded by owner.mu, and so is membership in owner.holds
}

// enter joins what the owner holds, or takes it.
func enter(ctx context.Context, r *wrapper, c call) (distlock.Lock, error) {
	if ctx == nil {
		panic("distlock: " + c.op + " of a nil context: WithOwner makes one with an owner")
	}
	o, ok := ctx.Value(ownerKey{}).(*owner)
	if !ok {
		return nil, c.invalid("the context has no owner; make one with WithOwner")
	}
	if err := ctx.Err(); err != nil {
		return nil, opError(c.op, c.name, err)
	}
	key := ownedName{r, c.name}
	for {
		h, first := o.join(key)
		if first {
			h.fill(func() (distlock.Lock, error) { return c.take(ctx, c.name, c.opts...) }) // bounded by ctx, and its error says more than that of ctx
		} else {
			select {
			case <-h.ready:
			case <-ctx.Done():
				o.abandon(ctx, key, h)
				return nil, opError(c.op, c.name, ctx.Err())
			}
		}
		if h.err == nil {
			return newCounted(o, key, h), nil
		}
		o.leave(key, h) // nothing is held
		if first {
			return nil, h.err
		}
		// It failed for reasons of the goroutine that took it: its context, its
		// options. Ours may be better.
	}
}

// join finds the living hold of key, or begins one: then first is true.
func (o *owner) join(key ownedName) (h *hold, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h = o.holds[key]; h != nil && h.alive() {
		h.count++
		return h, false
	}
	h = &hold{ready: make(chan struct{}), count: 1}
	o.holds[key] = h
	return h, true
}

// fill takes the lock. If that panics, in an option of the caller's, the goroutines
// that have joined meanwhile must not wait for ever.
func (h *hold) fill(take func() (distlock.Lock, error)) {
	defer close(h.ready)
	h.err = errPanicked
	h.lock, h.err = take()
}

// errPanicked is never returned: a goroutine that sees it takes the lock anew.
var errPanicked = errors.New("the call that was taking the lock has panicked")

// alive reports whether the hold may still be joined.
func (h *hold) alive() bool {
	select {
	case <-h.ready:
		return h.err == nil && h.lock.Err() == nil
	default:
		return true // being taken
	}
}

// leave gives up one share, and reports whether it was the last: then the lock in the
// store is to be unlocked.
func (o *owner) leave(key ownedName, h *hold) (last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h.count--
	if h.count == 0 && o.holds[key] == h {
		delete(o.holds, key)
	}
	return h.count == 0
}

// abandon gives up a share in a lock that another goroutine is still taking.
func (o *owner) abandon(ctx context.Context, key ownedName, h *hold) {
	if !o.leave(key, h) {
		return // the goroutine that takes it, or another, has a share
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		<-h.ready // closed by now: the last share has gone after that of the goroutine that took it
		if h.err == nil {
			_ = h.lock.Unlock(ctx)
		}
	}()
}

// counted is one share of a hold.
type counted struct {
	localLock
	owner *owner
	key   ownedName
	hold  *hold
	stop  chan struct{}

	unlock sync.Once
	before error // of the lock, when this share ended; set by unlock, as is last
	last   bool  // the lock ends with this share
}

func newCounted(o *owner, key ownedName, h *hold) *counted {
	c := &counted{localLock: newLocalLock(h.lock), owner: o, key: key, hold: h, stop: make(chan struct{})}
	go c.watch()
	return c
}

// watch ends the share when the lock under it is lost.
func (c *counted) watch() {
	select {
	case <-c.Lock.Done():
		c.end(c.Lock.Err())
	case <-c.stop:
	}
}

// Unlock implements Lock. It returns nil if other shares remain and the lock is
// held. Each call of the last share waits for the release by itself, as long as its own
// context allows.
func (c *counted) Unlock(ctx context.Context) error {
	c.unlock.Do(func() {
		c.before = c.Lock.Err()
		c.end(opError("lock", c.Name(), distlock.ErrUnlocked))
		close(c.stop)
		c.last = c.owner.leave(c.key, c.hold)
	})
	var err error
	if c.last {
		err = c.Lock.Unlock(ctx)
	}
	if err == nil && errors.Is(c.before, distlock.ErrLost) {
		err = c.before
	}
	return err
}

// Extend implements Lock.
func (c *counted) Extend(ctx context.Context, ttl time.Duration) error {
	if err := c.Err(); err != nil {
		return err
	}
	return c.Lock.Extend(ctx, ttl)
}
