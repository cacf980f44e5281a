package etcdlock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// answers gives each request the next part of some bytes as its answer, whatever they
// mean. A part begins with its length. One that is no answer at all is an error.
type answers struct {
	grpc.ClientStream
	mu   sync.Mutex
	left []byte
}

func (a *answers) next(reply any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.left) == 0 {
		return status.Error(codes.PermissionDenied, "there are no more answers")
	}
	n := min(int(a.left[0]), len(a.left)-1)
	part := a.left[1 : 1+n]
	a.left = a.left[1+n:]
	if n == 0 {
		return status.Error(codes.Unavailable, "no answer")
	}
	return encoding.GetCodecV2(proto.Name).Unmarshal(mem.BufferSlice{mem.SliceBuffer(part)}, reply)
}

func (a *answers) SendMsg(any) error       { return nil }
func (a *answers) RecvMsg(reply any) error { return a.next(reply) }

// store returns a store with a client that these answers go to.
func (a *answers) store(t *testing.T) *store {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"127.0.0.1:1"}, // never dialled
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
				return a.next(reply)
			}),
			grpc.WithChainStreamInterceptor(func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
				return a, nil
			}),
		},
	})
	testkit.Must(t, err)
	st, err := newDriver(client, "p", true)
	testkit.Must(t, err)
	return st
}

// add appends answers to some bytes.
func add(b []byte, all ...any) []byte {
	for _, m := range all {
		part, err := encoding.GetCodecV2(proto.Name).Marshal(m)
		if err != nil {
			panic(err)
		}
		b = append(append(b, byte(part.Len())), part.Materialize()...)
	}
	return b
}

// A part of the answer to a batch may be that to something else: a release expects no reads.
func TestPartOfBatch(t *testing.T) {
	if did, err := (txn{}).outcome((&pb.ResponseOp{}).GetResponseTxn(), 7); !errors.Is(err, errGarbled) {
		t.Errorf("the outcome is %+v, %v, want %v", did, err, errGarbled)
	}
}

// No answer makes the driver panic, or repeat its requests for ever.
func FuzzAnswers(f *testing.F) {
	header := &pb.ResponseHeader{Revision: 7}
	kv := func(key string, lease int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), CreateRevision: 7, ModRevision: 7, Lease: lease, Value: []byte("holder")}
	}
	op := func(kvs ...*mvccpb.KeyValue) *pb.ResponseOp {
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: kvs}}}
	}
	put := &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}
	txn := func(done bool, ops ...*pb.ResponseOp) *pb.TxnResponse {
		return &pb.TxnResponse{Header: header, Succeeded: done, Responses: ops}
	}
	grant := &pb.LeaseGrantResponse{TTL: 12}
	for _, answers := range [][]any{
		{},
		{grant, txn(true, put, op(kv("a", 1)))},
		{grant, txn(true, put, op(kv("a", 1), kv("b", 1)))},
		{grant, txn(true, put)},
		{grant, txn(true)},
		{grant, txn(true, put, put)},
		{grant, txn(true, op(), op())},
		{grant, &pb.TxnResponse{Succeeded: true, Responses: []*pb.ResponseOp{put, op(kv("a", 1))}}},
		{grant, txn(false)},
		{grant, txn(false, op(kv("b", 1)))},
		{grant, txn(false, op(kv("b", 1)), op())},
		{grant, txn(false, op(), op(kv("e", 1))), txn(false, op(), op(kv("e", 2))), grant, txn(false, op()), txn(false, op())},
		{grant, txn(false, put, put)},
		{grant, txn(false, &pb.ResponseOp{}, &pb.ResponseOp{})},
		{&pb.LeaseGrantResponse{TTL: 1}, &pb.LeaseKeepAliveResponse{TTL: 1}},
		{&pb.LeaseGrantResponse{TTL: 1 << 60}, &pb.LeaseKeepAliveResponse{TTL: 1 << 60}, txn(true, put, op(kv("a", 1)))},
		{&pb.RangeResponse{}, &pb.RangeResponse{Header: header}, &pb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{kv("p/x!a", 1), {}}}},
	} {
		for without := range 4 {
			f.Add(byte(without), add(nil, answers...))
		}
	}
	f.Fuzz(func(t *testing.T, how byte, parts []byte) {
		a := &answers{left: parts}
		st := a.store(t)
		defer st.Close()
		ctx := t.Context()
		c := st.Claim(driver.Request{Name: "x", TTL: 10 * time.Second, NoWait: how&1 != 0, NoRenewal: how&2 != 0}).(*claim)
		for range 2 {
			if g, err := c.Try(ctx); err == nil && (g.Token <= 0 || g.TTL > c.request.TTL) {
				t.Errorf("the grant is %+v", g)
			}
		}
		_, _ = st.Inspect(ctx, "x")
		_, _ = st.List(ctx, "")
		_ = st.Break(ctx, "x", 7)
		if c.lease != nil {
			other := *c
			batch := []driver.Renewal{{Claim: c, TTL: c.request.TTL}, {Claim: &other, TTL: c.request.TTL}}
			st.Renew(ctx, batch)
			_, _ = c.Renew(ctx, time.Hour)
		}
		_ = c.Release(ctx)
		_ = c.Release(ctx)
	})
}
