package zklock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/zklock"
)

func ExampleOpen() {
	ctx := context.Background()
	locker, err := zklock.Open(ctx, "zk://zk1:2181,zk2:2181,zk3:2181", nil)
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

// A write to the same ensemble is refused unless the node of the lock is there.
func ExampleLock_Path() {
	pay := func(conn *zk.Conn, lock distlock.Lock) error {
		held, ok := distlock.As[*zklock.Lock](lock)
		if !ok {
			return errors.New("this needs a lock in ZooKeeper")
		}
		_, err := conn.Multi(
			&zk.CheckVersionRequest{Path: held.Path(), Version: 0},
			&zk.SetDataRequest{Path: "/order-42", Data: []byte("paid"), Version: -1})
		return err
	}
	_ = pay
}
