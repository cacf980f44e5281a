package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

// opError names the operation and the lock, once, around whatever went wrong.
func opError(op, name string, err error) error { return &distlock.Error{Op: op, Name: name, Err: err} }

// withReason adds to over, the end of a context or ErrClosed, what the call was told before, if anything.
func withReason(over, told error) error {
	if told == nil || errors.Is(over, distlock.ErrClosed) {
		return over
	}
	return fmt.Errorf("%w: %w", over, told)
}

// withEnd adds to the error of a request that was repeated, or had no answer, until the caller's context ended that it has.
func withEnd(caller context.Context, err error) error {
	_, silent := errors.AsType[*NoAnswer](err)
	if end := endOf(caller); end != nil && (silent || FateOf(err) == Again) {
		return fmt.Errorf("%w: %w", end, err)
	}
	return err
}

// errOwn is said to a call about a lock which its own Locker holds. Mostly another
// goroutine has it, but one that waits for itself does so for ever.
var errOwn = errors.New("a lock of this Locker, so another of its calls has it, or the caller itself: locks are not re-entrant; " +
	"see go doc github.com/distlock-go/distlock/patterns.Reentrant")

// asHeld makes an ErrHeld of a driver a Held, in which errors.As finds the HeldError, with the token as users see it.
func (c *Client) asHeld(err error) error {
	if !errors.Is(err, distlock.ErrHeld) {
		return err
	}
	held := heldOf(err) // a copy: the driver's own may be shared
	if held.Token != 0 {
		held.Token, _ = c.shownToken(held.Token) // 0, so not known, if it is too large
	}
	return &held
}

// heldOf returns what err says of the holder.
func heldOf(err error) Held {
	if held, ok := errors.AsType[*Held](err); ok {
		return *held
	}
	if held, ok := errors.AsType[*distlock.HeldError](err); ok {
		return Held{HeldError: *held}
	}
	return Held{}
}

// ownError is an ErrHeld about a lock which its own Locker holds.
type ownError struct{ error }

func (e *ownError) Error() string { return e.error.Error() + "; the holder is " + errOwn.Error() }

// Unwrap returns the error without the advice. Package patterns looks for the method Plain: the lock may be a part of
// something, of which that says nothing.
func (e *ownError) Unwrap() error { return e.error }
func (e *ownError) Plain() error  { return e.error }

// callError is the error of the attempt as its caller gets it: with the cause of the end of its context, and whether a
// lock of this Client is what holds the name.
func (a *attempt) callError(op string, err error) error {
	err = withCause(a.ctx, err)
	if errors.Is(err, distlock.ErrHeld) && a.client.holds(a.request.Name) {
		err = &ownError{err}
	}
	return opError(op, a.request.Name, err)
}

// own are the errors of this library about a call, a lock or a Locker.
var own = []error{distlock.ErrHeld, distlock.ErrLost, distlock.ErrUnlocked, distlock.ErrClosed, distlock.ErrInvalid, distlock.ErrUnsupported}

// withCause adds to the end of a caller's context the cause that it was given. One that would say something of this call, of its
// lock or of the Locker is added as text alone.
func withCause(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && endOf(ctx) != nil {
		await(context.Background(), ctx.Done(), time.Millisecond) // its timer is due, and tells the cause
	}
	cause := context.Cause(ctx)
	switch {
	case cause == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, cause):
		return err
	case slices.ContainsFunc(own, func(said error) bool { return errors.Is(cause, said) }):
		return fmt.Errorf("%w; the cause of its context: %v", err, cause)
	}
	return fmt.Errorf("%w; the cause of its context: %w", err, cause)
}

// loss is a reason why a lock has ended other than by Unlock.
type loss struct {
	reason string // of distlock.Lost
	text   string // of Lock.Err
}

var (
	lossExpired = loss{"expired", "not renewed before its deadline"}
	lossOverrun = loss{"overrun", "its term was over, and it is not renewed"}
	lossGone    = loss{"gone", "its entry in the store has expired, was removed or is another's"}
	lossClosed  = loss{"closed", "the connection that it was held by was closed"}
)

// lostError says that a lock was lost, and why.
type lostError struct {
	loss
	cause error // of the loss if the connection was closed, else of the last request that failed before; or nil
}

func (e *lostError) Error() string {
	text := distlock.ErrLost.Error() + ": " + e.text
	switch {
	case e.cause == nil:
		return text
	case e.loss == lossClosed:
		return text + ": " + e.cause.Error()
	}
	return text + "; the last request that failed before: " + e.cause.Error()
}

func (e *lostError) Unwrap() []error {
	if e.cause == nil {
		return []error{distlock.ErrLost}
	}
	return []error{distlock.ErrLost, e.cause}
}
