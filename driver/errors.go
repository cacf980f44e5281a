package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// opError names the operation and the lock, once, around whatever went wrong.
func opError(op, name string, err error) error { return &distlock.Error{Op: op, Name: name, Err: err} }

// joined is two facts about one failure, such as "the context ended" and "somebody held
// the name". errors.Join would put them on two lines.
type joined struct{ first, second error }

func (j *joined) Error() string   { return j.first.Error() + ": " + j.second.Error() }
func (j *joined) Unwrap() []error { return []error{j.first, j.second} }

// withHeld adds the refusal that a waiting call was told, if any, to the error of
// its context.
func withHeld(err, refusal error) error {
	if refusal == nil || errors.Is(err, distlock.ErrHeld) || errors.Is(err, distlock.ErrClosed) {
		return err
	}
	return &joined{err, refusal}
}

// asHeld makes sure that errors.As finds a HeldError in an ErrHeld of a driver, with
// the token as users see it.
func (c *Client) asHeld(err error) error {
	if !errors.Is(err, distlock.ErrHeld) {
		return err
	}
	held := heldOf(err)
	if held.Token != 0 {
		var overflow error
		if held.Token, overflow = c.shownToken(held.Token); overflow != nil {
			held.Token = 0
		}
	}
	if _, bare := err.(*HeldError); bare || err == distlock.ErrHeld {
		return &held
	}
	return &detailed{err, &held}
}

// heldOf returns what err says of the holder.
func heldOf(err error) HeldError {
	if held, ok := errors.AsType[*HeldError](err); ok {
		return *held
	}
	return HeldError{}
}

// detailed is an error with a second one for errors.As; its text says nothing of that.
type detailed struct {
	error
	detail error
}

func (d *detailed) Unwrap() []error { return []error{d.detail, d.error} }

// entryGone is why a lock is lost that the store has told us of.
const entryGone = "its entry in the store has expired, was removed or is another's"

// lost says that a lock has ended other than by Unlock, and why.
func lost(why string, cause error) error {
	if cause == nil {
		return fmt.Errorf("%w: %s", distlock.ErrLost, why)
	}
	return fmt.Errorf("%w: %s: %w", distlock.ErrLost, why, cause)
}

// noAnswerError stands for a driver call that did not return in the time it had.
// It deliberately does not match context.DeadlineExceeded: callers would take the
// end of our own bound for the end of their context.
type noAnswerError struct {
	backend string
	after   time.Duration
}

func (e *noAnswerError) Error() string {
	return fmt.Sprintf("no answer from %s within %v", e.backend, e.after)
}

// Timeout reports true, as on net.Error.
func (e *noAnswerError) Timeout() bool { return true }
