package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/stack"
)

const (
	// maxCall bounds a single call of a driver. Nothing that takes longer is of
	// use to a caller that waits for a lock.
	maxCall = 10 * time.Second

	// callGrace is how much longer than its caller's context a call may take. Most
	// requests under way are answered within that: their outcome is then known, and needs
	// no clean-up.
	callGrace = 20 * time.Millisecond

	// undoGrace is how long a call that has failed waits for its undo: two graces, and what a driver takes at the end of its
	// own context, are less than the 50 ms of the contract (A4).
	undoGrace = 10 * time.Millisecond
)

// call is the context of one call of the driver. The call runs on the caller's goroutine.
// It has the values of the caller's context, for tracing, and an end of its own:
//
//   - callGrace after the caller's context has ended, or Close has been called, or
//   - at its limit, or
//   - for a release, because Close waits for it: when the time of Close is over.
type call struct {
	context.Context // the end
	caller          context.Context
	until           context.Context // of the Client
	cancel          context.CancelFunc
	unhook          func() bool // takes back what waits for the end of caller; nil if that never ends
	limit           time.Duration
	deadline        time.Time
	backend         string
}

// call returns the context of a call. Its end must be called when the call has returned.
func (c *Client) call(caller, until context.Context, limit time.Duration) *call {
	ctx := &call{caller: caller, until: until, limit: limit, deadline: time.Now().Add(limit), backend: c.caps.Backend}
	// Client libraries look at the deadline for how long a socket may be silent.
	if d, ok := caller.Deadline(); ok && d.Add(callGrace).Before(ctx.deadline) {
		ctx.deadline = d.Add(callGrace)
	}
	ctx.Context, ctx.cancel = context.WithDeadline(until, ctx.deadline)
	if caller.Done() != nil {
		ctx.unhook = context.AfterFunc(caller, func() {
			// Else the deadline comes first. It alone must end the call then: on a busy machine two timers that are due
			// may fire in any order, and a driver would see a cancellation where time was over.
			if time.Until(ctx.deadline) > callGrace {
				time.AfterFunc(callGrace, ctx.cancel)
			}
		})
	}
	return ctx
}

// end frees what the context needs.
func (c *call) end() {
	if c.unhook != nil {
		c.unhook()
	}
	c.cancel()
}

// Value implements context.Context. The end is asked first: package context looks
// among the values for the parent that cancels, and must find that one.
func (c *call) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.caller.Value(key)
}

// errClosing is the cause of the end of calls that Close ends. A driver may return the cause of its context, as net/http
// does. It must not match ErrClosed: from a driver that says that the store was not asked, and here it may have been.
var errClosing = errors.New("the Locker is being closed")

// mustHaveContext panics where a caller has passed none.
func mustHaveContext(ctx context.Context, op string) {
	if ctx == nil {
		panic("distlock: " + op + " of a nil context: context.Background() is one that never ends")
	}
}

// endOf returns why a caller's context has ended. Its deadline counts: on a busy machine other
// timers, also later ones, may fire before that of the context. If the wall clock is set
// back, a deadline that has passed may lie ahead again.
func endOf(ctx context.Context) error {
	if d, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// explain returns the error of the call as the caller should see it: an end of ours does
// not look like the end of the caller's context.
func (c *call) explain(err error) error {
	socket := errors.Is(err, os.ErrDeadlineExceeded) // client libraries give it the deadline of the call
	ended := socket || isEnd(err) || errors.Is(err, errClosing)
	end := endOf(c.caller)
	switch {
	case !ended || errors.Is(err, distlock.ErrHeld) || errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrClosed):
		return err
	case end != nil:
		return end
	case errors.Is(context.Cause(c.until), errClosing):
		return distlock.ErrClosed
	case c.until.Err() != nil:
		return context.Cause(c.until)
	case c.Err() != nil || !time.Now().Before(c.deadline): // the client library's timer may be the first
		return &Fault{FateOf(err), noAnswer(c.backend, c.limit, err)}
	case socket: // a shorter bound, which looks like the end of no context
		return err
	}
	// The end of a shorter bound, of the driver or its client library.
	return &Fault{FateOf(err), fmt.Errorf("%s: %v", c.backend, err)}
}

// panicked is a panic that is passed from one goroutine to another.
type panicked struct {
	value any
	stack []byte // of the goroutine that it comes from
}

// asPanic returns what recover has returned, with the stack. It must be called by the
// deferred function.
func asPanic(value any) *panicked {
	if p, ok := value.(*panicked); ok {
		return p
	}
	return &panicked{value, debug.Stack()}
}

// String is what the runtime prints if nobody recovers.
func (p *panicked) String() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

func (p *panicked) err() error { return fmt.Errorf("the driver has panicked: %v", p.value) }

// guard calls a function of the driver. A panic in it must not end the process, and mostly has no caller that could
// recover from it: a call of a user's may be one of many that package patterns makes on goroutines of its own. It is
// returned as an error, and logged beside that, as a handler of the log may hang.
func (c *Client) guard(ctx context.Context, name string, f func() error) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		p := asPanic(v)
		err = p.err()
		c.lanes.notify(func() {
			c.opts.Logger.LogAttrs(ctx, slog.LevelError, "the driver has panicked", slog.String("lock", name),
				slog.String("backend", c.caps.Backend), slog.Any("panic", p.value), slog.String("stack", string(p.stack)))
		})
	}()
	return f()
}

// await blocks until done is closed, which it then reports, or until ctx ends or patience is over.
func await(ctx context.Context, done <-chan struct{}, patience time.Duration) bool {
	// Asked first: a choice at random would hide it from a call with an ended context.
	select {
	case <-done:
		return true
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// Detach runs f in a goroutine of its own and returns its result, or the error of ctx as
// soon as ctx ends. Then f goes on alone, and its result is dropped: so f must not touch
// what its caller goes on to use, such as the fields of a claim.
//
// It is for calls into client libraries that cannot be interrupted. A panic in f is passed on
// to the caller, if that is still there.
func Detach[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value    T
		err      error
		panicked *panicked
	}
	if ctx.Done() == nil {
		return f()
	}
	done := make(chan result, 1) // one element, so that nobody has to be there for the result
	go func() {
		stack.Grow()
		var r result
		defer func() {
			if v := recover(); v != nil {
				r.panicked = asPanic(v)
			}
			done <- r
		}()
		r.value, r.err = f()
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		select {
		case r = <-done: // both may have come while the process stood still
		default:
			return r.value, ctx.Err()
		}
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.value, r.err
}
