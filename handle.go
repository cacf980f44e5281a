package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Handle is the Lock of a Client: one acquisition, from its grant to its end. The
// Locks of the driver packages embed it. It is safe for concurrent use. Only a
// Client makes one: the zero value is no lock, and its methods panic.
type Handle struct {
	client  *Client
	bid     *bid
	name    string
	token   int64
	ttl     time.Duration // as asked for; what renewals ask for again
	granted time.Time

	// index and at are the scheduler's, guarded by its mutex.
	at    time.Time
	index int32
	fixed bool // a fixed term: not renewed

	mu       sync.Mutex
	deadline time.Time     // the belief ends here
	expired  time.Time     // the store has let go of the entry by then, if nothing renews it
	due      time.Time     // next renewal; zero if there is none, or one is in flight
	lastErr  error         // of the latest renewal, if it failed
	cause    error         // why it has ended; nil while held
	done     chan struct{} // made when somebody asks for it

	released chan struct{} // made with the release, closed when result is final
	result   error         // of the release; read after released is closed
}

var _ Lock = (*Handle)(nil)

// margin is taken off every lease to get the deadline: clocks of this machine and
// of the store may run apart by a hundredth, far more than any working clock does,
// and the timer that closes Done needs time to fire.
//
// A lease of a few milliseconds keeps three quarters of itself: the shortest TTL
// that is allowed must give a lock.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/100, time.Millisecond), time.Second, ttl/4)
}

// newHandle returns the lock that grant gives, whose Sent is set.
func newHandle(a *attempt, grant Grant) *Handle {
	h := &Handle{
		client:  a.client,
		bid:     a.bid,
		name:    a.request.Name,
		token:   grant.Token,
		ttl:     a.request.TTL,
		fixed:   a.request.NoRenewal,
		granted: time.Now(),
		index:   -1,
	}
	h.apply(grant, grant.Sent)
	return h
}

// apply moves the deadline on. Trust is counted from before the request, never
// from the reply: a reply may be as late as it likes (the leases of Gray and
// Cheriton, 1989; "validity time" in Redlock).
func (h *Handle) apply(g Grant, sent time.Time) {
	if !g.Sent.IsZero() {
		sent = g.Sent
	}
	now := time.Now()
	if d := sent.Add(g.TTL - margin(g.TTL)); d.After(h.deadline) {
		h.deadline = d
	}
	if e := now.Add(g.TTL); e.After(h.expired) {
		h.expired = e
	}
	h.lastErr = nil
	if !h.fixed {
		h.due = now.Add(h.deadline.Sub(now) / 3)
	}
}

// nextEvent is when the scheduler has to look at the lock again: to renew it, or,
// a little before its deadline, to close Done, so that it is closed by then.
func (h *Handle) nextEvent() time.Time {
	last := h.lastMoment()
	if !h.due.IsZero() && h.due.Before(last) {
		return h.due
	}
	return last
}

// lastMoment is when Done is closed if nothing renews the lock: before the
// deadline by what a timer may be late.
func (h *Handle) lastMoment() time.Time { return h.deadline.Add(-margin(h.ttl) / 2) }

// halfPeriod is how much earlier than due a renewal may come, to go with others.
func (h *Handle) halfPeriod() time.Duration { return h.ttl / 6 }

// Name implements Lock.
func (h *Handle) Name() string { return h.name }

// Token implements Lock.
func (h *Handle) Token() int64 { return h.token }

// Deadline implements Lock.
func (h *Handle) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

// Done implements Lock.
func (h *Handle) Done() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkDeadline()
	if h.done == nil {
		h.done = make(chan struct{})
		if h.cause != nil {
			close(h.done)
		}
	}
	return h.done
}

// Err implements Lock.
func (h *Handle) Err() error {
	if err := h.ended(); err != nil {
		return opError("lock", h.name, err)
	}
	return nil
}

// ended returns why the lock has ended, or nil while it is held.
func (h *Handle) ended() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkDeadline()
	return h.cause
}

