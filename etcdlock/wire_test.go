package etcdlock

import (
	"context"
	"path"
	"reflect"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/distlock-go/distlock/internal/testkit"
)

// fault is what becomes of a request.
type fault int

const (
	pass       fault = iota
	loseReply        // the server has done it, the client is told that it was not in time
	late             // the client is told so at once, the server gets it when wire.deliver is called
	broken           // the server has done it, and the connection breaks before the client is told
	brokenLate       // the connection breaks, the server gets it when wire.deliver is called
	silent           // the server has done it, and the client is never told
	hang             // nobody gets anything, like that to a stopped member
	stopped          // like hang, and the member goes on when wire.deliver is called
	overQuota        // the server has done it, the client is told that there is no space left
	timedOut         // like hang, but the server is the first to say that the time is over
	refuse           // nobody gets it, and the client is told at once, as by a host where nobody listens
	deposed          // the member asked is not the leader any more, and does not do it
	garbled          // the server has done it, and the client gets the answer to something else
	full             // the server has no space, and does not do it
	denied           // the server refuses it for good
	compacted        // the revision that it asks for is gone
)

// wire sits below the client library's own retries, so it sees every request that
// goes to the server, and decides what becomes of it.
type wire struct {
	mu      sync.Mutex
	judge   func(method string) fault
	counts  map[string]int // by method, like "Txn", or "Peek" if that reads only; streams count when they are opened
	delayed []func()
}

func newWire() *wire { return &wire{counts: make(map[string]int)} }

// faults sets what happens from now on; nil lets everything pass.
func (w *wire) faults(judge func(method string) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge = judge
}

// next sets what happens to the next request of a method.
func (w *wire) next(method string, f fault) {
	done := false
	w.faults(func(m string) fault {
		if m != method || done {
			return pass
		}
		done = true
		return f
	})
}

// each sets what happens to all requests of a method from now on.
func (w *wire) each(method string, f fault) {
	w.faults(func(m string) fault {
		if m == method {
			return f
		}
		return pass
	})
}

func (w *wire) see(fullMethod string) fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	method := path.Base(fullMethod)
	w.counts[method]++
	if w.judge == nil {
		return pass
	}
	return w.judge(method)
}

func (w *wire) count(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[method]
}

// deliver sends what was delayed, in order, and returns when it is done.
func (w *wire) deliver() {
	w.mu.Lock()
	delayed := w.delayed
	w.delayed = nil
	w.mu.Unlock()
	for _, send := range delayed {
		send()
	}
}

// errDeposed is what etcd has no code for (lease.ErrNotPrimary).
var errDeposed = status.Error(codes.Unknown, "not a primary lessor")

// errUnanswered is what a server says of a request that may have been done, or may yet be.
var errUnanswered = rpctypes.ErrGRPCTimeout

// errBroken is what gRPC says of a request on a connection that has ended, as with the process of a member.
var errBroken = status.Error(codes.Unavailable, "error reading from server: EOF")

func (w *wire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	seen := method
	if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Compare) == 0 && txn.Success[0].GetRequestTxn() == nil {
		seen = "Peek"
	}
	switch f := w.see(seen); f {
	case loseReply, broken:
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		if f == broken {
			return errBroken
		}
		return errUnanswered
	case late, brokenLate, stopped:
		w.mu.Lock()
		detached := context.WithoutCancel(ctx)
		unheard := reflect.New(reflect.TypeOf(reply).Elem()).Interface() // what the server says to it then
		// Without the options: one of them is written with the answer, and its caller has it.
		w.delayed = append(w.delayed, func() { _ = invoke(detached, method, req, unheard, cc) })
		w.mu.Unlock()
		switch f {
		case stopped:
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		case brokenLate:
			return errBroken
		}
		return errUnanswered
	case overQuota:
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		return rpctypes.ErrGRPCNoSpace
	case garbled:
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		reply.(*pb.TxnResponse).Responses = nil
		return nil
	case silent:
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		fallthrough
	case hang:
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case timedOut:
		end, _ := ctx.Deadline()
		select {
		case <-time.After(time.Until(end) - 10*time.Millisecond):
		case <-ctx.Done():
		}
		return rpctypes.ErrGRPCTimeout
	case refuse:
		return errBroken
	case deposed:
		return errDeposed
	case full:
		return rpctypes.ErrGRPCNoSpace
	case denied:
		return rpctypes.ErrGRPCPermissionDenied
	case compacted:
		return rpctypes.ErrGRPCCompacted
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	switch w.see(method) {
	case hang:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case deposed:
		return nil, errDeposed
	}
	s, err := open(ctx, desc, cc, method, opts...)
	return wired{s, w}, err
}

// wired counts the watches begun on a stream.
type wired struct {
	grpc.ClientStream
	wire *wire
}

func (s wired) SendMsg(m any) error {
	if r, ok := m.(*pb.WatchRequest); ok && r.GetCreateRequest() != nil {
		if s.wire.see("WatchCreate"); r.GetCreateRequest().StartRevision != 0 {
			s.wire.see("WatchPast")
		}
	}
	return s.ClientStream.SendMsg(m)
}

// client returns a client to addr with the wire between the two.
func (w *wire) client(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr},
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(w.stream),
		},
	})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
