package driver

import (
	"context"
	"errors"
	"time"
)

const (
	// maxOutlast is how long a waiter goes on at the most after the store has told it last
	// that the name is held, and maxNotNow how long a first Lock is tried at a store that
	// answers "not now". Neither goes on for longer than its TTL.
	maxOutlast = time.Minute
	maxNotNow  = 10 * time.Second
)

// stopped is the error of a call that over ends: with what the queue was told of a holder, and why the
// store could not be asked. last is the error of the call's own last request.
func (a *attempt) stopped(over, last error) error {
	return withReason(over, a.client.names.seen(a.record, a.start, a.reason(over, last)))
}

// reason is what the store has said last, or why it could not be asked, or that it has said nothing by the caller's deadline;
// nil if it was not asked. An Unknown is left out: the end of the context may have caused it. Then the answer before counts.
func (a *attempt) reason(over, last error) error {
	if FateOf(last) == Unknown {
		last = a.before
	}
	if last != nil || a.wasHeld || a.tries == 0 || a.answered || !errors.Is(over, context.DeadlineExceeded) {
		return last
	}
	return &NoAnswer{From: a.client.caps.Backend, After: time.Since(a.start)}
}

// outlasts reports whether the call goes on after err, once it is time to ask again: a waiter does unless
// the store has refused it for good, a first Lock if the store answers "not now", each for a while.
func (a *attempt) outlasts(err error) bool {
	if fate := FateOf(err); fate == Answered || !a.wasHeld && fate != NotNow {
		a.client.names.noteSilence(a.record, a.silence(err))
		return false
	}
	since := a.client.names.noteFailure(a.record, err)
	if a.giveUpAt.IsZero() {
		// Counted from the first such answer to the queue: else each caller in it would go on
		// for that long, one after another, and they would pile up.
		a.giveUpAt = since.Add(min(a.request.TTL, maxNotNow))
	}
	ctx, cancel := context.WithDeadline(a.ctx, a.giveUpAt)
	defer cancel()
	defer context.AfterFunc(a.client.life, cancel)()
	return a.retry.Pause(ctx) == nil || a.over() != nil
}

// silence is what the last look, which failed with err, says of the next: nothing if it has asked nothing, the store has
// answered any of its requests, or a connection broke, which others need not meet.
func (a *attempt) silence(err error) silence {
	none, ok := errors.AsType[*NoAnswer](err)
	if !ok || none.Last != nil || a.wasHeld || a.answered || a.tries == 0 {
		return silence{}
	}
	return silence{err: err, began: a.lookedAt, limit: min(a.limit(), time.Since(a.lookedAt))}
}
