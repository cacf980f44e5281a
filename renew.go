package distlock

import (
	"container/heap"
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"
)

const (
	// maxBatch is how many claims one renewal request carries.
	maxBatch = 500

	// renewParallel bounds the renewal calls in flight, so that a hundred
	// thousand locks due at once do not become as many goroutines.
	renewParallel = 16

	// busyPause is when a lock is looked at again whose claim was in another call.
	busyPause = 20 * time.Millisecond

	// cleanParallel is how many lost locks are released at the same time, and
	// cleanPatience how long one that hangs holds up the others.
	cleanParallel = 16
	cleanPatience = 10 * time.Second
)

// scheduler renews the locks of one Client and ends those that were not renewed
// in time: one goroutine and one timer for all of them, over a heap of the times
// at which something has to happen. It makes no driver call itself, so nothing
// that a driver does can delay the end of a belief.
//
// Lock order: Handle.mu before scheduler.mu, never the other way round.
type scheduler struct {
	client *Client
	slots  chan struct{} // one element per renewal call in flight

	mu       sync.Mutex
	events   events
	ended    []*Handle // lost, and to be released now
	cleaners int       // goroutines that do so
	armed    time.Time // what the timer is set to; zero if it is not
	started  bool
	stopped  bool
	wake     chan struct{} // one element: "armed is too late"; buffered so that add never blocks
	quit     chan struct{}
}

func (s *scheduler) init(c *Client) {
	s.client = c
	s.slots = make(chan struct{}, renewParallel)
	s.wake = make(chan struct{}, 1)
	s.quit = make(chan struct{})
}

// add sets or moves the time at which h is to be looked at.
func (s *scheduler) add(h *Handle, at time.Time) {
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
	if !s.started {
		s.started = true
		s.client.tasks.keepSpare()
		s.client.tasks.spawn(func(*worker) { s.run() })
	}
	// A timer that is set too early costs one look in vain; resetting it for
	// every lock taken and freed would cost more.
	if s.armed.IsZero() || at.Before(s.armed) {
		s.armed = at
		select {
		case s.wake <- struct{}{}:
		default:
		}
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

// stop ends the goroutine. Later calls of add do nothing.
func (s *scheduler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.quit)
	}
}

func (s *scheduler) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.wake:
		case <-timer.C:
		}
		s.dispatch(s.take())
		s.mu.Lock()
		s.armed = time.Time{}
		if len(s.events) > 0 {
			s.armed = s.events[0].at
			timer.Reset(time.Until(s.armed))
		}
		s.mu.Unlock()
	}
}

// take removes from the heap what is due. With a lock that is due for renewal, all
// come along that follow it within half a period: so locks that were taken at
// different times soon renew together, and n locks cost about n/500 requests a
// period instead of n.
func (s *scheduler) take() []*Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*Handle
	now := time.Now()
	horizon := now
	for len(s.events) > 0 && !s.events[0].at.After(horizon) {
		h := heap.Pop(&s.events).(*Handle)
		due = append(due, h)
		if !h.fixed {
			horizon = now.Add(h.halfPeriod())
		}
	}
	return due
}

// dispatch sorts what was taken: locks that have ended are cleaned up, those past
// their deadline end now, the others are renewed or put back.
func (s *scheduler) dispatch(handles []*Handle) {
	size := maxBatch
	if _, ok := s.client.driver.(BatchRenewer); !ok {
		size = len(handles)
	}
	// A batch has the time of the lock that has the least. So those go together
	// whose time left is of the same magnitude, lest a lock that will hardly make
	// it, or has a short lease, take the time of five hundred others.
	batches := make(map[int][]*Handle)
	for _, h := range handles {
		left, ok := s.classify(h)
		if !ok {
			continue
		}
		magnitude := bits.Len64(uint64(left))
		batch := append(batches[magnitude], h)
		if len(batch) == size {
			s.renew(batch)
			batch = nil
		}
		batches[magnitude] = batch
	}
	for _, batch := range batches {
		if len(batch) > 0 {
			s.renew(batch)
		}
	}
}

// classify does what is to be done with h but for a renewal: then it returns true,
// and the time that is left for it.
func (s *scheduler) classify(h *Handle) (left time.Duration, renew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case h.released != nil:
		// Taken from the heap before finishRelease could.
	case h.cause != nil && now.Before(h.expired):
		s.add(h, h.expired)
	case h.cause != nil:
		s.cleanUp(h)
	case !now.Before(h.lastMoment()):
		h.setLost(lost("not renewed before its deadline", h.lastErr))
	case h.due.IsZero() || now.Before(h.due.Add(-h.halfPeriod())):
		s.add(h, h.nextEvent())
	default:
		h.due = time.Time{} // in flight: until the answer, only the deadline counts
		s.add(h, h.nextEvent())
		return h.deadline.Sub(now), true
	}
	return 0, false
}