// checkDeadline ends the lock if its deadline has passed. The scheduler does so in
// time on a machine that runs; after a stop of the whole process the holder's
// first look may come before the scheduler's.
func (h *Handle) checkDeadline() {
	if h.cause == nil && !time.Now().Before(h.deadline) {
		h.setLost(lost("not renewed before its deadline", h.lastErr))
	}
}

// setLost ends the belief; h.mu is held. The client's books are put in order, and
// the observer is told, by a goroutine of their own, since callers hold h.mu.
func (h *Handle) setLost(cause error) {
	h.setEnded(cause)
	h.client.tasks.spawn(func(*worker) { h.afterLoss() })
}

func (h *Handle) setEnded(cause error) {
	h.cause = cause
	h.due = time.Time{}
	if h.done != nil {
		close(h.done)
	}
}

// afterLoss tells of a loss and makes sure that nothing of the lock stays behind.
// Most stores expire the entry by themselves. But one that lives by a shared
// session or lease would stay for as long as that is renewed, and a renewal in
// flight may still prolong what nobody believes in any more. So the entry is
// released, though not before its TTL has passed in full: a fixed term may be
// there precisely to keep others out for that long.
func (h *Handle) afterLoss() {
	c := h.client
	c.opts.Logger.Warn("lock lost", "name", h.name, "token", h.token, "cause", h.cause)
	if f := c.opts.Observer.Lost; f != nil {
		f(Lost{Name: h.name, Token: h.token, Held: time.Since(h.granted), Cause: opError("lock", h.name, h.cause)})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// Unlock may have been faster: then the scheduler has been told to forget it.
	if h.released == nil {
		c.renew.add(h, h.expired)
	}
}

// Extend implements Lock.
func (h *Handle) Extend(ctx context.Context, ttl time.Duration) error {
	if err := h.extend(ctx, ttl); err != nil {
		return opError("extend", h.name, err)
	}
	return nil
}

func (h *Handle) extend(ctx context.Context, ttl time.Duration) error {
	c := h.client
	if err := checkTTL(ttl, c.caps); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// The call that is running may never return, and the lock end meanwhile.
	for {
		taken, passed := h.bid.tryTake()
		if taken {
			break
		}
		select {
		case <-passed:
		case <-h.Done():
			return h.ended()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := h.ended(); err != nil {
		h.bid.pass()
		return err
	}
	left := time.Until(h.Deadline())
	sent := time.Now()
	grant, err := guarded(&c.tasks, c.caps.Backend, ctx, nil, min(left, maxCall), func(ctx *call) (Grant, error) {
		return h.bid.Renew(ctx, ttl)
	}, h.bid.pass)
	return h.renewed(grant, sent, err)
}

// renewed takes in the answer to a renewal and returns what became of it.
func (h *Handle) renewed(g Grant, sent time.Time, err error) error {
	c := h.client
	took := time.Since(sent)
	h.mu.Lock()
	// A confirmation that comes after the deadline confirms what the holder does
	// not believe in any more; it revives nothing.
	h.checkDeadline()
	switch {
	case h.cause != nil:
		err = h.cause
	case errors.Is(err, ErrLost):
		h.setLost(fmt.Errorf("%w: its entry in the store has expired, was removed or is another's", ErrLost))
		err = h.cause
	case err != nil:
		// A failed Extend is not why a fixed term ends, nor is it tried again.
		if !h.fixed {
			h.lastErr = err
			// Tried again soon, and ever sooner as the deadline comes nearer.
			h.due = time.Now().Add(min(time.Until(h.deadline)/4, time.Second))
		}
	default:
		h.apply(g, sent)
	}
	if h.cause == nil {
		c.renew.add(h, h.nextEvent())
	}
	h.mu.Unlock()
	if f := c.opts.Observer.Renewed; f != nil {
		f(Renewed{Name: h.name, Token: h.token, Took: took, Err: err})
	}
	return err
}
