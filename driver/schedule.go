package driver

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"time"
)

const (
	// maxBatch is how many claims one renewal request carries.
	maxBatch = 500

	// maxTake is how many locks are taken from the heap under one hold of its mutex.
	maxTake = 8 * maxBatch

	// renewParallel bounds the renewal calls of one class side by side, so that a hundred
	// thousand locks due at once do not become as many goroutines.
	renewParallel = 16

	// renewShare is the part of the time left for which a call keeps its lane: one that
	// takes longer may hang.
	renewShare = 16

	// busyPause is after how long a lock that was in another call, such as an Extend, is due again.
	busyPause = 20 * time.Millisecond
)

// scheduler renews the locks of one Client and ends them at their deadlines: one timer for
// all of them, over a heap of the times at which something has to happen. It makes no driver
// call itself, so nothing that a driver does can delay the end of a lock.
//
// Lock order: Handle.mu before scheduler.mu, never the other way round.
type scheduler struct {
	client *Client

	mu      sync.Mutex
	events  events
	classes map[class]*lane
	timer   *time.Timer // nil before the first lock
	armed   instant     // what it is set to; 0 if it is not
	stopped bool
}

// class is a set of locks that share batches of renewals. They have about the same time left: a
// batch is bounded by a part of what its most urgent lock has left. Locks that failed their latest
// renewal are kept apart, so that what is stuck in the store delays others once at the most.
type class struct {
	leftLog2 int // of the time left
	failing  bool
}

// atLeast returns the least time that a lock of the class has left.
func (c class) atLeast() time.Duration { return 1 << max(c.leftLog2-1, 0) }

// add sets or moves the time at which h is to be looked at.
func (s *scheduler) add(h *Handle, at instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	h.at = at
	if h.index >= 0 {
		heap.Fix(&s.events, int(h.index))
	} else {
		heap.Push(&s.events, h)
	}
	// A timer set too early costs one look in vain; resetting it for every lock taken and
	// freed would cost more.
	if s.armed == 0 || at < s.armed {
		s.arm(at)
	}
}

// remove makes the scheduler forget h.
func (s *scheduler) remove(h *Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.index >= 0 {
		heap.Remove(&s.events, int(h.index))
	}
}

// stop ends all renewals. Later calls of add do nothing.
func (s *scheduler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// arm sets the timer; s.mu is held.
func (s *scheduler) arm(at instant) {
	s.armed = at
	if d := at.sub(s.client.now()); s.timer == nil {
		s.timer = time.AfterFunc(d, s.run)
	} else {
		s.timer.Reset(d)
	}
}

// run does what is due.
func (s *scheduler) run() {
	s.client.tasks.begin()
	defer s.client.tasks.finished()
	s.dispatch(s.take())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = 0
	if len(s.events) > 0 && !s.stopped {
		s.arm(s.events[0].at)
	}
}

// take removes from the heap what is due. With a due lock go all others due within half a
// period: so locks taken at different times soon renew together, and n locks cost about
// n/500 requests a period instead of n. If more than maxTake are due, the rest follows at once: each
// Lock and Unlock needs the mutex.
func (s *scheduler) take() []*Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*Handle
	now := s.client.now()
	horizon := now
	for len(s.events) > 0 && s.events[0].at <= horizon && len(due) < maxTake {
		h := heap.Pop(&s.events).(*Handle)
		due = append(due, h)
		if !h.fixed {
			horizon = now.add(h.halfPeriod())
		}
	}
	return due
}

// dispatch sorts what was taken: ended locks are cleaned up, locks past their deadline
// end now, the others are renewed or put back.
func (s *scheduler) dispatch(handles []*Handle) {
	due := make(map[class][]*Handle)
	for _, h := range handles {
		if c, ok := s.classify(h); ok {
			due[c] = append(due[c], h)
		}
	}
	for c, handles := range due {
		for batch := range slices.Chunk(handles, maxBatch) {
			s.renew(batch, c)
		}
	}
}

// classify reports whether h is due for a renewal, and its class. Otherwise it does
// what has to be done with h.
func (s *scheduler) classify(h *Handle) (c class, renew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := s.client.now()
	switch {
	case h.release != nil:
		// Taken from the heap before finish could.
	case h.cause != nil && now < h.expired:
		s.add(h, h.expired)
	case h.cause != nil:
		// In the background and a few at a time: a backend that fails loses all its locks at once.
		r, _ := h.beginRelease(context.Background())
		r.later()
	case now >= h.lastMoment():
		h.setExpired()
	case h.due == 0 || now < h.due.add(-h.halfPeriod()):
		s.add(h, h.nextEvent())
	default:
		h.due = 0 // in flight: until the answer, only the deadline counts
		s.add(h, h.nextEvent())
		left := min(h.left(now), 2*maxCall) // more makes no difference to limit
		return class{bits.Len64(uint64(left)), h.lastErr != nil}, true
	}
	return class{}, false
}

