package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Fault says what a request has done that ended with err: a *driver.Fault, or nil. Where the context
// ends a request in mid-read, go-redis returns the error of the socket. A client stays closed if its
// owner has closed it.
func Fault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	f := &driver.Fault{Fate: FateOf(err), Err: err}
	switch {
	case Answered(err):
	// Before the context: a closed client is final, and a retry is of no use.
	case errors.Is(err, redis.ErrClosed):
		f.Err = fmt.Errorf("%w: %w", distlock.ErrClosed, err)
	default:
		f.Err = cmp.Or(EndOf(ctx), err)
	}
	return f
}

// bound is the key of a NoAnswer in a context of Until.
type bound struct{}

// Until returns a context for what is asked of a server. If that has no answer until the time ends, and ctx has not
// ended, its EndOf is a NoAnswer.
func Until(ctx context.Context, ends time.Time, from string) (context.Context, context.CancelFunc) {
	if theirs, ok := ctx.Deadline(); ok && !ends.Before(theirs) {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(context.WithValue(ctx, bound{}, &driver.NoAnswer{From: from, After: time.Until(ends)}), ends)
}

// EndOf returns why ctx has ended, or nil. The deadline of a socket may come before the timer of the context.
func EndOf(ctx context.Context) error {
	ends, ok := ctx.Deadline()
	switch silent, own := ctx.Value(bound{}).(*driver.NoAnswer); {
	case errors.Is(ctx.Err(), context.Canceled), ctx.Err() == nil && (!ok || time.Now().Before(ends)):
		return ctx.Err()
	case own:
		return silent
	}
	return context.DeadlineExceeded
}

// FateOf says what the answer of a server tells of the request. Without an answer it is not known.
func FateOf(err error) driver.Fate {
	code := codeOf(err)
	known, judged := errors.AsType[*driver.Fault](err)
	switch {
	case judged:
		return known.Fate
	case code == "":
	case slices.Contains(elsewhere, code):
		return driver.Again
	case code == "NOPERM" && strings.Contains(err.Error(), "'asking'"):
		return driver.Unknown // go-redis sends ASKING before the request, and tells of its error alone
	case slices.Contains(passing, code), strings.Contains(err.Error(), "max number of clients reached"),
		strings.Contains(err.Error(), "while the cluster is down"):
		return driver.NotNow
	case slices.Contains(refused, code), slices.ContainsFunc(refusals, func(s string) bool { return strings.Contains(err.Error(), s) }):
		return driver.Answered
	}
	// Such as a key in a slot that is being moved, in the midst of a script. A proxy may have passed the request on
	// before it failed.
	return driver.Unknown
}

var (
	// elsewhere are the answers of a server that has run nothing, because another may, or the source has to come along.
	elsewhere = []string{"NOSCRIPT", "MOVED", "ASK"}

	// passing are the refusals before the first write, for a state of the server: Redis looks at it before a command, and
	// in a script before the first one that writes.
	passing = []string{"READONLY", "NOREPLICAS", "MISCONF", "OOM", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN", "BUSY"}

	// refused are the refusals before the first write, for good.
	refused = []string{"NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "CROSSSLOT", "NOPROTO", "DENIED"}

	// refusals are in the texts of those that begin with ERR, some of them in older versions of Redis only.
	refusals = []string{"unknown command", "wrong number of arguments", "Error compiling script",
		"user executing the script can't", "ACL failure in script", "invalid password", "without any password configured",
		"no password is set", "operation not permitted", "DB index is out of range"}
)

// codeOf returns the first word of a server's answer; "" if err is none. Redis 6.2 and others have a text before it: "ERR ",
// "ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -", or "@user_script: 1: -" for one that a
// script has caught.
func codeOf(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	text := answer.Error()
	if _, inner, ok := strings.Cut(text, "@user_script: "); ok {
		_, text, _ = strings.Cut(inner, ": -")
	}
	code, _, _ := strings.Cut(strings.TrimPrefix(text, "ERR "), " ")
	return cmp.Or(code, "ERR")
}

// Moved reports whether a server of a cluster has said that another has the key.
func Moved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK ")
}

// NeedsCluster makes a refusal of what a server of a cluster says to a client that does not follow it, which would hear that again and
// again, and adds what the user can do.
func NeedsCluster(err error) *driver.Fault {
	return &driver.Fault{Fate: driver.Answered,
		Err: fmt.Errorf("%w: the server is one of a cluster, which needs cluster=true in the URL, or a *redis.ClusterClient", err)}
}

// Answered reports whether a server has said err.
func Answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// Explain adds to the error of the first requests to a server what it says of that server: other servers send what is
// no answer of a Redis, or close the connection, as a Redis with TLS does if a client has none, or no certificate: with TLS
// 1.3, it refuses that after the handshake, and what it says of it is lost if the client has begun to write.
func Explain(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the connection was closed instead of an answer: what listens there may be no Redis, or TLS may be wanted (rediss://), "+
			"or a client certificate required (tls_cert, tls_key): %w", err)
	case err != nil && strings.Contains(err.Error(), "invalid reply: "):
		return fmt.Errorf("what listens there does not answer like a Redis: %w", err)
	}
	return err
}
