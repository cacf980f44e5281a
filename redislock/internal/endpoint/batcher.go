package endpoint

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/internal/stack"
)

// This file bounds the connections to a server, and is for speed: many callers share a round trip. With the pipeliner of
// go-redis (AsyncAutoPipeline, experimental), 64 callers reached a third of the rate.

const (
	// MaxPipelines is how many requests or pipelines of one Sender are under way at the
	// same time, each on a connection of its own. Few callers then wait for nobody, and
	// a connection that hangs delays few.
	MaxPipelines = 4

	// MaxBatch is how many requests share a pipeline, so that no caller waits for long
	// on behalf of others.
	MaxBatch = 100

	// MaxDelay is how long a request waits for a pipeline to return: all of them may be
	// on connections that hang.
	MaxDelay = 100 * time.Millisecond

	// maxRequest bounds a pipeline. The engine bounds no call by more.
	maxRequest = 10 * time.Second
)

// batcher is what a Sender has for one server. A request that comes while MaxPipelines are under way
// waits until one returns, and then goes in one pipeline with all that have come meanwhile.
//
//	callers              batcher                              go-redis
//	1 ─────────────────▶ flush 1: alone, at once ───────────▶ Process
//	2, 3, 4 ───────────▶ flush 2, 3, 4: the same
//	5, 6 ──────────────▶ waiting; watch starts the timer
//	                     flush 1 has its answer: 5 and 6 ───▶ one pipeline
//	                     or none within MaxDelay: flush 5 ──▶ one pipeline
//
// Goroutines of its own send the requests, but for those of a direct, because go-redis does not
// return from a read when a context is cancelled. A caller leaves when its context ends, and its
// request may still arrive.
type batcher struct {
	Client redis.UniversalClient
	Delay  time.Duration // MaxDelay, but in tests

	own *redis.Options // of connections for single requests; nil if there are none

	mu      sync.Mutex
	idle    []direct
	closed  bool
	running int // goroutines in flush, and callers that send their request themselves
	waiting []*Request
	overdue *time.Timer // runs while requests wait
}

// SendDirectly has callers send their requests themselves while fewer than MaxPipelines are
// under way, on connections of their own to the server of o. It is called before the
// first request.
func (b *batcher) SendDirectly(o *redis.Options) { b.own = o }

// Close closes the connections of SendDirectly.
func (b *batcher) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.discard()
}

// discard closes the idle connections; b.mu is held.
func (b *batcher) discard() {
	for _, d := range b.idle {
		_ = d.Close()
	}
	b.idle = nil
}

// send sends r and waits for its outcome. When ctx ends first, r must not be read any more.
func (b *batcher) send(ctx context.Context, r *Request) error {
	b.mu.Lock()
	if b.own != nil && !b.closed && b.running < MaxPipelines {
		b.running++
		d := b.connection()
		b.mu.Unlock()
		return b.direct(ctx, d, r)
	}
	r.done = make(chan struct{})
	b.waiting = append(b.waiting, r)
	if b.running < MaxPipelines {
		// A request goes at once while a pipeline is free: waiting for others to share it
		// would delay a lone caller.
		b.running++
		go b.flush()
	} else if len(b.waiting) == 1 {
		b.watch()
	}
	b.mu.Unlock()
	select {
	case <-r.done:
		return r.Err()
	case <-ctx.Done():
		b.cancel(r)
		return ctx.Err()
	}
}

// direct sends r by d on the goroutine of the caller. What has come meanwhile goes next.
func (b *batcher) direct(ctx context.Context, d direct, r *Request) error {
	again, err := d.process(ctx, r)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case again && b.closed:
		_ = d.Close()
	case again:
		b.idle = append(b.idle, d)
	case ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded):
		// The server may have closed them all, as when it restarts. go-redis does not see that of a
		// connection with TLS, and each copy of the request would find another one closed.
		b.discard()
	}
	if len(b.waiting) > 0 {
		go b.flush()
	} else {
		b.running--
	}
	return err
}

// connection returns the connection used last, or a new one; b.mu is held.
func (b *batcher) connection() direct {
	last := len(b.idle) - 1
	if last < 0 {
		return newDirect(b.own)
	}
	d := b.idle[last]
	b.idle = b.idle[:last]
	return d
}

