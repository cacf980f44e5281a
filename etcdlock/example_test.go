package etcdlock_test

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/etcdlock"
)

// A transaction on the same cluster is applied only if the lock is held at that instant.
func ExampleLock_Cmp() {
	pay := func(ctx context.Context, client *clientv3.Client, lock distlock.Lock) error {
		held, ok := distlock.As[*etcdlock.Lock](lock)
		if !ok {
			return errors.New("this needs a lock in etcd")
		}
		reply, err := client.Txn(ctx).If(held.Cmp()).Then(clientv3.OpPut("orders/42", "paid")).Commit()
		if err == nil && !reply.Succeeded {
			err = distlock.ErrLost
		}
		return err
	}
	_ = pay
}
