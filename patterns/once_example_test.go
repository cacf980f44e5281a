package patterns_test

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

func ExampleOncePer() {
	store := memlock.NewStore(nil) // stands for the server that three schedulers share
	for scheduler := range 3 {
		locker, err := memlock.New(store, nil) // or backends.Open(ctx, url)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer locker.Close()
		// Each of them does this once a minute, at about the same time.
		ran, err := patterns.OncePer(context.Background(), locker, "invoices", time.Minute, func(ctx context.Context) error {
			fmt.Println("sending the invoices")
			return nil
		})
		fmt.Println("scheduler", scheduler, "ran it:", ran, err)
	}
	// Output:
	// sending the invoices
	// scheduler 0 ran it: true <nil>
	// scheduler 1 ran it: false <nil>
	// scheduler 2 ran it: false <nil>
}
