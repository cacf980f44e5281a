package driver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// Handle is the Lock of a Client: one acquisition, from its grant to its end. The
// Locks of the driver packages embed it. It is safe for concurrent use. Only a
// Client makes one: the zero value is no lock, and its methods panic.
type Handle struct {
	client  *Client
	claim   Claim
	name    string
	token   int64
	ttl     time.Duration // as asked for; what renewals ask for again
	granted instant
	origin  context.Context // the values of the call that has acquired it, for the Logger and the Observer

	// index and at are the scheduler's, guarded by its mutex.
	at    instant
	index int32
	fixed bool // a fixed term: not renewed
	kept  bool // Close leaves the entry to its TTL; guarded by mu

	mu       sync.Mutex
	deadline instant       // the local validity of the lease ends here
	early    time.Duration // how long before that Done is closed
	expired  instant       // the store has let go of the entry by then, if nothing renews it
	due      instant       // next renewal; 0 if there is none, or one is in flight
	longest  time.Duration // TTL asked for: also an Extend without an answer may have been applied
	lastErr  error         // of the latest renewal or release, if it failed
	cause    error         // why it has ended; nil while held
	done     chan struct{} // made when somebody asks for it
	renewing chan struct{} // not nil while a renewal or Extend is under way; closed at the answer
	release  *release      // nil before it has begun
}

var _ distlock.Lock = (*Handle)(nil)

// margin is taken off every lease to get the deadline: clocks of this machine and
// of the store may run apart by a hundredth, or by what makes a second of a long lease,
// more than clocks do that nobody corrects; see docs/operations.md. And the timer that
// closes Done needs time to fire.
//
// A lease of a few milliseconds keeps three quarters of itself: the shortest TTL allowed
// must give a lock.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/100, time.Millisecond), time.Second, ttl/4)
}

// newHandle returns the lock that grant gives, asked for after sent. Its Token must be
// the one that users see.
func newHandle(a *attempt, grant Grant, sent time.Time) *Handle {
	h := &Handle{
		client:  a.client,
		claim:   a.claim,
		name:    a.request.Name,
		token:   grant.Token,
		ttl:     a.request.TTL,
		fixed:   a.request.NoRenewal,
		granted: a.client.now(),
		origin:  context.Background(),
		index:   -1,
		longest: a.request.TTL,
	}
	// If nobody is told, the values of a request need not live as long as the lock.
	o := &a.client.opts
	if o.Observer.Lost != nil || o.Observer.Renewed != nil || o.Logger.Enabled(a.ctx, slog.LevelWarn) {
		h.origin = context.WithoutCancel(a.ctx)
	}
	h.apply(grant, h.ttl, sent)
	return h
}

// apply moves the deadline on. The lease counts from before the request was sent, never
// from the reply, which may be late (the leases of Gray and
// Cheriton, 1989; "validity time" in Redlock). Nor does it go beyond what was asked
// for, rounded up: a store that says more is mistaken, such as one with a clock that
// went back.
func (h *Handle) apply(g Grant, asked time.Duration, sent time.Time) {
	if !g.Sent.IsZero() && g.Sent.Before(sent) {
		sent = g.Sent
	}
	ttl := min(g.TTL, asked+h.client.caps.TTLGranularity)
	now := h.client.now()
	if deadline := h.client.instant(sent).add(ttl - margin(ttl)); deadline > h.deadline {
		h.deadline, h.early = deadline, margin(ttl)/2
	}
	h.expired = max(h.expired, now.add(ttl))
	h.lastErr = nil
	switch due := now.add(h.left(now) / 3); {
	case h.fixed:
	case asked >= h.ttl:
		h.due = due
	case h.due != 0: // else a renewal is on its way
		h.due = min(h.due, due) // what an Extend gives may be less than a renewal would, so it puts off none
	}
}

