package distlock

import (
	"errors"
	"fmt"
	"time"
)

// opError names the operation and the lock, once, around whatever went wrong.
func opError(op, name string, err error) error {
	if name == "" {
		return fmt.Errorf("distlock: %s: %w", op, err)
	}
	return fmt.Errorf("distlock: %s %q: %w", op, name, err)
}

// joined is two facts that are both true of one failure, such as "the context
// ended" and "somebody held the name". errors.Join would put them on two lines.
type joined struct{ first, second error }

func (j *joined) Error() string   { return j.first.Error() + ": " + j.second.Error() }
func (j *joined) Unwrap() []error { return []error{j.first, j.second} }

// withHeld adds ErrHeld to a context's error where the name is known to have been
// held.
func withHeld(err error, held bool) error {
	if !held || errors.Is(err, ErrHeld) || errors.Is(err, ErrClosed) {
		return err
	}
	return &joined{err, ErrHeld}
}

// lost says that a lock has ended other than by Unlock, and why.
func lost(why string, cause error) error {
	if cause == nil {
		return fmt.Errorf("%w: %s", ErrLost, why)
	}
	return fmt.Errorf("%w: %s: %w", ErrLost, why, cause)
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
