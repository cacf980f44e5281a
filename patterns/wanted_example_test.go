package patterns_test

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

func ExampleWanted() {
	store := memlock.NewStore(nil) // stands for the server that two processes share
	locker, err := memlock.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	other, err := memlock.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Close()

	ctx := context.Background()
	lock, err := locker.Lock(ctx, "reindex")
	if err != nil {
		fmt.Println(err)
		return
	}
	wanted, err := patterns.Wanted(ctx, locker, lock, 10*time.Millisecond)
	if err != nil {
		fmt.Println(err)
		return
	}
	urgent := make(chan error)
	go func() {
		urgent <- distlock.Do(ctx, other, "reindex", func(context.Context) error {
			fmt.Println("the urgent job has the lock")
			return nil
		})
	}()
	for {
		select {
		case <-wanted:
			fmt.Println("letting go, the rest is for later")
			fmt.Println(lock.Unlock(ctx), <-urgent)
			return
		case <-time.After(time.Millisecond): // a step of the long job
		}
	}
	// Output:
	// letting go, the rest is for later
	// the urgent job has the lock
	// <nil> <nil>
}