// left is the time for renewals: until the deadline, but never more than the TTL, so that
// an extended lock is renewed as often as before and learns of a loss as soon. h.mu is
// held.
func (h *Handle) left(now instant) time.Duration {
	return min(h.deadline.sub(now), h.ttl)
}

// nextEvent is when the scheduler has to look at the lock again: to renew it, or,
// a little before its deadline, to close Done, so that it is closed by then.
func (h *Handle) nextEvent() instant {
	if h.due == 0 {
		return h.lastMoment()
	}
	return min(h.due, h.lastMoment())
}

// lastMoment is when Done is closed if nothing renews the lock: before the
// deadline by what a timer may be late.
func (h *Handle) lastMoment() instant { return h.deadline.add(-h.early) }

// halfPeriod is how much earlier than due a renewal may come, to go with others.
func (h *Handle) halfPeriod() time.Duration { return h.ttl / 6 }

// Name implements Lock.
func (h *Handle) Name() string { return h.name }

// Token implements Lock.
func (h *Handle) Token() int64 { return h.token }

// StoreToken returns the token as the store has it: without Options.TokenBase. It is
// for drivers with locks that guard writes inside of the store itself.
func (h *Handle) StoreToken() int64 { return h.token - h.client.opts.TokenBase }

// Deadline implements Lock.
func (h *Handle) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.client.time(h.deadline)
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
	if h.cause == nil && h.client.now() >= h.deadline {
		h.setExpired()
	}
}

// setExpired ends a lock at its deadline; h.mu is held.
func (h *Handle) setExpired() {
	if h.fixed {
		h.setLost(lossOverrun, nil)
	} else {
		h.setLost(lossExpired, h.lastErr)
	}
}

// setLost ends the lock here; h.mu is held. The entry is released, though not before its TTL has
// passed in full: a fixed term may be there precisely to keep others out for that long. Most
// stores expire it by themselves, but an entry on a shared session or lease would stay as long as
// the session, and a renewal in flight may still prolong it.
func (h *Handle) setLost(why loss, cause error) {
	if h.kept {
		h.setEnded(distlock.ErrUnlocked) // nobody believes in a record any more: it is no loss
		h.client.renew.add(h, h.expired)
		return
	}
	lost := &lostError{why, cause}
	h.setEnded(lost)
	h.client.renew.add(h, h.expired)
	h.client.lanes.notify(func() { h.tellLoss(h.origin, "lock", lost) })
}

func (h *Handle) setEnded(cause error) {
	h.cause = cause
	h.due = 0
	if h.done != nil {
		close(h.done)
	}
}

// tellLoss reports a loss, found by op, to the logger and the observer.
func (h *Handle) tellLoss(ctx context.Context, op string, lost *lostError) {
	o := &h.client.opts
	h.client.lost.Add(1)
	h.client.log(ctx, slog.LevelWarn, "lock lost", h.name, h.token, lost)
	if f := o.Observer.Lost; f != nil {
		f(distlock.Lost{
			Ctx: ctx, Name: h.name, Token: h.token, Held: h.client.now().sub(h.granted),
			Reason: lost.reason, Cause: opError(op, h.name, lost),
		})
	}
}

// KeepOnClose makes a lock of a fixed term a record, such as that of patterns.OncePer:
// Close leaves its entry in the store, where it ends with its TTL, and its end is no loss
// that is told. Where entries live by a session, as on ZooKeeper, it ends with that all the
// same. Unlock still removes it, before Close.
func (h *Handle) KeepOnClose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = true
}

// Extend implements Lock.
func (h *Handle) Extend(ctx context.Context, ttl time.Duration) error {
	mustHaveContext(ctx, "extend")
	if err := h.extend(ctx, ttl); err != nil {
		return opError("extend", h.name, err)
	}
	return nil
}

func (h *Handle) extend(ctx context.Context, ttl time.Duration) error {
	c := h.client
	// Before a renewal begins: a release in Close waits for its answer.
	c.tasks.begin()
	defer c.tasks.finished()
	ttl, err := c.lease(ttl, h.fixed)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	left := h.deadline.sub(c.now())
	h.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	return withEnd(ctx, Insist(bounded, func() error { return h.extendOnce(ctx, ttl) }))
}

