package etcdlock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/etcdlock/internal/member"
)

const (
	// maxCopies is how many times a request without an answer is sent. The client library
	// gives each copy to the next member. So one stopped member does not take the time of
	// all.
	maxCopies = 4

	// maxRequest bounds what an operator's request takes. The engine leaves that to the
	// caller, and its context may have no deadline.
	maxRequest = 10 * time.Second

	// reconnectPeriod is how often requests have a lost connection tried again, at the most, and how long they wait for it.
	reconnectPeriod = 200 * time.Millisecond

	// minRequest is the least that a request may take, also where hardly any time is left.
	minRequest = 200 * time.Millisecond
)

// once is the interval of a request that has one copy only, with a third of the time; with alone it
// has all of that.
const once, alone time.Duration = 0, -1

// steady is the interval of copies that are spread over the time there is.
func (s *store) steady(ctx context.Context) time.Duration {
	return max(remaining(ctx), minRequest) / time.Duration(s.copies)
}

// bound is how long a request may take.
func bound(ctx context.Context, interval time.Duration) time.Duration {
	limit := max(remaining(ctx), minRequest)
	if interval == once {
		limit = max(limit/3, minRequest)
	}
	return limit
}

// bounded gives a request a limit that is not its caller's.
func bounded(call context.Context, limit time.Duration, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(call, limit)
	defer cancel()
	err := request(ctx)
	if contextEnded(err) && call.Err() == nil {
		err = &driver.NoAnswer{From: "etcd", After: limit}
	}
	return err
}

// answer is what has become of a request.
type answer[T any] struct {
	got    T
	err    error
	unsure bool // a copy of the request may have been applied, or may still be, whatever err says
}

// send sends a request, and another copy of it whenever the last one has had no answer for
// interval: the member that has it may have stopped. The others go on, because the network may
// just be slow. If the connection breaks under the first, as where its member was killed, the next
// one is sent at once: only that, because a balancer between may say so of all. The first answer counts. So the request must be one to apply any number of
// times, or a transaction that finds out what an earlier copy has done. An error that says
// nothing of the request counts once no copy is under way.
//
// The first copy has the goroutine of the caller, the others have their own. A copy returns soon after the
// end of its context.
func send[T any](ctx context.Context, s *store, interval time.Duration, request func(context.Context) (T, error)) answer[T] {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, bound(ctx, interval))
	defer cancel()
	c := &copying[T]{store: s, interval: interval, cancel: cancel, done: make(chan struct{})}
	c.send = func() {
		if s.closed() {
			c.took(*new(T), errClientClosed) // the library would repeat the request for seconds
			return
		}
		s.connected(bounded)
		got, err := request(bounded)
		c.took(got, s.fault(err))
	}
	c.begin()
	c.send()
	<-c.done
	c.answer.err = worded(ctx, c.answer.err, c.last, time.Since(began))
	return c.answer
}

// copying is a request under way.
type copying[T any] struct {
	store    *store
	interval time.Duration
	cancel   context.CancelFunc // of all copies
	send     func()             // one copy

	mu          sync.Mutex
	next        *time.Timer // nil if there is one copy only
	sent, under int         // copies
	unsure      bool        // of those with an answer
	last        error       // what was said last
	answer      answer[T]
	done        chan struct{} // closed when answer is final
}

// begin counts the first copy.
func (c *copying[T]) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.under = 1, 1
	if c.interval > 0 {
		c.next = time.AfterFunc(c.interval, c.again)
	}
}

// again sends another copy, if there may be one, and comes back after the interval.
func (c *copying[T]) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	if c.sent == c.store.copies {
		c.next.Reset(c.interval)
		c.store.reconnect()
		return
	}
	c.another()
}

// another sends another copy; c.mu is held.
func (c *copying[T]) another() {
	c.next.Reset(c.interval)
	c.sent, c.under = c.sent+1, c.under+1
	c.store.background.Go(c.send)
}

// took takes what a copy was told.
func (c *copying[T]) took(got T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under--
	select {
	case <-c.done:
		return
	default:
	}
	unknown := driver.FateOf(err) == driver.Unknown
	c.unsure = c.unsure || unknown
	if unknown && member.Gone(err) && c.next != nil && c.sent == 1 && c.store.copies > 1 {
		c.another()
	}
	if c.under > 0 && !final(err) {
		c.last = cmp.Or(said(err), c.last)
		return
	}
	c.answer = answer[T]{got, err, c.unsure || c.under > 0}
	if c.next != nil {
		c.next.Stop()
	}
	close(c.done)
	c.cancel()
}