// renew sends what is due in one request, as soon as the class has a lane for it.
func (s *scheduler) renew(batch []*Handle, of class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.classes[of]
	if l == nil {
		l = &lane{mu: &s.mu, spawn: s.client.tasks.spawn, free: renewParallel, share: of.atLeast() / renewShare}
		s.classes[of] = l
	}
	l.add(func() bool { s.send(batch); return false })
}

// limit bounds a renewal or an Extend to two thirds of the time left, so that a hanging one leaves time for another. It is as
// much as that because a store may be slow as well: what is given up there has to be done twice, and makes it slower. With half of
// it, a store that was busy for four fifths of its time lost all locks by standing still for a third of their TTL.
func limit(batch []*entry) time.Duration {
	d := 2 * maxCall
	for _, e := range batch {
		h := e.handle
		h.mu.Lock()
		d = min(d, h.left(h.client.now()))
		h.mu.Unlock()
	}
	return max(d*2/3, time.Millisecond)
}

// send renews a batch. A renewal begins only now that its call can go out: Extend and Unlock
// must not wait for a call that itself waits for a lane. What has ended since it was due is passed
// over; what is in an Extend is due again soon.
func (s *scheduler) send(batch []*Handle) {
	var entries []*entry
	for _, h := range batch {
		switch busy, err := h.beginRenewal(h.ttl); {
		case err != nil:
		case busy == nil:
			entries = append(entries, &entry{handle: h, caller: h.origin, ttl: h.ttl})
		default:
			h.mu.Lock()
			h.due = s.client.now().add(busyPause)
			s.add(h, h.nextEvent())
			h.mu.Unlock()
		}
	}
	if len(entries) > 0 {
		s.client.renewAll(context.Background(), entries)
	}
}

// entry is a lock in a batch of renewals.
type entry struct {
	handle  *Handle
	caller  context.Context // of Extend; else of the call that has acquired the lock
	ttl     time.Duration   // asked for
	answer  sync.Once       // also where the driver answers by a copy of the Renewal, on any goroutine
	outcome error           // what became of it
	left    time.Duration   // how long the lock had left then
}

// renewAll renews locks: for an Extend of caller, on its goroutine, or in the background.
func (c *Client) renewAll(caller context.Context, entries []*entry) {
	sent := time.Now()
	c.callRenew(caller, sent, entries)
	took := time.Since(sent)
	// The observer may be slow, so every lock has its answer before.
	for _, e := range entries {
		e.handle.tellRenewal(e, took)
	}
}

var errUnanswered = errors.New("the driver broke its contract: a renewal had no answer")

func (c *Client) callRenew(caller context.Context, sent time.Time, entries []*entry) {
	ctx := c.call(caller, c.calls, limit(entries))
	defer ctx.end()
	batch := make([]Renewal, len(entries))
	for i, e := range entries {
		batch[i] = Renewal{Claim: e.handle.claim, TTL: e.ttl, answered: func(g Grant, err error) {
			e.answer.Do(func() { e.left, e.outcome = e.handle.renewed(g, e.ttl, sent, ctx.explain(err)) })
		}}
	}
	err := cmp.Or(c.guard(ctx, entries[0].handle.name, func() error { c.driver.Renew(ctx, batch); return nil }), errUnanswered)
	for i := range batch {
		batch[i].answered(Grant{}, err)
	}
}

// events is a heap of handles by the time of their next event.
type events []*Handle

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = int32(i), int32(j)
}

// Push implements heap.Interface.
func (e *events) Push(x any) {
	h := x.(*Handle)
	h.index = int32(len(*e))
	*e = append(*e, h)
}

// Pop implements heap.Interface.
func (e *events) Pop() any {
	old := *e
	n := len(old) - 1
	h := old[n]
	old[n] = nil
	*e = old[:n]
	h.index = -1
	return h
}

// instant is a time on the Client's own monotonic clock: nanoseconds since New. It has a
// third of the size of a time.Time, and a lock keeps five. 0 is no time.
type instant time.Duration

// now returns the present instant.
func (c *Client) now() instant { return instant(time.Since(c.began)) }

// instant returns t as the Client counts it.
func (c *Client) instant(t time.Time) instant { return instant(t.Sub(c.began)) }

// time is the reverse of instant. Its wall clock is that of today, whatever was set since New.
func (c *Client) time(i instant) time.Time {
	now := time.Now()
	return now.Add(i.sub(c.instant(now)))
}

func (i instant) add(d time.Duration) instant { return i + instant(d) }
func (i instant) sub(o instant) time.Duration { return time.Duration(i - o) }
