package patterns_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

func ExampleMaxHold() {
	locker, err := memlock.New(memlock.NewStore(nil), nil) // or backends.Open(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	limited := patterns.MaxHold(locker, 100*time.Millisecond)
	err = distlock.Do(context.Background(), limited, "report", func(ctx context.Context) error {
		<-ctx.Done() // stands for work that takes too long, but heeds its context
		return nil
	})
	fmt.Println("lost:", errors.Is(err, distlock.ErrLost))
	fmt.Println(err)
	// Output:
	// lost: true
	// distlock: lock "report": lock lost: held for nine tenths of 100ms, the longest that MaxHold allows
}
