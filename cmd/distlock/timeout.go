package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// timeout is --timeout, of the commands that look at locks or break them: without it they
// would wait for ever for a server that accepts connections and says nothing.
type timeout struct{ time.Duration }

func (t *timeout) add(cmd *cobra.Command, usage string) {
	cmd.Flags().DurationVar(&t.Duration, "timeout", 10*time.Second, usage)
}

func (t timeout) check() error {
	if t.Duration <= 0 {
		return fmt.Errorf("--timeout is %v, allowed is more than 0", t.Duration)
	}
	return nil
}

// bound calls ask with a context that ends after --timeout. An error says so, if it comes from that.
func (t timeout) bound(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.Duration)
	defer cancel()
	err := ask(ctx)
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return &exit{status: statusUnavailable, err: fmt.Errorf("no answer within %v (--timeout): %s", t.Duration, named(err.Error()))}
}

// open is openBackend within --timeout.
func (t timeout) open(cmd *cobra.Command) (b *backend, err error) {
	err = t.bound(cmd.Context(), func(ctx context.Context) error {
		b, err = openBackend(ctx, cmd)
		return err
	})
	return b, err
}