// said returns err if it tells more than that the time is over.
func said(err error) error {
	if contextEnded(err) {
		return nil
	}
	return err
}

// worded words the end of a bound that is not the caller's. The server knows the bound, too,
// and may be the first to say that the time is over, in its own words.
func worded(ctx context.Context, err, last error, took time.Duration) error {
	switch {
	case contextEnded(err) && ctx.Err() == nil:
		return &driver.NoAnswer{From: "etcd", After: took, Last: last}
	case contextEnded(err):
		return ctx.Err()
	case ctx.Err() != nil && driver.FateOf(err) == driver.NotSent:
		return &driver.Fault{Fate: driver.NotSent, Err: fmt.Errorf("%w: %w", ctx.Err(), err)}
	}
	return err
}

// promptly fails at once if every member refuses the connection. The client library waits for one, for all of the time, and
// then says no more than that this is over. It is for a client of Open: the library repeats a request that was reset, if
// member.Intercept does not see it, and a refusal then says nothing of the first.
type promptly struct {
	pb.KVClient
	direct pb.KVClient // without what the library does about errors
}

func (p promptly) Txn(ctx context.Context, in *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	return p.KVClient.Txn(ctx, in, append(opts, grpc.WaitForReady(false))...)
}

func (p promptly) Range(ctx context.Context, in *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	resp, err := p.direct.Range(ctx, in, append(opts, grpc.WaitForReady(false))...)
	if err == nil || member.Unconnected(err.Error()) {
		return resp, err
	}
	return p.KVClient.Range(ctx, in, opts...)
}

// kvOf returns what sends transactions and reads. Of a client of the user's it is what that has now, as are the watcher and the
// lessor: the program may put another key space into its client later on, and two would hold a name.
func kvOf(client *clientv3.Client, owned bool) clientv3.KV {
	if !owned {
		return client.KV
	}
	return clientv3.NewKVFromKVClient(promptly{clientv3.RetryKVClient(client), pb.NewKVClient(client.ActiveConnection())}, client)
}

// txn sends a transaction.
func (s *store) txn(ctx context.Context, interval time.Duration, t txn) answer[outcome] {
	return send(ctx, s, interval, func(ctx context.Context) (outcome, error) {
		resp, err := s.kv.Do(ctx, t.op())
		if err != nil {
			return outcome{}, err
		}
		return t.outcome((*pb.TxnResponse)(resp.Txn()), resp.Txn().Header.GetRevision())
	})
}

// reconnect has the client try to connect at once, if it has no connection and pauses
// between attempts. gRPC doubles these pauses up to two minutes, and a client of the user's
// is likely to have it so. A server that is back for that long without a renewal that
// reaches it costs locks. It does so once in reconnectPeriod at the most. It returns until when the attempt has time, and
// whether it has just begun.
func (s *store) reconnect() (until time.Time, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begun = s.refused() && time.Since(s.dialed) >= reconnectPeriod; begun {
		s.dialed = time.Now()
		s.client.ActiveConnection().ResetConnectBackoff()
	}
	return s.dialed.Add(reconnectPeriod), begun
}

// refused reports whether the last attempt to connect has failed, be it long ago.
func (s *store) refused() bool {
	return s.client.ActiveConnection().GetState() == connectivity.TransientFailure
}

// connected waits for an attempt to connect that begins now or later, if the last one has failed: the server may be back.
func (s *store) connected(ctx context.Context) {
	for begun := false; !begun && s.refused() && ctx.Err() == nil; {
		var until time.Time
		until, begun = s.reconnect()
		attempt, cancel := context.WithDeadline(ctx, until)
		s.client.ActiveConnection().WaitForStateChange(attempt, connectivity.TransientFailure)
		cancel()
	}
}

// remaining is how long a request may take.
func remaining(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(time.Until(deadline), maxRequest)
	}
	return maxRequest
}

// get reads keys. The read is linearizable.
func (s *store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (found, error) {
	a := send(ctx, s, s.steady(ctx), func(ctx context.Context) (found, error) {
		resp, err := s.kv.Get(ctx, key, opts...)
		if err != nil {
			return found{}, err
		}
		return readOf(resp)
	})
	return a.got, a.err
}
