package etcdlock

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/distlock-go/distlock/driver"
)

const (
	// hedges is how many times a request without an answer is sent. The client library
	// gives each to the next member. So one stopped member does not take the time of
	// all.
	hedges = 4

	// maxRepeat bounds what an operator's request takes. The engine leaves that to the
	// caller, and its context may have no deadline.
	maxRepeat = 10 * time.Second

	// reconnectPeriod is how often requests have a lost connection tried again, at the most.
	reconnectPeriod = 500 * time.Millisecond

	// minAttempt is the least that an attempt may take, also where hardly any time is left.
	minAttempt = 200 * time.Millisecond
)

// repeat sends a request again, until one is answered or the time is over: at intervals,
// and soon after an error that says nothing of the request itself, like a refused
// connection. The request must be one to apply any number of times. Earlier ones go on,
// because the network may just be slow. So a waiter stays in the queue in an outage if
// its lease survives, and a renewal keeps its lock.
//
// The requests have goroutines of their own: each may hang.
func repeat[T any](ctx context.Context, s *store, send func(context.Context) (T, error)) (got T, err error) {
	limit := remaining(ctx)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	interval := max(limit, minAttempt) / hedges
	next := time.NewTimer(interval)
	defer next.Stop()
	type answer struct {
		got T
		err error
	}
	answers := make(chan answer, hedges) // room for the late ones: they are dropped
	for under, pause := 0, firstPause; ; next.Reset(interval) {
		if under < hedges {
			if err := s.fault(s.client.Ctx().Err()); err != nil {
				return got, err // the library would repeat the request for seconds
			}
			under++
			s.reconnect()
			s.background.Go(func() {
				got, err := send(bounded)
				answers <- answer{got, s.fault(err)}
			})
		}
		for again := false; !again; {
			select {
			case a := <-answers:
				if settled(a.err) {
					return a.got, a.err
				}
				if said(a.err) {
					err = a.err
				}
				if under--; under == 0 {
					next.Reset(min(pause, interval))
					pause *= 2
				}
			case <-next.C:
				again = true
			case <-bounded.Done():
				return got, cmp.Or(ctx.Err(), err, error(&driver.NoAnswer{From: "etcd", After: limit}))
			}
		}
	}
}

// write sends a transaction that finds out by itself whether an earlier attempt was
// applied. It repeats the transaction only if a member has not answered. An error at
// once goes to the engine: Lock and TryLock fail with it. failed is told each error. The
// error of write is the last: where an earlier attempt has an unknown outcome, it says
// nothing of that.
func (s *store) write(ctx context.Context, txn clientv3.Op, failed func(error)) (*clientv3.TxnResponse, error) {
	for {
		var resp clientv3.OpResponse
		late, err := s.attempt(ctx, func(ctx context.Context) (err error) {
			resp, err = s.client.Do(ctx, txn)
			return err
		})
		if err == nil {
			return resp.Txn(), nil
		}
		failed(err)
		if !late || driver.FateOf(err) != driver.Unknown || ctx.Err() != nil {
			return nil, err
		}
	}
}

// attempt sends a request once, in a third of the time left. The client library gives
// each attempt to the next member. So one stopped member does not take the time of all.
// late tells that the attempt has had its time.
func (s *store) attempt(ctx context.Context, send func(context.Context) error) (late bool, err error) {
	if err := s.fault(s.client.Ctx().Err()); err != nil {
		return false, err // the library would repeat the request for seconds
	}
	s.reconnect()
	began, limit := time.Now(), max(remaining(ctx)/3, minAttempt)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err = s.fault(send(bounded)); err == nil {
		return false, nil
	}
	// The server knows the limit, too. It may be the first to say that the time is
	// over, in its own words.
	took := time.Since(began)
	switch {
	case ended(err) && ctx.Err() == nil:
		err = &driver.NoAnswer{From: "etcd", After: took}
	case ctx.Err() != nil && driver.FateOf(err) == driver.NotSent:
		err = &driver.Fault{Fate: driver.NotSent, Err: fmt.Errorf("%w: %w", ctx.Err(), err)}
	}
	return took >= limit*9/10, err
}

// reconnect has the client try to connect at once, if it has no connection and pauses
// between attempts. gRPC doubles these pauses up to two minutes, and a client of the user's
// is likely to have it so. A server that is back for that long without a renewal that
// reaches it costs locks. It does so once in reconnectPeriod at the most.
func (s *store) reconnect() {
	conn := s.client.ActiveConnection()
	if conn.GetState() != connectivity.TransientFailure {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.dialed) >= reconnectPeriod {
		s.dialed = time.Now()
		conn.ResetConnectBackoff()
	}
}

// remaining is how long a request may take.
func remaining(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(time.Until(deadline), maxRepeat)
	}
	return maxRepeat
}

// get reads keys. The read is linearizable.
func (s *store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (found, error) {
	return repeat(ctx, s, func(ctx context.Context) (found, error) {
		resp, err := s.client.Get(ctx, key, opts...)
		if err != nil {
			return found{}, err
		}
		return readOf(resp)
	})
}

// keepAlive sends one request on a stream of its own. The client library has a function
// for that. But if a server refuses the request, that function sends it again and
// again, without a pause.
func keepAlive(ctx context.Context, c pb.LeaseClient, id clientv3.LeaseID, opts ...grpc.CallOption) (seconds int64, err error) {
	login, next := withLastLogin(ctx), ctx
	err = taken(ctx, func() error {
		seconds, err = keepAliveOnce(login, c, id, opts...)
		login, next = next, login
		return err
	})
	return seconds, err
}

func keepAliveOnce(ctx context.Context, c pb.LeaseClient, id clientv3.LeaseID, opts ...grpc.CallOption) (seconds int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := c.LeaseKeepAlive(ctx, opts...)
	if err != nil {
		return 0, err
	}
	// After its end, a stream gives the reason to Recv only.
	if err = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil && err != io.EOF {
		return 0, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	return resp.TTL, nil
}
