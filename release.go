package distlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// unlockPatience bounds Unlock where its context does not: by then either the
	// outcome is known, or the backend is in trouble and the release goes on
	// without the caller.
	unlockPatience = 5 * time.Second

	// A failed release is tried again after releasePause, doubled each time up to
	// maxReleasePause.
	releasePause    = 10 * time.Millisecond
	maxReleasePause = time.Second
)

// Unlock implements Lock.
func (h *Handle) Unlock(ctx context.Context) error {
	h.end()
	if err := h.unlocked(ctx, h.release(ctx)); err != nil {
		return opError("unlock", h.name, err)
	}
	return nil
}

// unlocked waits for the outcome of the release, but never for that of a lock that
// was lost: that is known already.
func (h *Handle) unlocked(ctx context.Context, released <-chan struct{}) error {
	h.mu.Lock()
	cause := h.cause
	h.mu.Unlock()
	if errors.Is(cause, ErrLost) {
		return cause
	}
	// A known outcome comes first: a choice at random would hide it from a call
	// whose context is over.
	select {
	case <-released:
		return h.result
	default:
	}
	patience := h.client.timers.get(unlockPatience)
	defer h.client.timers.put(patience)
	select {
	case <-released:
	case <-ctx.Done():
		return ctx.Err()
	case <-patience.C:
		return &noAnswerError{h.client.caps.Backend, unlockPatience}
	}
	return h.result
}

// end ends the belief in the lock, and with it all renewals, before any release is
// sent.
func (h *Handle) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkDeadline()
	if h.cause == nil {
		h.setEnded(ErrUnlocked)
	}
}

// release starts to remove the entry from the store, unless that has been started
// before, and returns what is closed when the result is final. The lock must have
// ended.
func (h *Handle) release(ctx context.Context) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released == nil {
		h.released = make(chan struct{})
		h.client.tasks.spawn(func(w *worker) { h.finishRelease(ctx, w) })
	}
	return h.released
}

// finishRelease runs the release to its end and reports it.
func (h *Handle) finishRelease(ctx context.Context, w *worker) {
	c := h.client
	began := time.Now()
	// The scheduler must not find the lock again while its entry goes away.
	c.renew.remove(h)
	h.mu.Lock()
	wasLost := errors.Is(h.cause, ErrLost)
	deadline, expired := h.deadline, h.expired
	h.mu.Unlock()

	err := c.free(ctx, w, h.bid, deadline, max(time.Until(expired), h.ttl))
	if wasLost {
		err = ErrLost
	}
	h.result = err
	close(h.released)
	c.forget(h)
	if wasLost {
		return // the observer has been told of the loss
	}
	if f := c.opts.Observer.Released; f != nil {
		f(Released{Name: h.name, Token: h.token, Held: began.Sub(h.granted), Took: time.Since(began), Err: err})
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
		return &noAnswerError{h.client.caps.Backend, closePatience}
	}
}

// free calls Release until the outcome is definite, or for as long as patience
// says, and then for as long as a dead holder's name may stay held: by then the
// store has let go of the entry by itself. It may not have before: an entry that
// lives by a shared session stays for ever if nobody comes back for it. Until
// deadline the claim was known to be the holder.
func (c *Client) free(ctx context.Context, w *worker, b *bid, deadline time.Time, patience time.Duration) error {
	if err := b.take(c.tasks.life); err != nil {
		return &noAnswerError{c.caps.Backend, closePatience}
	}
	defer b.pass()
	began := time.Now()
	repeated := false // a Release that may have been applied came before
	for pause := releasePause; ; pause = min(2*pause, maxReleasePause) {
		sent := time.Now()
		err := c.releaseOnce(ctx, w, b)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrLost) && repeated:
			// The entry is gone. It was ours when the first request went
			// out, whose reply was lost: so it is that one which freed it.
			return nil
		case errors.Is(err, ErrLost):
			return ErrLost
		}
		repeated = repeated || sent.Before(deadline)
		if time.Since(began) >= patience+c.caps.ExpiryLag || !c.tasks.sleep(pause/2+rand.N(pause/2)) {
			c.opts.Logger.Warn("release failed; what is left ends with its TTL", "error", err)
			return err
		}
	}
}

// releaseOnce is not guarded: it runs in a goroutine that nobody depends on, and
// the next call of the claim has to wait for this one anyway.
func (c *Client) releaseOnce(ctx context.Context, w *worker, b *bid) error {
	one := newCall(ctx, maxCall)
	w.begin(one)
	defer w.end(one)
	return one.hides(b.Release(one), c.caps.Backend)
}

// undo removes, in the background, what a failed attempt may have left: a queue
// place, or a grant that nobody wants any more. It begins when the call that is
// still running has returned, however late.
func (c *Client) undo(ctx context.Context, b *bid, r Request) {
	c.tasks.spawn(func(w *worker) {
		began := time.Now()
		err := c.free(ctx, w, b, began, r.TTL) // began: a failed attempt was never the holder
		if errors.Is(err, ErrLost) {
			err = nil
		}
		if f := c.opts.Observer.Undone; f != nil {
			f(Undone{Name: r.Name, Took: time.Since(began), Err: err})
		}
	})
}
