package redislock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/redislock"
)

func ExampleOpen() {
	ctx := context.Background()
	locker, err := redislock.Open(ctx, "redis://localhost:6379/0?prefix=shop:", nil)
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

// A client of the program's own stays open when the Locker is closed.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	o := &redislock.Options{}
	o.TTL = 10 * time.Second
	locker, err := redislock.New(client, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
}
