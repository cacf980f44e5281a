package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock-go/distlock"
)

// Fate says what a request may have done to the store, once it has failed. It says
// nothing of the answers of a store: ErrHeld and ErrLost are answers, and no faults.
//
// A fate speaks for all that a call of the driver has sent. Where one request of several,
// or one copy of a request that was sent twice, may have been applied, the fate of the
// call is Unknown, whatever the others were told.
//
// The engine decides what follows from a fate, by this table:
// https://github.com/distlock-go/distlock/blob/main/docs/writing-a-driver.md#5-what-a-failed-request-may-have-done
type Fate int

const (
	// Unknown: the request may have been applied, or still be. A connection that broke, an
	// answer that did not come in time, a write of which not all that was asked for is
	// confirmed. It is the fate of an error without a Fault, so a driver that classifies
	// nothing is safe, only slower.
	Unknown Fate = iota

	// NotSent: nothing has reached the store, and nothing will: no connection was to be
	// had, or the context had ended before.
	NotSent

	// Again: the store has changed nothing, or has undone it, for a reason that has nothing
	// to do with the claim, and the same request may succeed at once: a deadlock, a script
	// that the server has forgotten, another server that has the name now, a parent that is
	// missing, a member that does not answer while others do.
	Again

	// NotNow: the store has refused the request before its first write, because of a state
	// that passes: it is read-only, loads its data, has no memory, space, replicas or quorum.
	NotNow

	// Answered: the store has refused the request before its first write, and will refuse
	// it again: a right that is missing, a wrong type, a syntax that it does not know. Its
	// sharpest form is ErrClosed: the client library was closed by its owner.
	Answered
)

// String returns the name of the fate in words: "not sent".
func (f Fate) String() string {
	if f < Unknown || f > Answered {
		return fmt.Sprintf("fate %d", int(f))
	}
	return [...]string{"unknown", "not sent", "again", "not now", "answered"}[f]
}

// Fault is an error of a store or its client library, with its fate. A driver makes it
// in one place, where it sends.
type Fault struct {
	Fate Fate
	Err  error // not nil
}

// Error returns the text of Err: the fate is for the engine.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }

func (f *Fault) fate() Fate { return f.Fate }

// FateOf returns the fate of the call that err comes from: Answered if it matches ErrClosed, or
// is an answer of the store (nil, ErrHeld, ErrLost); else that of the first Fault in it.
// It is Unknown if a NoAnswer comes before that, and of an error that says nothing.
func FateOf(err error) Fate {
	if err == nil || errors.Is(err, distlock.ErrClosed) || errors.Is(err, distlock.ErrHeld) || errors.Is(err, distlock.ErrLost) {
		return Answered
	}
	// A NoAnswer has what was said before it, which says nothing of the request that had no answer.
	if f, ok := errors.AsType[interface {
		error
		fate() Fate
	}](err); ok {
		return f.fate()
	}
	return Unknown
}

// MaxLate is how long after its caller gave it up a request may still arrive at a store, and so how long a store has to
// remember what was released. An operating system keeps sending the rest of a closed socket for a while, about 100 seconds
// on Linux. MaxLate is longer than that.
const MaxLate = 5 * time.Minute

// The pauses of the zero Retry.
const (
	firstRetry = 10 * time.Millisecond
	mostRetry  = time.Second
)

// Retry makes the pauses between the repeats of a request: the first is about First, and
// each is twice the one before it, up to Most. Each is shortened by up to a half, at
// random, so that clients which failed together do not come back together. The zero value
// is ready to use: 10 ms, doubled up to a second. It is not safe for concurrent use.
type Retry struct {
	First, Most time.Duration // 0 means 10 ms, and a second

	next time.Duration
}

