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
		h.releaseNow(ctx, r)
	}
	if err := h.awaitRelease(ctx, released, unlockPatience-time.Since(began)); err != nil {
		return opError("unlock", h.name, err)
	}
	return nil
}

// KeepOnClose makes a lock of a fixed term a record, such as that of [distlock.OncePer]:
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
		h.released = make(chan struct{})
		r = newRelease(h.client, h.claim, h.deadline, max(h.expired.sub(h.client.now()), h.longest))
	}
	return r, h.released
}

// release removes the entry in the background, and returns what is closed when the
// outcome is known.
func (h *Handle) release(ctx context.Context) <-chan struct{} {
	r, released := h.beginRelease()
	if r != nil {
		h.releaseLater(ctx, r)
	}
	return released
}

func (h *Handle) releaseLater(ctx context.Context, r *release) {
	c := h.client
	ctx = context.WithoutCancel(ctx)
	c.tasks.spawn(func() {
		// No bound but Close: after a stop of the process, a timer would be as fast as the
		// answer, and an entry that lives by a session would stay.
		if h.awaitRenewal(c.tasks.life, distlock.MaxTTL) {
			r.run(ctx)
		} else {
			r.err = context.Cause(c.tasks.life)
		}
		h.endRelease(ctx, r)
	})
}

// releaseNow calls Release on the caller's goroutine, and goes on in the background if
// that does not settle it. A lost lock is released in the background: what its
// Unlock returns is known.
func (h *Handle) releaseNow(ctx context.Context, r *release) {
	c := h.client
	c.tasks.begin()
	defer c.tasks.finished()
	settled := false
	defer func() { // also after a panic
		if !settled {
			h.releaseLater(ctx, r)
		}
	}()
	lost := errors.Is(h.ended(), distlock.ErrLost)
	if settled = !lost && ctx.Err() == nil && h.awaitRenewal(ctx, unlockPatience) && r.try(ctx, unlockPatience-time.Since(r.began)); settled {
		h.endRelease(ctx, r)
	}
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
		return &NoAnswer{From: h.client.caps.Backend, After: unlockPatience}
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
func (h *Handle) endRelease(ctx context.Context, r *release) {
	c, err := h.client, r.err
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

// release removes what a claim has in the store: it calls Release until the outcome is
// definite. It gives up after patience and the time for which a dead holder's name may
// stay held: by then the store has let go of the entry by itself. An entry that lives by
// a shared session would stay for ever if nothing came back for it.
type release struct {
	client   *Client
	claim    Claim
	deadline instant // until then the claim was known to be the holder
	patience time.Duration
	began    time.Time
	calls    int
	repeated bool // a Release that may have been applied came before
	err      error
}

func newRelease(c *Client, claim Claim, deadline instant, patience time.Duration) *release {
	return &release{client: c, claim: claim, deadline: deadline, patience: patience + c.caps.ExpiryLag, began: time.Now()}
}

// run calls Release until that need not be repeated.
func (r *release) run(ctx context.Context) {
	for r.calls == 0 || r.client.tasks.sleep(afterRelease(r.calls)) {
		if r.try(ctx, maxCall) {
			return
		}
	}
}

// try calls Release once, and reports whether that need not be repeated.
func (r *release) try(ctx context.Context, limit time.Duration) bool {
	c := r.client
	bounded := c.call(ctx, c.tasks.life, limit)
	defer bounded.end()
	r.calls++
	sent := time.Now()
	r.err = bounded.explain(r.claim.Release(bounded))
	switch {
	case r.err == nil:
		return true
	case errors.Is(r.err, distlock.ErrLost) && r.repeated:
		// The entry is gone. It was there, and ours, when the first request went out:
		// so it has freed it, and its reply was lost.
		r.err = nil
		return true
	}
	r.repeated = r.repeated || c.instant(sent) < r.deadline
	final := errors.Is(r.err, distlock.ErrLost) || errors.Is(r.err, distlock.ErrClosed) // the client library will never answer otherwise
	return final || time.Since(r.began) >= r.patience
}

// logFailure logs that a release gave up.
func (c *Client) logFailure(ctx context.Context, name string, token int64, err error) {
	if err != nil && !errors.Is(err, distlock.ErrLost) {
		c.log(ctx, slog.LevelWarn, "release failed; what is left ends with its TTL", name, token, err)
	}
}

// undo removes, in the background, what a failed attempt may have left: a waiter in
// the store's queue, or a grant that came too late.
func (c *Client) undo(ctx context.Context, claim Claim, request Request) {
	ctx = context.WithoutCancel(ctx)
	c.tasks.spawn(func() {
		// A failed attempt was never known to be the holder.
		r := newRelease(c, claim, 0, request.TTL)
		r.run(ctx)
		c.pending.end(request.Name, false)
		c.logFailure(ctx, request.Name, 0, r.err)
		if errors.Is(r.err, distlock.ErrLost) {
			r.err = nil
		}
		if f := c.opts.Observer.CleanedUp; f != nil {
			f(distlock.CleanedUp{Ctx: ctx, Name: request.Name, Took: time.Since(r.began), Err: r.err})
		}
	})
}
