package endpoint

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
)

// This file is for speed. A caller sends its request on its own goroutine where it can. A lock
// that nobody else wants then takes about half of the client's CPU time: each answer wakes up
// one goroutine instead of two, which are often on two processors.

// direct is a client with one connection, for one request at a time. go-redis does not return
// from a read when a context is cancelled, but it does when its client is closed. The request
// may still arrive, as that of any caller that leaves.
type direct struct {
	*redis.Client
	leave context.CancelFunc // ends an attempt to connect
}

// maxDials is the size of a pool that has one connection at the most. go-redis stops connecting
// after as many failures, also those of one request, which connects up to four times.
const maxDials = 8

// newDirect returns a direct to the server of o. It does not connect yet.
func newDirect(o *redis.Options) direct {
	open, leave := context.WithCancel(context.Background())
	own := *o
	own.PoolSize, own.MinIdleConns = maxDials, 0
	own.PipelinePoolSize = -1 // none, which makes a new client cheaper
	own.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(open, cancel)()
		return o.Dialer(ctx, network, addr)
	}
	return direct{redis.NewClient(&own), leave}
}

// Close closes the connection. It also ends an attempt to connect, which go-redis would go on
// with: callers that leave a server that hangs would open sockets without bound.
func (d direct) Close() error {
	d.leave()
	return d.Client.Close()
}

// process sends cmd and waits for its outcome, or for the end of ctx. It reports whether
// another request may use d. No connection is kept after a failure: go-redis may still be
// connecting, and the next request would wait for that.
func (d direct) process(ctx context.Context, cmd redis.Cmder) (again bool, err error) {
	if ctx.Err() != nil {
		return true, &NotSentError{ctx.Err()}
	}
	stop := context.AfterFunc(ctx, func() { _ = d.Close() })
	err = d.Process(ctx, cmd)
	switch open := stop(); {
	case err == nil || Answered(err):
		return open, err
	case !open:
		return false, ctx.Err() // instead of that of the closed client
	}
	_ = d.Close()
	return false, err
}