// Pause blocks for the next pause. It returns the error of ctx if that has ended, or ends
// meanwhile.
func (r *Retry) Pause(ctx context.Context) error {
	timer := time.NewTimer(r.pause())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// pause returns the length of the next pause.
func (r *Retry) pause() time.Duration {
	first, most := r.First, r.Most
	if first <= 0 {
		first = firstRetry
	}
	if most <= 0 {
		most = mostRetry
	}
	d := min(max(r.next, first), most)
	r.next = min(2*d, most)
	return d/2 + rand.N(d/2+1)
}

// Insist makes a request again, soon, as long as its fate is Again, until ctx ends, and returns what was said last. If the
// request that was then under way had no answer, the error has the answer before, too: that is the reason. The
// engine does so with the calls of a driver; a driver does with the requests that the engine does not see, such as those
// that open it. It is safe for concurrent use.
func Insist(ctx context.Context, request func() error) error {
	var before error
	for retry := (Retry{First: time.Millisecond, Most: 50 * time.Millisecond}); ; {
		err := request()
		switch fate := FateOf(err); {
		case fate == Again && retry.Pause(ctx) == nil:
			before = err
			continue
		case before != nil && ctx.Err() != nil && (fate == NotSent || fate == Unknown):
			return &Fault{fate, &unanswered{err, before}}
		}
		return err
	}
}

// Bounded calls f with a context that ends after limit: a stopped server says nothing, and the caller's context may have no
// end. If f fails because of that, the error is a NoAnswer from what is asked, with what that has said last, if anything. No
// error matches the end of a context unless the caller's has ended.
func Bounded(ctx context.Context, from string, limit time.Duration, f func(context.Context) error) error {
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f(inner)
	switch {
	case err == nil || endOf(ctx) != nil:
		return err
	case inner.Err() == nil:
		return hideEnd(err)
	}
	silent := noAnswer(from, limit, err)
	if fate := FateOf(err); silent.Last == nil && fate != Unknown && fate != NotSent {
		silent.Last = err
	}
	return silent
}

// noAnswer is the end of a bound, in which Insist has failed with err.
func noAnswer(from string, limit time.Duration, err error) *NoAnswer {
	return &NoAnswer{From: from, After: limit, Last: answerBefore(err)}
}

// answerBefore returns what was said before the request that had no answer, if anything.
func answerBefore(err error) error {
	if u, ok := errors.AsType[*unanswered](err); ok {
		return u.before
	}
	return nil
}

// hideEnd wraps err, which is not the end of the caller's context, so that it does not match that. A dial that has timed
// out does, as does a bound of the client library.
func hideEnd(err error) error {
	if isEnd(err) {
		return bounded{err}
	}
	return err
}

func isEnd(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// bounded is an error that matches what the one inside does, but the end of a context.
type bounded struct{ error }

// Is implements what errors.Is asks.
func (b bounded) Is(target error) bool { return !isEnd(target) && errors.Is(b.error, target) }

// As implements what errors.As asks.
func (b bounded) As(target any) bool { return errors.As(b.error, target) }

// unanswered is the error of a request without an answer, and the answer to the same request before.
type unanswered struct{ err, before error }

func (u *unanswered) Error() string {
	return fmt.Sprintf("%v; the answer before was: %v", u.err, u.before)
}
func (u *unanswered) Unwrap() []error { return []error{u.err, u.before} }

// NoAnswer is the end of a bound that the caller has not set: a request, or a call of the
// driver, had no answer in the time that it had. It deliberately does not match
// context.DeadlineExceeded: callers would take it for the end of their own context.
type NoAnswer struct {
	From  string        // what was asked: "redis", an address
	After time.Duration // how long it had
	Last  error         // the last thing that was said before; nil if nothing was
}

// Error implements error.
func (e *NoAnswer) Error() string {
	after := e.After
	if after > time.Millisecond {
		after = after.Round(time.Millisecond)
	}
	text := fmt.Sprintf("no answer from %s within %v", e.From, after)
	if e.Last != nil {
		text += ": the last one was: " + e.Last.Error()
	}
	return text
}

// Unwrap returns what was said before, but for the end of a context in that.
func (e *NoAnswer) Unwrap() error { return hideEnd(e.Last) }

// Timeout reports true, as on net.Error.
func (e *NoAnswer) Timeout() bool { return true }

func (e *NoAnswer) fate() Fate { return Unknown }

var _, _ error = (*Fault)(nil), (*NoAnswer)(nil)
