package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/etcdlock"
	"github.com/distlock-go/distlock/internal/servers"
)

var bareTransactions = Contender{
	Name: "bare: our two transactions", Backend: servers.Etcd, Role: Bare, Module: etcdModule,
	Note: "The transactions of distlock's driver, recorded from it and sent by the client's gRPC connection alone: what is left to distlock is the portable half and the driver.",
	Open: openTransactions,
}

type transactionsClient struct {
	*clientv3.Client
	kv         pb.KVClient
	locker     *etcdlock.Locker // keeps the lease alive that the keys are on
	recorded   *clientv3.Client // of the locker
	was        string           // the name that was recorded
	token      int64            // the token of it
	take, free *pb.TxnRequest

	named sync.Map // name to [2]*pb.TxnRequest
}

func openTransactions(ctx context.Context, t Target) (Client, error) {
	client, err := openEtcd(t)
	if err != nil {
		return nil, err
	}
	var sent recorder[*pb.TxnRequest]
	recorded, err := openEtcd(t, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any,
		conn *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if txn, ok := request.(*pb.TxnRequest); ok {
			sent.add(proto.CloneOf(txn))
		}
		return next(ctx, method, request, reply, conn, opts...)
	}))
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	c := &transactionsClient{Client: client, kv: pb.NewKVClient(client.ActiveConnection()), recorded: recorded, was: recordedName()}
	c.locker, err = etcdlock.New(recorded, &etcdlock.Options{Options: distlock.Options{TTL: t.TTL}})
	if err == nil {
		// As long as this is held, its lease lives, which all of them share.
		_, err = c.locker.Lock(ctx, recordedName())
	}
	if err == nil {
		c.take, c.free, c.token, err = sent.lockUnlock(ctx, c.locker, c.was)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *transactionsClient) Lock(ctx context.Context, name string) (Held, error) {
	take, free := c.requests(name)
	got, err := c.kv.Txn(ctx, take)
	if err == nil && !got.Succeeded {
		err = fmt.Errorf("the transaction that takes a lock has not taken %q", name)
	}
	if err != nil {
		return nil, err
	}
	return bareHeld(func(ctx context.Context) error {
		request := proto.CloneOf(free)
		for _, compared := range request.Compare {
			if rev, ok := compared.TargetUnion.(*pb.Compare_CreateRevision); ok && rev.CreateRevision == c.token {
				rev.CreateRevision = got.Header.Revision
			}
		}
		gone, err := c.kv.Txn(ctx, request)
		return refused(gone.GetSucceeded(), err)
	}), nil
}

// requests returns the two transactions with another name, which are made once: they
// are the same each time, but for the token.
func (c *transactionsClient) requests(name string) (take, free *pb.TxnRequest) {
	made, ok := c.named.Load(name)
	if !ok {
		take, free = proto.CloneOf(c.take), proto.CloneOf(c.free)
		rename(take.ProtoReflect(), []byte(c.was), []byte(name))
		rename(free.ProtoReflect(), []byte(c.was), []byte(name))
		made, _ = c.named.LoadOrStore(name, [2]*pb.TxnRequest{take, free})
	}
	both := made.([2]*pb.TxnRequest)
	return both[0], both[1]
}

// rename puts one name in the place of another in all bytes of a message: keys, and
// ends of ranges.
func rename(m protoreflect.Message, from, to []byte) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				rename(v.List().Get(i).Message(), from, to)
			}
		case f.Message() != nil:
			rename(v.Message(), from, to)
		case f.Kind() == protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes(bytes.ReplaceAll(v.Bytes(), from, to)))
		}
		return true
	})
}

func (c *transactionsClient) Close() error {
	var errs []error
	if c.locker != nil {
		errs = append(errs, c.locker.Close())
	}
	return errors.Join(append(errs, c.recorded.Close(), c.Client.Close())...)
}
