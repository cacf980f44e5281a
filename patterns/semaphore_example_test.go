package patterns_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

func ExampleSemaphore() {
	locker, err := memlock.New(memlock.NewStore(nil), nil) // or backends.Open(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	ctx := context.Background()

	uploads := patterns.Semaphore(locker, 2) // at most two at a time, over all processes
	for range 2 {
		permit, err := uploads.Lock(ctx, "uploads")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer permit.Unlock(ctx)
	}
	_, err = uploads.TryLock(ctx, "uploads")
	fmt.Println("a third is refused:", errors.Is(err, distlock.ErrHeld))
	// Output: a third is refused: true
}

func ExampleReadWrite() {
	locker, err := memlock.New(memlock.NewStore(nil), nil) // or backends.Open(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	ctx := context.Background()

	read, write := patterns.ReadWrite(locker, 8) // eight readers at a time, the same in all processes
	for range 2 {
		reader, err := read.Lock(ctx, "catalogue")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer reader.Unlock(ctx)
	}
	_, err = write.TryLock(ctx, "catalogue")
	fmt.Println("a writer has to wait for the readers:", errors.Is(err, distlock.ErrHeld))
	// Output: a writer has to wait for the readers: true
}
