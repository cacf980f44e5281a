package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/distlock-go/distlock"
)

// unlockPatience bounds Unlock where its context does not. If the outcome is not known
// by then, the backend is in trouble, and the release goes on without the caller.
const unlockPatience = 5 * time.Second

// release is the removal of a claim from the store, once its lock has ended here. It begins with Unlock or Close, once a lost lock has
// had its TTL, or with the undo of a failed attempt. Unlock makes the first call to Release on the goroutine of its caller; all other
// calls are made in lanes, until the outcome is definite or the release is over its time.
type release struct {
	client   *Client
	claim    Claim
	name     string
	handle   *Handle         // nil if it is the claim of a failed attempt
	record   *record         // of that; else nil
	ctx      context.Context // the values of the call that it comes from
	deadline instant         // until then the claim was known to be the holder
	patience time.Duration
	began    time.Time
	refused  error // of the last call, if the store has refused it for good; guarded by the mutex of the handle, as is waits
	waits    bool  // for the answer to a renewal
	calls    int
	retry    Retry
	at       instant // when it was queued
	turn     int     // in a queue the fewest calls come first
	health   health  // of the claim
	repeated bool    // a Release that may have been applied came before

	done chan struct{} // closed when the outcome is known
	err  error         // of the last call; the outcome once done is closed
}

// Unlock implements Lock.
func (h *Handle) Unlock(ctx context.Context) error {
	mustHaveContext(ctx, "unlock") // while the lock is held, and can be unlocked again
	// Before the release begins: Close leaves it to this call then.
	h.client.tasks.begin()
	defer h.client.tasks.finished()
	h.end()
	began := time.Now()
	h.mu.Lock()
	r, first := h.beginRelease(ctx)
	h.mu.Unlock()
	if first {
		r.now(ctx)
	}
	if err := r.wait(ctx, unlockPatience-time.Since(began)); err != nil {
		return opError("unlock", h.name, err)
	}
	return nil
}

// end ends the lock here, and with it all renewals, before any release is
// sent.
func (h *Handle) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endHeld()
}

// endHeld ends the lock here, and reports whether it was held until now. h.mu is held.
func (h *Handle) endHeld() bool {
	h.checkDeadline()
	if h.cause != nil {
		return false
	}
	h.setEnded(distlock.ErrUnlocked)
	return true
}

// beginRelease returns the release of a lock that has ended, and whether it begins by this call; then the
// caller must see to its calls. h.mu is held.
func (h *Handle) beginRelease(ctx context.Context) (r *release, first bool) {
	if first = h.release == nil; first {
		left := h.expired.sub(h.client.now())
		h.release = &release{
			client: h.client, claim: h.claim, name: h.name, handle: h, ctx: ctx,
			deadline: h.deadline, patience: max(left, h.longest) + h.client.caps.ExpiryLag, began: time.Now(),
			health: healthOf(h.lastErr, 0, false), done: make(chan struct{}),
		}
	}
	return h.release, first
}

// undo removes what a failed attempt may have left: a waiter in the store's queue, or a grant that
// came too late. It was never known to be the holder. A store that has just answered mostly does so
// again in undoGrace: then nothing is left when the call returns.
func (a *attempt) undo() {
	c := a.client
	r := &release{
		client: c, claim: a.claim, name: a.request.Name, record: a.record, ctx: context.WithoutCancel(a.ctx),
		patience: a.request.TTL + c.caps.ExpiryLag, began: time.Now(), health: a.health, done: make(chan struct{}),
	}
	c.lanes.add(r)
	if a.health == sound {
		await(context.Background(), r.done, undoGrace)
	}
}

