package etcdlock_test

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/etcdlock"
)

func ExampleOpen() {
	ctx := context.Background()
	locker, err := etcdlock.Open(ctx, "etcd://etcd1:2379,etcd2:2379,etcd3:2379", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	err = distlock.Do(ctx, locker, "orders/42", func(ctx context.Context) error {
		return nil // pay it; ctx ends if the lock is lost
	})
	fmt.Println(err)
}

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
