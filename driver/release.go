package driver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/distlock-go/distlock"
)

// unlockPatience bounds Unlock where its context does not. If the outcome is not known
// by then, the backend is in trouble, and the release goes on without the caller.
const unlockPatience = 5 * time.Second

// Unlock implements Lock.
func (h *Handle) Unlock(ctx context.Context) error {
	h.end()
	began := time.Now()
	r, released := h.beginRelease()
	if r != nil {
		if err := h.releaseNow(ctx, r); err != nil {
			return opError("unlock", h.name, err)
		}
	}
	if err := h.awaitRelease(ctx, released, unlockPatience-time.Since(began)); err != nil {
		return opError("unlock", h.name, err)
	}
	return nil
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

// leave ends the belief in a lock that is kept on Close, and reports whether it is.
func (h *Handle) leave() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.kept || h.cause != nil || h.released != nil {
		return false
	}
	h.setEnded(distlock.ErrUnlocked)
	h.released = make(chan struct{})
	close(h.released)
	return true
}

// end ends the belief in the lock, and with it all renewals, before any release is
// sent.
func (h *Handle) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkDeadline()
	if h.cause == nil {
		h.setEnded(distlock.ErrUnlocked)
	}
}

// beginRelease returns the release of the lock, or nil if it has begun before, and a
// channel, closed when the outcome is known. The lock must have ended.
func (h *Handle) beginRelease() (r *release, released <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released == nil {
		r = h.makeRelease()
	}
	return r, h.released
}

// makeRelease begins the release of the lock; h.mu is held.
func (h *Handle) makeRelease() *release {
	h.released = make(chan struct{})
	left := h.expired.sub(h.client.now())
	r := newRelease(h.client, h.claim, h.name, max(left, h.longest))
	r.handle, r.deadline, r.health = h, h.deadline, healthOf(h.lastErr, 0, false)
	return r
}

// release removes the entry in the background.
func (h *Handle) release(ctx context.Context) {
	if r, _ := h.beginRelease(); r != nil {
		h.releaseLater(ctx, r)
	}
}

func (h *Handle) releaseLater(ctx context.Context, r *release) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.ctx = context.WithoutCancel(ctx)
	h.queueRelease(r)
}

// queueRelease has r run in the background, after the answer to a renewal under way:
// the methods of a claim are called one at a time. That answer has no bound but Close:
// after a stop of the process, a timer would be as fast as the answer, and an entry that
// lives by a session would stay. h.mu is held.
func (h *Handle) queueRelease(r *release) {
	if h.renewing != nil {
		h.queued = r
		return
	}
	h.client.lanes.add(r)
}

// releaseNow calls Release on the caller's goroutine, and goes on in the background if
// that does not settle it. A lost lock is released in the background: what its
// Unlock returns is known. An error is for the caller at once: the store has refused
// for good, though the background goes on.
func (h *Handle) releaseNow(ctx context.Context, r *release) error {
	c := h.client
	c.tasks.begin()
	defer c.tasks.finished()
	settled := false
	defer func() { // also after a panic
		if !settled {
			h.releaseLater(ctx, r)
		}
	}()
	r.ctx = ctx
	lost := errors.Is(h.ended(), distlock.ErrLost)
	if lost || ctx.Err() != nil || !h.awaitRenewal(ctx, unlockPatience) {
		return nil
	}
	if settled = r.try(ctx, unlockPatience-time.Since(r.began)); settled {
		h.endRelease(r)
		return nil
	}
	if FateOf(r.err) == Answered {
		return r.err
	}
	return nil
}

