package patterns_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// locker returns a Locker that needs no server. Programs call backends.Open.
func locker() distlock.Locker {
	l, err := memlock.New(memlock.NewStore(nil), nil)
	if err != nil {
		panic(err) // only options can be wrong
	}
	return l
}

func ExampleLockAll() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	// In whatever order the names come: two calls never deadlock.
	locks, err := patterns.LockAll(ctx, locker, []string{"accounts/7", "accounts/3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("from", locks.Lock("accounts/7").Name(), "to", locks.Lock("accounts/3").Name())
	fmt.Println(locks.Unlock(ctx))
	// Output:
	// from accounts/7 to accounts/3
	// <nil>
}

func ExampleReentrant() {
	locker := patterns.Reentrant(locker())
	defer locker.Close()
	ctx := patterns.WithOwner(context.Background()) // where a unit of work begins
	outer, err := locker.Lock(ctx, "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	inner, err := locker.Lock(ctx, "orders/42") // further down in the same unit of work
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("one token:", inner.Token() == outer.Token())
	_, err = locker.TryLock(patterns.WithOwner(context.Background()), "orders/42")
	fmt.Println("held for others:", errors.Is(err, distlock.ErrHeld))
	fmt.Println(inner.Unlock(ctx), outer.Unlock(ctx))
	// Output:
	// one token: true
	// held for others: true
	// <nil> <nil>
}

func ExampleShard() {
	locker, err := patterns.Shard(map[string]distlock.Locker{"redis-1": locker(), "redis-2": locker()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close() // closes the shards
	lock, err := locker.Lock(context.Background(), "orders/42")
	fmt.Println(lock.Name(), err)
	// Output: orders/42 <nil>
}

func ExamplePrefix() {
	ctx, all := context.Background(), locker()
	defer all.Close()
	billing := patterns.Prefix(all, "billing/")
	lock, err := billing.Lock(ctx, "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Unlock(ctx)
	held, err := distlock.List(ctx, all, "")
	fmt.Println(lock.Name(), held[0].Name, err)
	// Output: invoices billing/invoices <nil>
}
