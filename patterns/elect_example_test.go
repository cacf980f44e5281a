package patterns_test

import (
	"context"
	"fmt"

	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

func ExampleElect() {
	locker, err := memlock.New(memlock.NewStore(nil), nil) // or backends.Open(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	ctx, stop := context.WithCancel(context.Background())
	started := make(chan struct{})
	election := patterns.Elect(ctx, locker, "scheduler", func(ctx context.Context, term int64) error {
		fmt.Println("leader from now on, term", term)
		close(started)
		<-ctx.Done() // the work of a leader goes here, until its term ends
		return nil
	})

	<-started
	term, leads := election.Leader()
	fmt.Println("leads:", leads, "term:", term)
	stop()
	fmt.Println("left:", election.Wait())
	// Output:
	// leader from now on, term 1
	// leads: true term: 1
	// left: context canceled
}
