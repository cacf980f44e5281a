package endpoint

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"
)

// Sender sends the requests of one client: to a server together with those of other callers, to a
// cluster each alone, as a server that hangs would delay the requests to the others. It is safe for
// concurrent use. It has no end of its own: what it has sent ends with the client.
type Sender struct {
	batcher
	resends int      // of a request that had no answer
	known   sync.Map // digests of the scripts that a server has run and, as far as is known, none has forgotten

	cluster *redis.ClusterClient // Client, if it is one of a cluster; else nil
}

// NewSender returns a Sender that sends a request again up to resends times while it has no answer.
func NewSender(client redis.UniversalClient, resends int) *Sender {
	cluster, _ := client.(*redis.ClusterClient)
	return &Sender{batcher: batcher{Client: client, Delay: MaxDelay}, resends: resends, cluster: cluster}
}

// Run runs a script. late reports whether a copy of the request has had no answer: it may have been
// applied, or may still arrive. The error is a *driver.Fault, and speaks for all copies.
//
//	EVAL source, until it is known ──▶ answer: known
//	EVALSHA digest, from then on   ──▶ answer
//	                               ──▶ NOSCRIPT, so nothing has run: EVAL source, until it is known again
//	either                         ──▶ no answer: the same again, up to resends times; a stale connection does not count
//
// So no request takes two round trips because it is the first of its kind. A lock's first renewal often is, and has
// little time.
func (s *Sender) Run(ctx context.Context, script Script, keys []string, args ...any) (answer any, late bool, err error) {
	c := &Call{Script: script, Keys: keys, Args: args}
	pause := resendPause
	for {
		r := s.request(ctx, c)
		again, silent := s.took(ctx, c, r, s.Send(ctx, r))
		if !again || silent && pause.Pause(ctx) != nil {
			return c.Answer, c.late, c.Err
		}
	}
}

// RunAll runs scripts, all in one pipeline by a client that is not to be the Sender's own, and gives each Call its outcome.
// What Run sends again goes in a further pipeline. At the end of each is what ask appends to it, if anything.
func (s *Sender) RunAll(ctx context.Context, via redis.UniversalClient, calls []*Call, ask func(redis.Pipeliner) *redis.Cmd) {
	pause := resendPause
	for {
		pipe := via.Pipeline()
		requests := make([]*Request, len(calls))
		for i, c := range calls {
			requests[i] = s.request(ctx, c)
			_ = pipe.Process(ctx, requests[i]) // puts it into the pipeline
		}
		asked := ask(pipe)
		// go-redis has connections of their own for pipelines. The first of them is new, so the
		// request would wait for several round trips more. But the others may be stale after a copy
		// without an answer, and all be taken by the requests to a cluster, which go alone.
		alone := pipe.Len() == 1 && calls[0].resent+calls[0].stale == 0 && s.cluster == nil
		_, left := driver.Detach(ctx, func() (any, error) {
			if alone {
				_ = via.Process(ctx, requests[0])
			} else {
				Execute(ctx, pipe)
			}
			return nil, nil
		})
		var more []*Call
		silence := false
		for i, c := range calls {
			err := left
			if left == nil { // else the commands are still go-redis', and are not read
				err, c.Asked = requests[i].Err(), asked
			}
			if again, silent := s.took(ctx, c, requests[i], err); again {
				more, silence = append(more, c), silence || silent
			}
		}
		if calls = more; len(calls) == 0 || silence && pause.Pause(ctx) != nil {
			return
		}
	}
}

// resendPause makes the pauses after a copy without an answer.
var resendPause = driver.Retry{First: 20 * time.Millisecond, Most: 500 * time.Millisecond}

// Call is a script to run, through all copies of its request until the outcome.
type Call struct {
	Script Script
	Keys   []string
	Args   []any

	Answer any
	Err    error      // a *driver.Fault, which speaks for all copies
	Asked  *redis.Cmd // of the pipeline that Answer came by; nil if nothing was

	resent   int // how often another copy was sent
	stale    int // the same, after a connection that may have been closed before; resent does not count these
	pooled   int // how many of those there may be
	bySource bool
	late     bool // a copy has had no answer
}

// took takes in the outcome of a copy, and reports whether another is to be sent, after a pause if this one was silent. It
// alone judges errors.
func (s *Sender) took(ctx context.Context, c *Call, r *Request, err error) (again, silent bool) {
	if c.Err = nil; err == nil {
		c.Answer = r.Val()
		if c.bySource {
			s.known.Store(c.Script.Digest, nil)
		}
		return false, false
	}
	f := Fault(ctx, err).(*driver.Fault)
	c.Err = f
	if s.cluster == nil && Moved(err) {
		*f = *NeedsCluster(err)
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") && !c.bySource {
		// The cache of scripts is lost with a restart, a failover or SCRIPT FLUSH. Another server of a cluster
		// may not have the script yet.
		s.known.Delete(c.Script.Digest)
		c.bySource = true
		return true, false
	}
	silent = f.Fate == driver.Unknown
	if silent && r.text.withdraw() {
		f.Fate = driver.NotSent
	}
	sent := f.Fate == driver.Unknown
	c.late = c.late || sent
	s.doubt(err)
	if c.late {
		f.Fate = driver.Unknown
	}
	switch {
	case !silent || errors.Is(err, redis.ErrClosed) || ctx.Err() != nil:
		return false, silent
	case sent && s.resends > 0 && s.maybeStale(c, err):
		c.stale++
		return true, false
	case c.resent < s.resends:
		c.resent++
		return true, true
	}
	return false, true
}

// maybeStale reports whether a copy that was sent may have met a connection that the server had closed before, as when
// it restarts. With TLS, go-redis does not see that of those in its pool, and hands out one after another. There are
// no more of them than were idle when the first was found.
func (s *Sender) maybeStale(c *Call, err error) bool {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() || Answered(err) {
		return false
	}
	if c.stale == 0 {
		stats := s.Client.PoolStats()
		if c.pooled = int(stats.IdleConns); stats.PipelineStats != nil {
			c.pooled += int(stats.PipelineStats.IdleConns)
		}
	}
	return c.stale < c.pooled
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

// doubt reloads the topology of a cluster if err is not the answer of a server:
// another may have become the master of the one that does not answer, or has given the slot away.
func (s *Sender) doubt(err error) {
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

// request returns the next copy of the request, by the digest or the source of the script.
func (s *Sender) request(ctx context.Context, c *Call) *Request {
	name, r := "evalsha", &Request{ctx: ctx, text: text{script: c.Script.Digest}}
	if _, known := s.known.Load(c.Script.Digest); !known {
		c.bySource = true
	}
	if c.bySource {
		name, r.text.script = "eval", c.Script.Source
	}
	all := make([]any, 0, 3+len(c.Keys)+len(c.Args))
	all = append(all, name, &r.text, len(c.Keys))
	for _, k := range c.Keys {
		all = append(all, k)
	}
	r.Cmd = redis.NewCmd(ctx, append(all, c.Args...)...)
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
