package endpoint

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
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