// cleanUp has the entry of a lost lock removed, in the background and a few at a
// time: a backend that fails loses all its locks at once, and must not get as many
// calls when it is back.
func (s *scheduler) cleanUp(h *Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, h)
	if s.cleaners < cleanParallel {
		s.cleaners++
		s.client.tasks.spawn(func(*worker) { s.clean() })
	}
}

// clean releases lost locks until there is none. What Close finds here it releases
// itself.
func (s *scheduler) clean() {
	for {
		s.mu.Lock()
		if len(s.ended) == 0 || s.stopped {
			s.cleaners--
			s.mu.Unlock()
			return
		}
		h := s.ended[0]
		s.ended[0], s.ended = nil, s.ended[1:]
		s.mu.Unlock()
		released := h.release(context.Background())
		patience := time.NewTimer(cleanPatience)
		select {
		case <-released:
		case <-patience.C:
		case <-s.quit:
		}
		patience.Stop()
	}
}

// renew sends what is due, in goroutines of its own: in one request where the
// driver can do that, and else one by one, from a few goroutines, so that one that
// hangs holds up no other.
func (s *scheduler) renew(batch []*Handle) {
	c := s.client
	if br, ok := c.driver.(BatchRenewer); ok {
		c.tasks.spawn(func(*worker) {
			s.inSlot(func() { s.renewTogether(br, batch) })
		})
		return
	}
	queue := make(chan *Handle, len(batch))
	for _, h := range batch {
		queue <- h
	}
	close(queue)
	for range min(renewParallel, len(batch)) {
		c.tasks.spawn(func(*worker) {
			for h := range queue {
				s.inSlot(func() { s.renewAlone(h) })
			}
		})
	}
}

// inSlot runs f as soon as few enough others are running, unless the Client is
// closed before.
func (s *scheduler) inSlot(f func()) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		f()
	case <-s.quit:
	}
}

// begin takes the turn of h, only now that its call can go out: nobody must wait
// for a turn whose call waits for others. It reports false if h has ended since it
// was due, or is in another call: then it is due again soon.
func (s *scheduler) begin(h *Handle) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkDeadline()
	if h.cause != nil {
		return false
	}
	if taken, _ := h.bid.tryTake(); taken {
		return true
	}
	h.due = time.Now().Add(busyPause)
	s.add(h, h.nextEvent())
	return false
}

// limit bounds a renewal to half the time that is left, so that one that hangs
// leaves time for another.
func limit(batch ...*Handle) time.Duration {
	d := 2 * maxCall
	for _, h := range batch {
		d = min(d, time.Until(h.Deadline()))
	}
	return max(d/2, time.Millisecond)
}

func (s *scheduler) renewTogether(br BatchRenewer, batch []*Handle) {
	batch = slices.DeleteFunc(batch, func(h *Handle) bool { return !s.begin(h) })
	if len(batch) == 0 {
		return
	}
	c := s.client
	sent := time.Now()
	answers, err := guarded(&c.tasks, c.caps.Backend, context.Background(), nil, limit(batch...),
		func(ctx *call) ([]Renewal, error) {
			rs := make([]Renewal, len(batch))
			for i, h := range batch {
				rs[i] = Renewal{Claim: h.bid.Claim, TTL: h.ttl}
			}
			br.RenewBatch(ctx, rs)
			return rs, nil
		}, func() {
			for _, h := range batch {
				h.bid.pass()
			}
		})
	for i, h := range batch {
		if err != nil {
			_ = h.renewed(Grant{}, sent, err) // told by Observer and, in the end, by Done
			continue
		}
		_ = h.renewed(answers[i].Grant, sent, answers[i].Err)
	}
}

func (s *scheduler) renewAlone(h *Handle) {
	if !s.begin(h) {
		return
	}
	c := s.client
	sent := time.Now()
	grant, err := guarded(&c.tasks, c.caps.Backend, context.Background(), nil, limit(h),
		func(ctx *call) (Grant, error) { return h.bid.Renew(ctx, h.ttl) }, h.bid.pass)
	_ = h.renewed(grant, sent, err)
}

// events is a heap of handles by the time of their next event.
type events []*Handle

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
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
