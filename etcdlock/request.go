package etcdlock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/distlock-go/distlock/driver"
)

const (
	// copies is how many times a request without an answer is sent. The client library
	// gives each copy to the next member. So one stopped member does not take the time of
	// all.
	copies = 4

	// maxRequest bounds what an operator's request takes. The engine leaves that to the
	// caller, and its context may have no deadline.
	maxRequest = 10 * time.Second

	// reconnectPeriod is how often requests have a lost connection tried again, at the most.
	reconnectPeriod = 500 * time.Millisecond

	// minRequest is the least that a request may take, also where hardly any time is left.
	minRequest = 200 * time.Millisecond

	// endGrace is how long a copy may take to return once its time is over. The library
	// takes some microseconds, and a busy machine more.
	endGrace = time.Second
)

// once is the interval of a request that has one copy only, with a third of the time.
const once time.Duration = 0

// steady is the interval of copies that are spread over the time there is.
func steady(ctx context.Context) time.Duration { return max(remaining(ctx), minRequest) / copies }

// answer is what has become of a request.
type answer[T any] struct {
	got    T
	err    error
	unsure bool // a copy of the request may have been applied, or may still be, whatever err says
}

// send sends a request, and another copy of it whenever the last one has had no answer for
// interval: the member that has it may have stopped. The others go on, because the network may
// just be slow. The first answer counts. So the request must be one to apply any number of
// times, or a transaction that finds out what an earlier copy has done. An error that says
// nothing of the request counts once no copy is under way.
//
// The copies have goroutines of their own: each may hang.
func send[T any](ctx context.Context, s *store, interval time.Duration, request func(context.Context) (T, error)) (a answer[T]) {
	began, limit, most := time.Now(), max(remaining(ctx), minRequest), s.copies
	if interval == once {
		limit, most = max(limit/3, minRequest), 1
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	next := time.NewTicker(cmp.Or(interval, limit))
	defer next.Stop()
	answers := make(chan answer[T], most) // room for the late ones: they are dropped
	over, grace := bounded.Done(), (<-chan time.Time)(nil)
	unsure, last := false, error(nil)
	for sent, under := 0, 0; ; {
		if sent < most && grace == nil {
			if err := s.fault(s.client.Ctx().Err()); err != nil {
				return answer[T]{err: err, unsure: unsure || under > 0} // the library would repeat the request for seconds
			}
			sent, under = sent+1, under+1
			s.background.Go(func() {
				got, err := request(bounded)
				answers <- answer[T]{got: got, err: s.fault(err)}
			})
		}
		s.reconnect()
		for again := false; !again; {
			select {
			case a = <-answers:
				under--
				unsure = unsure || driver.FateOf(a.err) == driver.Unknown
				if under == 0 || settled(a.err) {
					a.unsure = unsure || under > 0
					a.err = worded(ctx, a.err, last, time.Since(began))
					return a
				}
				last = cmp.Or(said(a.err), last)
			case <-next.C:
				again = true
			case <-over: // the library says soon whether the request was sent
				over, grace = nil, time.After(endGrace)
			case <-grace:
				a.unsure, a.err = true, worded(ctx, bounded.Err(), last, limit)
				return a
			}
		}
	}
}

// said returns err if it tells more than that the time is over.
func said(err error) error {
	if ended(err) {
		return nil
	}
	return err
}

// worded words the end of a bound that is not the caller's. The server knows the bound, too,
// and may be the first to say that the time is over, in its own words.
func worded(ctx context.Context, err, last error, took time.Duration) error {
	switch {
	case ended(err) && ctx.Err() == nil:
		return &driver.NoAnswer{From: "etcd", After: took, Last: last}
	case ended(err):
		return ctx.Err()
	case ctx.Err() != nil && driver.FateOf(err) == driver.NotSent:
		return &driver.Fault{Fate: driver.NotSent, Err: fmt.Errorf("%w: %w", ctx.Err(), err)}
	}
	return err
}

// write sends a transaction, with all the time that there is. unsure tells that a copy of it
// may have been applied, or may still be, whatever the answer is.
func (s *store) write(ctx context.Context, txn clientv3.Op) (resp *clientv3.TxnResponse, unsure bool, err error) {
	a := send(ctx, s, steady(ctx), func(ctx context.Context) (clientv3.OpResponse, error) { return s.client.Do(ctx, txn) })
	return a.got.Txn(), a.unsure, a.err
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
		return min(time.Until(deadline), maxRequest)
	}
	return maxRequest
}

// get reads keys. The read is linearizable.
func (s *store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (found, error) {
	a := send(ctx, s, steady(ctx), func(ctx context.Context) (found, error) {
		resp, err := s.client.Get(ctx, key, opts...)
		if err != nil {
			return found{}, err
		}
		return readOf(resp)
	})
	return a.got, a.err
}
