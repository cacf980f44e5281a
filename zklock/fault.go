package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// errGarbled is why an answer of the servers is of no use. What was asked for may be done.
var errGarbled = errors.New("the answer does not fit the request")

// errPlaceLost is why a claim that was in the queue is there no more.
var errPlaceLost = errors.New("the position in the queue is lost")

// codes are answers of the servers for which the library has no value.
const (
	codeUnimplemented = "unknown error: -6"
	codeNotReadOnly   = "unknown error: -119" // a write to a server that has no majority, and serves reads
	codeQuota         = "unknown error: -125"
	codeThrottled     = "unknown error: -127"
)

// answered are the refusals that will be the same the next time. Each comes before the
// first write.
var answered = []error{zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrNodeExists, zk.ErrNoChildrenForEphemerals,
	zk.ErrBadArguments, zk.ErrBadVersion, zk.ErrNotEmpty, distlock.ErrInvalid, errPlaceLost}

// fateOf says what the request may have done that err comes from. The library has an error
// of its own for a broken connection. But if it was just writing a request, it returns the
// error of the connection. After ErrSessionExpired, a node may be left that is about to go.
func fateOf(err error) driver.Fate {
	switch text := err.Error(); {
	case errors.Is(err, zk.ErrNoServer):
		return driver.NotSent // the library has tried all, and fails what is still queued up
	case errors.Is(err, zk.ErrNoNode):
		return driver.Again // the parent
	case text == codeNotReadOnly || text == codeQuota || text == codeThrottled:
		return driver.NotNow
	case text == codeUnimplemented:
		return driver.Answered
	}
	for _, no := range answered {
		if errors.Is(err, no) {
			return driver.Answered
		}
	}
	return driver.Unknown
}

// notSent is the fate of a claim for which there was no session.
func notSent(err error) error {
	if fate := driver.FateOf(err); fate == driver.Answered || fate == driver.NotSent {
		return err
	}
	return &driver.Fault{Fate: driver.NotSent, Err: err}
}

// unanswered reports whether err says that no answer came.
func unanswered(err error) bool {
	fate := driver.FateOf(err)
	return fate == driver.Unknown || fate == driver.NotSent
}

// tryAgain reports whether the engine calls Try once more, as a rule.
func tryAgain(err error) bool {
	fate := driver.FateOf(err)
	return fate == driver.Again || fate == driver.NotNow
}

// fault makes an error of the library one with its fate, and adds what the library does
// not tell: that the connection was closed, or why there is none.
func (s *session) fault(err error) error {
	if _, done := errors.AsType[*driver.Fault](err); done || err == nil || errors.Is(err, distlock.ErrClosed) {
		return err
	}
	fate := fateOf(err)
	silent := fate == driver.Unknown || fate == driver.NotSent
	if errors.Is(err, zk.ErrClosing) || silent && s.conn.IsClosed() {
		return fmt.Errorf("%w: the connection to ZooKeeper was closed by its owner: %w", distlock.ErrClosed, err)
	}
	if reason := s.conn.Reason(); silent && reason != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", err, reason)
	}
	return &driver.Fault{Fate: fate, Err: err}
}

// send is the one place that calls the library with a request. It blocks for as long as
// the library does. A connection that was closed gets none: a request that the library
// fails to write, and nobody waits for, keeps a goroutine of it for ever.
func send[T any](s *session, call func() (T, error)) (T, error) {
	if s.conn.IsClosed() {
		var none T
		return none, s.fault(zk.ErrClosing)
	}
	value, err := call()
	return value, s.fault(err)
}

// again repeats a call, up to three times while no answer comes. Twice is not enough. The
// library fails the call on its way. Before it connects again it fails the repeated call, too, with all that has queued up
// since. Once an attempt to connect has failed as well, the call is not repeated: the library would tell the third time of
// the same outage, a second later each time. Where an earlier copy may have been applied, and nothing was done for the last,
// the fate is that of the earlier one.
func again[T any](ctx context.Context, s *session, call func() (T, error)) (value T, err error) {
	unknown := false
	for range 3 {
		if value, err = send(s, call); !unanswered(err) || ctx.Err() != nil {
			break
		}
		unsent := driver.FateOf(err) == driver.NotSent
		if unsent && s.conn.Reason() != nil {
			break
		}
		unknown = unknown || !unsent
	}
	if fate := driver.FateOf(err); unknown && (fate == driver.NotSent || fate == driver.NotNow) {
		err = &driver.Fault{Fate: driver.Unknown, Err: err}
	}
	return value, err
}

// request makes a call to the library that may be repeated. It runs detached, as the
// library heeds no contexts.
func request[T any](ctx context.Context, s *session, call func() (T, error)) (T, error) {
	value, err := driver.Detach(ctx, func() (T, error) { return again(ctx, s, call) })
	return value, s.fault(err)
}

// requestOnce is request for a call that must not be repeated.
func requestOnce[T any](ctx context.Context, s *session, call func() (T, error)) (T, error) {
	value, err := driver.Detach(ctx, func() (T, error) { return send(s, call) })
	return value, s.fault(err)
}