// now makes the first call on the caller's goroutine, and leaves the rest to the background if
// that does not settle it. A lost lock is released in the background: what its
// Unlock returns is known.
func (r *release) now(ctx context.Context) {
	h := r.handle
	h.mu.Lock()
	lost, renewing := errors.Is(h.cause, distlock.ErrLost), h.renewing
	h.mu.Unlock()
	asks := !lost && ctx.Err() == nil && (renewing == nil || await(ctx, renewing, unlockPatience))
	if asks && r.call(ctx, unlockPatience-time.Since(r.began), false) {
		r.finish()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r.later()
}

// later leaves the calls to the lanes, after the answer to a renewal under way: the methods of a
// claim are called one at a time. That answer has no bound but Close: after a stop of the
// process, a timer would be as fast as the answer. The mutex of the handle is held.
func (r *release) later() {
	if r.waits = r.handle.renewing != nil; !r.waits {
		r.ctx = context.WithoutCancel(r.ctx)
		r.client.lanes.add(r)
	}
}

// releaseLater releases a lock that has ended in the background.
func (h *Handle) releaseLater(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, first := h.beginRelease(ctx); first {
		r.later()
	}
}

// over reports whether a dead holder's entry would have expired by now. One that lives by a shared session would not:
// each release has one call at least.
func (r *release) over() bool { return time.Since(r.began) >= r.patience }

// call makes one call to Release, and reports whether it need not be repeated.
func (r *release) call(ctx context.Context, limit time.Duration, inLane bool) (done bool) {
	c := r.client
	bounded := c.call(ctx, c.tasks.life, limit)
	defer bounded.end()
	r.calls++
	var sent time.Time
	err := Insist(bounded, func() error {
		sent = time.Now()
		return r.ask(bounded)
	})
	fate := FateOf(err)
	if inLane && (err == nil || errors.Is(err, distlock.ErrLost)) { // as all of Close are
		c.released.Store(int64(c.now()))
	}
	switch r.err = bounded.explain(err); {
	case r.err == nil:
		return true
	case errors.Is(r.err, distlock.ErrLost) && r.repeated:
		// The entry is gone. It was there, and ours, when the first request went out:
		// so it has freed it, and its reply was lost.
		r.err = nil
		return true
	case errors.Is(r.err, distlock.ErrLost) || errors.Is(r.err, distlock.ErrClosed):
		return true // the client library will never answer otherwise
	}
	r.repeated = r.repeated || fate == Unknown && c.instant(sent) < r.deadline
	r.health = healthOf(r.err, time.Since(sent), bounded.Err() != nil)
	if fate == Answered {
		r.retry.First = mostRetry // a right may be given back, but not in a moment
	}
	if h := r.handle; h != nil {
		h.mu.Lock()
		h.noteFailure(r.err)
		if r.refused = nil; fate == Answered {
			r.refused = r.err
		}
		h.mu.Unlock()
	}
	return r.over()
}

// ask calls Release.
func (r *release) ask(ctx context.Context) error {
	return r.client.guard(ctx, r.name, func() error { return r.claim.Release(ctx) })
}

// drop ends a release that is over its time, or that Close does not wait for.
func (r *release) drop() {
	if r.calls == 0 {
		r.err = fmt.Errorf("%w to earlier releases", &NoAnswer{From: r.client.caps.Backend, After: time.Since(r.began)})
	}
	if r.handle == nil && !r.over() { // Close does not wait for it; of a lock, the handle tells
		r.client.notUndone(r.err)
	}
	r.finish()
}

// finish notes the outcome, and then tells of it: those that are told may be slow. If the release is given up, it makes a
// last call before, on a context that has ended: the driver learns that nothing else will come.
func (r *release) finish() {
	c, h, err, took := r.client, r.handle, r.err, time.Since(r.began)
	var token int64
	var lost *lostError // if nobody has known until now
	known := false      // nobody is told of the loss a second time
	gone := errors.Is(err, distlock.ErrLost)
	switch {
	case gone:
		r.err = nil // an attempt that failed, or a term that was over
	case err != nil && !errors.Is(err, distlock.ErrClosed):
		ended, cancel := context.WithCancel(r.ctx)
		cancel()
		_ = r.ask(ended)
	}
	if h == nil {
		c.names.end(r.record, err == nil)
		close(r.done)
	} else {
		h.mu.Lock()
		token = h.token
		if known = errors.Is(h.cause, distlock.ErrLost); known {
			r.err = distlock.ErrLost
		} else if gone && !h.kept {
			lost = &lostError{lossGone, h.lastErr}
			r.err = lost
		}
		h.mu.Unlock()
		close(r.done)
		c.forget(h)
	}
	if err != nil && !gone {
		c.log(r.ctx, slog.LevelWarn, "release failed; what is left ends with its TTL", r.name, token, err)
	}
	o := c.opts.Observer
	switch {
	case known:
	case lost != nil:
		h.tellLoss(r.ctx, "unlock", lost)
	case h == nil:
		if o.CleanedUp != nil {
			o.CleanedUp(distlock.CleanedUp{Ctx: r.ctx, Name: r.name, Took: took, Err: r.err})
		}
	default:
		if r.err == nil {
			c.log(r.ctx, slog.LevelDebug, "lock released", r.name, token, nil)
		}
		r.tellReleased(took, r.err)
	}
}

// tellReleased tells the Observer of the outcome.
func (r *release) tellReleased(took time.Duration, err error) {
	if f := r.client.opts.Observer.Released; f != nil {
		h := r.handle
		f(distlock.Released{Ctx: r.ctx, Name: r.name, Token: h.Token(), Held: r.client.instant(r.began).sub(h.granted), Took: took, Err: err})
	}
}

// wait returns the outcome to Unlock. It does not wait where the lock was lost, nor where the store has refused
// for good: the background goes on, since a right may be given back.
func (r *release) wait(ctx context.Context, patience time.Duration) error {
	h := r.handle
	if cause := h.ended(); errors.Is(cause, distlock.ErrLost) {
		return cause
	}
	h.mu.Lock()
	refused := r.refused
	h.mu.Unlock()
	switch {
	case refused != nil && !await(ctx, r.done, 0):
		return refused
	case await(ctx, r.done, patience):
		return r.err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return withReason(err, h.lastErr)
	}
	return &NoAnswer{From: h.client.caps.Backend, After: unlockPatience, Last: h.lastErr}
}

// unreleased returns why the entry may still be in the store, once Close has waited for the release. An entry
// that has ended by itself blocks nobody.
func (h *Handle) unreleased() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	select {
	case <-h.release.done:
		err = h.release.err
	default:
		err = &NoAnswer{From: h.client.caps.Backend, After: closePatience}
	}
	if errors.Is(err, distlock.ErrLost) || h.client.now() >= h.expired.add(h.client.caps.ExpiryLag) {
		return nil
	}
	return err
}
