package endpoint

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"
)

// TombstoneTime is how long a server remembers what is over, if a copy of one of its requests may still
// arrive. An operating system keeps sending the rest of a closed socket for a while, about 100
// seconds on Linux. TombstoneTime is longer than that.
const TombstoneTime = 5 * time.Minute

// Sender sends the requests of one client: to a server together with those of other callers, to a
// cluster each alone, as a server that hangs would delay the requests to the others. It is safe for
// concurrent use. It has no end of its own: what it has sent ends with the client.
type Sender struct {
	batcher
	resends int // of a request that had no answer

	cluster *redis.ClusterClient // Client, if it is one of a cluster; else nil
}

// NewSender returns a Sender that sends a request again up to resends times while it has no answer.
func NewSender(client redis.UniversalClient, resends int) *Sender {
	cluster, _ := client.(*redis.ClusterClient)
	return &Sender{batcher{Client: client, Delay: MaxDelay}, resends, cluster}
}

// Run runs a script. late reports whether a copy of the request has had no answer: it may have been
// applied, or may still arrive. The error is a *driver.Fault, and speaks for all copies.
//
//	EVALSHA digest ──▶ answer
//	               ──▶ NOSCRIPT, so nothing has run: EVAL source ──▶ answer
//	               ──▶ no answer: the same again, up to resends times
func (s *Sender) Run(ctx context.Context, script Script, keys []string, args ...any) (answer any, late bool, err error) {
	pause := driver.Retry{First: 20 * time.Millisecond, Most: 500 * time.Millisecond}
	for left, bySource := s.resends, false; ; {
		r := script.Request(ctx, bySource, keys, args)
		err = s.Send(ctx, r)
		if err == nil {
			return r.Val(), late, nil
		}
		if redis.HasErrorPrefix(err, "NOSCRIPT") && !bySource {
			// The cache of scripts is lost with a restart, a fail-over or SCRIPT FLUSH.
			bySource = true
			continue
		}
		fate := FateOf(err)
		silent := fate == driver.Unknown
		if silent && r.text.withdraw() {
			fate = driver.NotSent
		}
		late = late || fate == driver.Unknown
		s.Doubt(err)
		if silent && left > 0 && !errors.Is(err, redis.ErrClosed) && pause.Pause(ctx) == nil {
			left--
			continue
		}
		f := Fault(ctx, err).(*driver.Fault)
		if f.Fate = fate; late {
			f.Fate = driver.Unknown
		}
		return nil, late, f
	}
}

// Send sends one copy of a request and waits for its outcome, or for the end of ctx. After that r
// must not be read.
func (s *Sender) Send(ctx context.Context, r *Request) error {
	if s.cluster == nil {
		return s.send(ctx, r)
	}
	_, err := driver.Detach(ctx, func() (any, error) { return nil, s.Client.Process(ctx, r) })
	return err
}

// Doubt has the topology of a cluster asked for anew if err is not the answer of a server:
// another may have become the master of the one that does not answer, or has given the slot away.
func (s *Sender) Doubt(err error) {
	if s.cluster != nil && err != nil && (!Answered(err) || redis.HasErrorPrefix(err, "MOVED ")) {
		s.cluster.ReloadState(context.Background())
	}
}

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
