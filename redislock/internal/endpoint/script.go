package endpoint

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script and its digest. A server knows it by the digest, once it has seen the
// source.
type Script struct{ Source, Digest string }

// NewScript returns the Script of a source.
func NewScript(source string) Script { return Script{source, redis.NewScript(source).Hash()} }

// Request is one copy of a request. go-redis must not send it again by itself: its caller has to know
// of each copy that may have been applied, or may still arrive. The client of a cluster still follows
// a server to another one, which says that it has run nothing.
type Request struct {
	*redis.Cmd
	ctx  context.Context
	done chan struct{} // closed when Cmd has its outcome; nil if nobody else sends it
	text text          // of its script
}

// NewRequest returns a request for a command.
func NewRequest(ctx context.Context, args ...any) *Request {
	return &Request{Cmd: redis.NewCmd(ctx, args...), ctx: ctx}
}

// Request returns a request to run s, by its source or by its digest.
func (s Script) Request(ctx context.Context, bySource bool, keys []string, args []any) *Request {
	name, r := "evalsha", &Request{ctx: ctx, text: text{script: s.Digest}}
	if bySource {
		name, r.text.script = "eval", s.Source
	}
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, &r.text, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	r.Cmd = redis.NewCmd(ctx, append(all, args...)...)
	// Keys follow the command, the script and the number of keys. The client of a cluster
	// finds the slot by the first of them.
	r.SetFirstKeyPos(3)
	r.SetStepCount(1) // or the client of a cluster asks some server, which may hang, what it knows of EVAL
	return r
}

// NoRetry implements redis.Cmder.
func (r *Request) NoRetry() bool { return true }

// SetErr implements redis.Cmder. An answer stays: when its context ends, the client of a cluster
// would write that over the answers that the commands of a pipeline have had.
func (r *Request) SetErr(err error) {
	if err == nil || r.Val() == nil {
		r.Cmd.SetErr(err)
	}
}

// text is the script of a request. It tells whether the request was sent: go-redis asks for the bytes
// of it when it writes them to a connection, and for those of no other argument.
type text struct {
	script string
	state  atomic.Int32
}

const (
	written   = 1 // also if it was not flushed
	withdrawn = 2
)

// MarshalBinary implements encoding.BinaryMarshaler. What was withdrawn has no script: a server that
// gets it after all does nothing.
func (t *text) MarshalBinary() ([]byte, error) {
	if !t.state.CompareAndSwap(0, written) && t.state.Load() == withdrawn {
		return nil, nil
	}
	return []byte(t.script), nil
}

// String is for the hooks of a user's client, which log requests before they are sent.
func (t *text) String() string { return t.script }

// withdraw reports whether the request was not sent. From then on it cannot be.
func (t *text) withdraw() bool { return t.state.CompareAndSwap(0, withdrawn) }

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

// Millis rounds up: an entry must never end sooner than was asked for.
func Millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