// flush sends what waits until nothing does.
func (b *batcher) flush() {
	stack.Grow()
	for batch := b.take(); len(batch) > 0; batch = b.take() {
		if len(batch) == 1 {
			// A single request uses its own context: no other caller depends on it.
			_ = b.Client.Process(batch[0].ctx, batch[0])
		} else {
			b.together(batch)
		}
		for _, r := range batch {
			close(r.done)
		}
		if len(batch) > 1 {
			// For speed: these callers often lock or unlock again at once. If they run first, their
			// requests share the next pipeline.
			runtime.Gosched()
		}
	}
}

// together sends several requests in one pipeline. It uses none of their contexts: a caller that
// leaves must not fail the others.
func (b *batcher) together(batch []*Request) {
	ctx, cancel := context.WithTimeout(context.Background(), maxRequest)
	defer cancel()
	pipe := b.Client.Pipeline()
	for _, r := range batch {
		_ = pipe.Process(ctx, r) // puts it into the pipeline
	}
	Execute(ctx, pipe)
}

// take returns the requests of the next pipeline; none if flush is to end.
func (b *batcher) take() []*Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), MaxBatch)
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	switch {
	case n == 0:
		b.running--
	case len(b.waiting) > 0:
		b.watch()
	default:
		b.waiting = nil // lets go of the requests
		if b.overdue != nil {
			b.overdue.Stop()
		}
	}
	return batch
}

// watch has another pipeline sent if those under way have not returned after the delay;
// b.mu is held.
func (b *batcher) watch() {
	if b.overdue != nil {
		b.overdue.Reset(b.Delay)
		return
	}
	b.overdue = time.AfterFunc(b.Delay, func() {
		b.mu.Lock()
		// This may exceed MaxPipelines: connections that hang must not stop those that
		// work.
		b.running++
		b.mu.Unlock()
		b.flush()
	})
}

// cancel removes r if it waits, so that it costs nothing after its caller has given up.
func (b *batcher) cancel(r *Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, r); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
}

// Waiting returns how many requests wait for a pipeline.
func (b *batcher) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// direct is a client with one connection, for one request at a time, and is for speed: its caller sends that on its own
// goroutine, so an answer wakes up one goroutine instead of two, which are often on two processors. go-redis does not
// return from a read when a context is cancelled, but it does when the connection is closed. The request may still
// arrive, as that of any caller that leaves.
type direct struct {
	*redis.Client
	wire *wire
}

// wire is what a direct has beneath its client. To close the client instead, while an answer comes, makes
// go-redis write to the standard error.
type wire struct {
	open  context.Context // ends with an attempt to connect
	leave context.CancelFunc

	mu   sync.Mutex
	conn net.Conn // the latest: there is one at a time
}

// newDirect returns a direct to the server of o. It does not connect yet.
func newDirect(o *redis.Options) direct {
	w := new(wire)
	w.open, w.leave = context.WithCancel(context.Background())
	own := *o
	own.PoolSize, own.MinIdleConns = 2, 0 // one is used; after as many failures as this, go-redis connects by itself
	own.PipelinePoolSize = -1             // none, which makes a new client cheaper
	own.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(w.open, cancel)()
		return w.add(o.Dialer(ctx, network, addr))
	}
	return direct{redis.NewClient(&own), w}
}

func (w *wire) add(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Err() != nil {
		_ = c.Close()
		return nil, w.open.Err()
	}
	w.conn = c
	return c, nil
}

// cut closes what there is, and ends an attempt to connect.
func (w *wire) cut() {
	w.leave()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil {
		_ = w.conn.Close()
	}
}

// Close closes the connection. It also ends an attempt to connect, which go-redis would go on
// with: callers that leave a server that hangs would open sockets without bound.
func (d direct) Close() error {
	d.wire.leave()
	return d.Client.Close()
}

// process sends cmd and waits for its outcome, or for the end of ctx. It reports whether
// another request may use d. No connection is kept after a failure: go-redis may still be
// connecting, and the next request would wait for that.
func (d direct) process(ctx context.Context, cmd redis.Cmder) (again bool, err error) {
	if ctx.Err() != nil {
		return true, ctx.Err()
	}
	stop := context.AfterFunc(ctx, d.wire.cut)
	err = d.Process(ctx, cmd)
	open, answered := stop(), err == nil || Answered(err)
	if open && answered {
		return true, err
	}
	_ = d.Close()
	if !open && !answered {
		err = ctx.Err() // instead of that of the closed connection
	}
	return false, err
}
