package endpoint

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"
)

// Script is a Lua script and its digest. A server knows it by the digest, once it has seen the
// source.
type Script struct{ Source, Digest string }

// NewScript returns the Script of a source.
func NewScript(source string) Script { return Script{source, redis.NewScript(source).Hash()} }

// NewCmd returns a command that runs a script: "evalsha" and its digest, or "eval" and its source.
func NewCmd(ctx context.Context, name, what string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	// Keys follow the command, the script and the number of keys. The client of a cluster
	// finds the slot by the first of them.
	cmd.SetFirstKeyPos(3)
	cmd.SetStepCount(1) // or the client of a cluster asks some server, which may hang, what it knows of EVAL
	return cmd
}

// Execute sends what is in pipe. Each command has its own error then, also where the
// server has refused the connection: go-redis takes that for the answer to one of them
// and leaves all without any.
func Execute(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if c, ok := cmd.(interface{ Val() any }); ok && c.Val() == nil && cmd.Err() == nil {
			cmd.SetErr(err)
		}
	}
}

// FateOf says what a request may have done that ended with err. It speaks of one copy of the request.
func FateOf(err error) driver.Fate {
	var dial *net.OpError
	code := codeOf(err)
	switch {
	case errors.As(err, new(*NotSentError)), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.Is(err, redis.ErrClosed), errors.As(err, &dial) && dial.Op == "dial":
		return driver.NotSent
	case code == "":
		return driver.Unknown
	case slices.Contains(elsewhere, code):
		return driver.Again
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

// Answered reports whether a server has said err.
func Answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// NotSentError is an error before the request was sent.
type NotSentError struct{ Err error }

func (e *NotSentError) Error() string { return e.Err.Error() }
func (e *NotSentError) Unwrap() error { return e.Err }

// Millis rounds up: an entry must never end sooner than was asked for.
func Millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
