package main

import (
	"context"
	"fmt"
	"io"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/sandbox"
)

// tokenBase prints a number that no token of the store is above. The tokens of a name come
// from what rises for all names: the server's clock, or the number of its transactions. So
// the next token is above all before it, also of names without a holder: no listing shows
// those. A held name may be ahead, if the server's clock has gone back.
func (b *backend) tokenBase(ctx context.Context, w io.Writer) error {
	lock, err := b.locker.TryLock(ctx, "distlock-token-base-"+sandbox.RandomID())
	if err != nil {
		return b.failed(err)
	}
	held, err := distlock.List(ctx, b.locker, "")
	if err != nil {
		return b.failed(err)
	}
	highest := lock.Token()
	for _, st := range held {
		highest = max(highest, st.Token)
	}
	if err := lock.Unlock(ctx); err != nil {
		return b.failed(err)
	}
	_, err = fmt.Fprintln(w, highest)
	return err
}
