package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/etcdlock/internal/member"
)

// fault says what a request may have done that has failed with err. Every request goes
// through it, in send.
//
// Nothing can follow once the client is closed. The end of a context says nothing of the
// request, and stays what it is.
func (s *store) fault(err error) error {
	switch {
	case err == nil:
		return nil
	case s.closed() && contextEnded(err): // not the end of the caller's context
		return errClientClosed
	case s.closed():
		return fmt.Errorf("%w: %w", errClientClosed, err)
	case contextEnded(err):
		return err
	}
	if _, known := errors.AsType[*driver.Fault](err); known {
		return err
	}
	return &driver.Fault{Fate: fate(err), Err: err}
}

var errClientClosed = fmt.Errorf("%w: the etcd client was closed by its owner", distlock.ErrClosed)

// closed reports whether the client was closed. The end of its context alone, which may be of the user's, closes nothing: a
// program that is told to end still releases its locks.
func (s *store) closed() bool {
	return s.client.ActiveConnection().GetState() == connectivity.Shutdown
}

// contextEnded reports whether err is the end of a context.
func contextEnded(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// refusals are what a server says before it begins with a write, as long as it is in a
// state that passes. One exception is ErrNoSpace: the write that fills the store up is
// applied, and answered like those after it. The writer has to look.
var refusals = []error{rpctypes.ErrNoSpace, rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests, rpctypes.ErrNotCapable}

// dropped are what members say without a code of its own: a leader that was deposed, of leases, and one that transfers its leadership, or
// knows no leader, of any write, before it is in a log.
var dropped = []string{"not a primary lessor", "raft proposal dropped"}

// fate returns what a request may have done that a server or the client library has
// refused. Some members that are asked too early answer without a code. So an error that is not
// known says nothing.
func fate(err error) driver.Fate {
	code := status.Code(err)
	known, isKnown := errors.AsType[rpctypes.EtcdError](err)
	if isKnown {
		code = known.Code()
	}
	for _, r := range refusals {
		if errors.Is(err, r) {
			return driver.NotNow
		}
	}
	switch {
	case member.Elsewhere(err) || slices.ContainsFunc(dropped, func(s string) bool { return strings.HasSuffix(err.Error(), s) }):
		return driver.Again // another member, or the next login
	case code == codes.Unavailable && member.Unconnected(err.Error()):
		return driver.NotSent
	}
	switch code {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Unknown, codes.Internal, codes.ResourceExhausted:
		return driver.Unknown
	}
	return driver.Answered
}

// final reports whether err is the last word on a request: sent again at once, it would
// be answered in the same way.
func final(err error) bool {
	f := driver.FateOf(err)
	return f == driver.Answered || f == driver.NotNow
}
