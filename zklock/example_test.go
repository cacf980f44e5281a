package zklock_test

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/zklock"
)

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