// awaitRenewal waits for the answer to a renewal under way, since the methods of
// a claim are called one at a time. It reports false if ctx or patience ends before.
func (h *Handle) awaitRenewal(ctx context.Context, patience time.Duration) bool {
	h.mu.Lock()
	renewing := h.renewing
	h.mu.Unlock()
	if renewing == nil {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-renewing:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// awaitRelease returns the outcome of the release. It does not wait where the lock was
// lost.
func (h *Handle) awaitRelease(ctx context.Context, released <-chan struct{}, patience time.Duration) error {
	if cause := h.ended(); errors.Is(cause, distlock.ErrLost) {
		return cause
	}
	// A known outcome comes first: a choice at random would hide it from a call with an
	// ended context.
	select {
	case <-released:
		return h.result
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-released:
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		h.mu.Lock()
		defer h.mu.Unlock()
		return &NoAnswer{From: h.client.caps.Backend, After: unlockPatience, Last: h.lastErr}
	}
	return h.result
}

// mayBeHeld reports whether the store may still have the entry of a lock that was not
// released.
func (h *Handle) mayBeHeld() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.client.now() < h.expired.add(h.client.caps.ExpiryLag)
}

// endRelease takes in the outcome of the release and reports it.
func (h *Handle) endRelease(r *release) {
	c, ctx, err := h.client, r.ctx, r.err
	c.logFailure(ctx, h.name, h.token, err)
	h.mu.Lock()
	wasLost, lastErr, kept := errors.Is(h.cause, distlock.ErrLost), h.lastErr, h.kept
	h.mu.Unlock()
	var lost *lostError // if nobody has known until now
	switch {
	case wasLost:
		err = distlock.ErrLost
	case errors.Is(err, distlock.ErrLost) && kept:
		err = nil // its term was over
	case errors.Is(err, distlock.ErrLost):
		lost = &lostError{lossGone, lastErr}
		err = lost
	}
	h.result = err
	close(h.released)
	c.forget(h)
	// Of each lock the observer is told once how it ended: lost or released.
	switch {
	case wasLost:
		return
	case lost != nil:
		h.tellLoss(ctx, "unlock", lost)
		return
	}
	if err == nil {
		c.log(ctx, slog.LevelDebug, "lock released", h.name, h.token, nil)
	}
	if f := c.opts.Observer.Released; f != nil {
		f(distlock.Released{Ctx: ctx, Name: h.name, Token: h.token, Held: h.client.instant(r.began).sub(h.granted), Took: time.Since(r.began), Err: err})
	}
}

// outcome returns the result of the release, if it is final.
func (h *Handle) outcome() error {
	h.mu.Lock()
	released := h.released
	h.mu.Unlock()
	select {
	case <-released:
		return h.result
	default:
		return &NoAnswer{From: h.client.caps.Backend, After: closePatience}
	}
}

// release removes what a claim has in the store: Release is called until the outcome is
// definite. It gives up after patience and the time for which a dead holder's name may
// stay held: by then the store has let go of the entry by itself. An entry that lives by
// a shared session would stay for ever if nothing came back for it.
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
	calls    int
	retry    Retry
	at       instant // of the next call, after a pause; or when it was queued
	turn     int     // in a queue the fewest calls come first
	health   health  // of the claim
	repeated bool    // a Release that may have been applied came before
	err      error
}

func newRelease(c *Client, claim Claim, name string, patience time.Duration) *release {
	return &release{client: c, claim: claim, name: name, ctx: context.Background(), patience: patience + c.caps.ExpiryLag, began: time.Now()}
}

// over reports whether the store has let go of the entry by itself.
func (r *release) over() bool { return time.Since(r.began) >= r.patience }

// try calls Release, and reports whether that need not be repeated.
func (r *release) try(ctx context.Context, limit time.Duration) (done bool) {
	c := r.client
	bounded := c.call(ctx, c.tasks.life, limit)
	defer bounded.end()
	r.calls++
	repeated := r.repeated
	r.repeated = repeated || c.now() < r.deadline // if it panics: it may have been applied
	var sent time.Time
	err := again(bounded, func() error {
		sent = time.Now()
		return r.claim.Release(bounded)
	})
	fate := FateOf(err)
	switch r.err = bounded.explain(err); {
	case r.err == nil:
		return true
	case errors.Is(r.err, distlock.ErrLost) && repeated:
		// The entry is gone. It was there, and ours, when the first request went out:
		// so it has freed it, and its reply was lost.
		r.err = nil
		return true
	case errors.Is(r.err, distlock.ErrLost) || errors.Is(r.err, distlock.ErrClosed):
		return true // the client library will never answer otherwise
	}
	r.repeated = repeated || fate == Unknown && c.instant(sent) < r.deadline
	return r.failed(fate, healthOf(r.err, time.Since(sent), bounded.Err() != nil), r.err)
}

// failed notes that a call of Release has failed, and reports whether it was the last.
func (r *release) failed(fate Fate, health health, err error) (last bool) {
	r.err, r.health = err, health
	if fate == Answered {
		r.retry.First = mostRetry // a right may be given back, but not in a moment
	}
	if h := r.handle; h != nil {
		h.mu.Lock()
		h.noteFailure(err)
		h.mu.Unlock()
	}
	return r.over()
}

// end takes in the outcome, and reports it.
func (r *release) end() {
	if r.handle != nil {
		r.handle.endRelease(r)
		return
	}
	c := r.client
	c.names.end(r.record, r.err == nil)
	c.logFailure(r.ctx, r.name, 0, r.err)
	if errors.Is(r.err, distlock.ErrLost) {
		r.err = nil
	}
	if f := c.opts.Observer.CleanedUp; f != nil {
		f(distlock.CleanedUp{Ctx: r.ctx, Name: r.name, Took: time.Since(r.began), Err: r.err})
	}
}

// logFailure logs that a release gave up.
func (c *Client) logFailure(ctx context.Context, name string, token int64, err error) {
	if err != nil && !errors.Is(err, distlock.ErrLost) {
		c.log(ctx, slog.LevelWarn, "release failed; what is left ends with its TTL", name, token, err)
	}
}

// undo removes, in the background, what a failed attempt may have left: a waiter in
// the store's queue, or a grant that came too late.
func (a *attempt) undo() {
	// Its deadline stays 0: a failed attempt was never known to be the holder.
	r := newRelease(a.client, a.claim, a.request.Name, a.request.TTL)
	r.ctx, r.health, r.record = context.WithoutCancel(a.ctx), a.health, a.record
	a.client.lanes.add(r)
}
