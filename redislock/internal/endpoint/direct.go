package endpoint

import (
	"context"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// This file is for speed. A caller sends its request on its own goroutine where it can. A lock
// that nobody else wants then takes about half of the client's CPU time: each answer wakes up
// one goroutine instead of two, which are often on two processors.

// direct is a client with one connection, for one request at a time. go-redis does not return
// from a read when a context is cancelled, but it does when the connection is closed. The request
// may still arrive, as that of any caller that leaves.
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
