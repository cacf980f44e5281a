package driver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// queues holds the goroutines of this process that wait for a name, per name, first
// come, first served. Only the first in a queue makes a claim, so a process has one
// waiter per name in the store, however many goroutines wait.
//
// A queue is for candidates only. Its first goroutine leaves it with the lock, and
// the next one makes its claim and waits in the store, behind the holder and in its
// order among the other processes.
type queues struct {
	mu     sync.Mutex
	byName map[string]*queue
	length int    // of all queues
	spare  *queue // the last one that ended: most names have one waiter, for a moment
}

type queue struct {
	front, back *waiter
	refusal     error     // what the store has told a first waiter last; nil until it has refused one
	refused     time.Time // when
	trouble     error     // why a look of the first waiter has failed since; nil if none has
	troubled    time.Time // when the first of those has failed
	outdated    bool      // the refused waiter has left
}

// waiter is one goroutine in a queue.
type waiter struct {
	name       string
	queue      *queue
	prev, next *waiter
	first      chan struct{} // closed when the waiter has become the first; nil if it was from the start
}

// join adds a waiter at the end of the queue for name.
func (qs *queues) join(name string) *waiter {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byName[name]
	if q == nil {
		if qs.byName == nil {
			qs.byName = make(map[string]*queue)
		}
		if q = qs.spare; q == nil {
			q = new(queue)
		}
		qs.spare = nil
		qs.byName[name] = q
	}
	qs.length++
	w := &waiter{name: name, queue: q, prev: q.back}
	if w.prev == nil {
		q.front = w
	} else {
		w.prev.next = w
		w.first = make(chan struct{})
	}
	q.back = w
	return w
}

// leave removes w, so that the next waiter comes forward. A grant ends all trouble.
func (qs *queues) leave(w *waiter, granted bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.length--
	q := w.queue
	if granted {
		q.trouble = nil
	}
	if w.next == nil {
		q.back = w.prev
	} else {
		w.next.prev = w.prev
	}
	if w.prev != nil {
		w.prev.next = w.next
		return
	}
	q.front = w.next
	// What the store told the old first may no longer be so.
	q.outdated = true
	if q.front == nil {
		q.refusal, q.trouble = nil, nil
		delete(qs.byName, w.name)
		qs.spare = q
		return
	}
	close(q.front.first)
}

// wait blocks until w is the first of its queue.
func (w *waiter) wait(ctx context.Context, quit <-chan struct{}) error {
	if w.first == nil {
		return nil
	}
	select {
	case <-w.first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-quit:
		return distlock.ErrClosed
	}
}

// refuse notes that the store has told w, the first of its queue, that the name is
// held.
func (qs *queues) refuse(w *waiter, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w.queue.refusal, w.queue.refused, w.queue.trouble, w.queue.outdated = err, time.Now(), nil, false
}

// fail notes that w, the first of its queue, goes on although its look has failed.
func (qs *queues) fail(w *waiter, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := w.queue
	if q.trouble == nil {
		q.troubled = time.Now()
	}
	q.trouble = err
}

// troubleSince returns when the first look at the name of w has failed, of those that no answer
// has followed; now if none has.
func (qs *queues) troubleSince(w *waiter) time.Time {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.queue.trouble == nil {
		return time.Now()
	}
	return w.queue.troubled
}

// freshRefusal is for how long a TryLock believes what the store has told a waiter of this process.
const freshRefusal = 100 * time.Millisecond

// refusal returns the ErrHeld that the first in the queue for name was told a moment ago, or
// nil. Then it is not known whether the name is held, however long the queue: the backend
// may be down, and only the store may say ErrHeld.
func (qs *queues) refusal(name string) error {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byName[name]
	if q == nil || q.refusal == nil || q.trouble != nil || q.outdated || time.Since(q.refused) > freshRefusal {
		return nil
	}
	return q.heldError()
}

// seen returns the ErrHeld that the queue of w was told after since, and why a look has failed
// since then, or nil. What a first waiter was told before counts while that waiter is there.
func (qs *queues) seen(w *waiter, since time.Time) error {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := w.queue
	if q.refusal == nil || q.outdated && q.refused.Before(since) {
		return q.trouble
	}
	if q.trouble != nil {
		return &joined{q.heldError(), fmt.Errorf("since then: %w", q.trouble)}
	}
	return q.heldError()
}

// heldError is the refusal with what is left of the lease by now. The name may have passed to
// another since, which a waiter further back in the queue of the store is not told: so it names
// no holder.
func (q *queue) heldError() error {
	held := heldOf(q.refusal)
	held.Remaining = max(held.Remaining-time.Since(q.refused), 0)
	held.Holder, held.Token = "", 0
	return &held
}