// extendOnce sends one request, once no other renewal of the lock is under way.
func (h *Handle) extendOnce(ctx context.Context, ttl time.Duration) error {
	for {
		busy, err := h.beginRenewal(ttl)
		if err != nil {
			return err
		}
		if busy == nil {
			break
		}
		select {
		case <-busy:
		case <-h.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e := &entry{handle: h, caller: ctx, ttl: ttl}
	h.client.renewAll(ctx, []*entry{e})
	return e.outcome
}

// beginRenewal makes the caller the only one that renews the lock, for ttl, until renewed takes
// the answer. If there is another, it returns a channel, closed when the other has its
// answer. It fails if the lock has ended. So the methods of a claim are called one at a
// time: a release comes after the end of the lock, and waits for the last renewal.
func (h *Handle) beginRenewal(ttl time.Duration) (busy <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkDeadline()
	if h.cause != nil || h.renewing != nil {
		return h.renewing, h.cause
	}
	h.renewing, h.longest = make(chan struct{}), max(h.longest, ttl)
	return nil, nil
}

// renewed reads the answer to a renewal that asked for a TTL at sent. It returns what
// became of it, and how long the lock had left.
func (h *Handle) renewed(g Grant, asked time.Duration, sent time.Time, err error) (left time.Duration, outcome error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.renewing)
	h.renewing = nil
	if h.release != nil && h.release.waits {
		h.release.later()
	}
	left = max(h.deadline.sub(h.client.now()), 0)
	// A confirmation that comes after the deadline confirms what the holder does
	// not believe in any more; it revives nothing.
	h.checkDeadline()
	switch {
	case h.cause != nil:
		err = h.cause
	case errors.Is(err, distlock.ErrLost):
		h.setLost(lossGone, h.lastErr)
		err = h.cause
	case errors.Is(err, distlock.ErrClosed):
		h.setLost(lossClosed, err)
		err = h.cause
	case err != nil:
		// A failed Extend is not why a fixed term ends, nor is it tried again.
		if !h.fixed {
			// An attempt with hardly any time left says nothing of the reason.
			var silent *NoAnswer
			if h.lastErr == nil || !errors.As(err, &silent) {
				h.noteFailure(err)
			}
			now := h.client.now()
			// Soon, and ever sooner as the deadline comes nearer. An attempt that has taken as long as that has waited enough, but
			// for the answers of others in its batch: they go on together.
			left := h.left(now)
			again := max(now.add(min(left/16, busyPause)), h.client.instant(sent).add(min(left/4, time.Second)))
			if FateOf(err) == Again {
				again = now.add(busyPause)
			}
			if h.due == 0 || again < h.due { // an Extend that failed puts off no renewal
				h.due = again
			}
		}
	default:
		h.apply(g, asked, sent)
	}
	if h.cause == nil {
		h.client.renew.add(h, h.nextEvent())
	}
	return left, err
}

// tellRenewal reports the outcome of a renewal to the observer.
func (h *Handle) tellRenewal(e *entry, took time.Duration) {
	c := h.client
	if e.outcome != nil && !errors.Is(e.outcome, distlock.ErrUnlocked) {
		c.failedRenewals.Add(1)
	}
	if f := c.opts.Observer.Renewed; f != nil {
		f(distlock.Renewed{Ctx: e.caller, Name: h.name, Token: h.token, TTL: e.ttl, Took: took, Left: e.left, Err: e.outcome})
	}
}

// noteFailure keeps why a request has failed last, for the errors of later calls. The end of a
// caller's context is no reason: in the error of another call it would look like the end of
// that call's. h.mu is held.
func (h *Handle) noteFailure(err error) {
	if !isEnd(err) {
		h.lastErr = err
	}
}
