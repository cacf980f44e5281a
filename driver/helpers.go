package driver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock/internal/stack"
)

// eachParallel is how many renewals of one batch RenewEach sends side by side. An Unlock
// waits for the entries of its batch sent before its own: at 300 ms a request, for two
// seconds at the most.
const eachParallel = 64

// RenewEach renews a batch by a call of renew for each entry, a few side by side, and
// passes on each answer at once. It is for drivers that cannot renew many claims in one
// request. A call that hangs soon lets the next begin beside it. A panic in one is passed on
// when all have returned.
func RenewEach(ctx context.Context, batch []Renewal, renew func(ctx context.Context, c Claim, ttl time.Duration) (Grant, error)) {
	if len(batch) == 1 {
		batch[0].Answer(renew(ctx, batch[0].Claim, batch[0].TTL))
		return
	}
	share := maxCall / slotShare
	if end, ok := ctx.Deadline(); ok {
		share = time.Until(end) / slotShare
	}
	slots := make(slots, eachParallel)
	var running sync.WaitGroup
	var failed atomic.Pointer[panicked]
	for i := range batch {
		r := &batch[i]
		free := slots.take(share, ctx.Done())
		if free == nil {
			r.Answer(Grant{}, ctx.Err())
			continue
		}
		running.Go(func() {
			defer free()
			defer func() {
				if v := recover(); v != nil {
					p := asPanic(v)
					failed.Store(p)
					r.Answer(Grant{}, p.err())
				}
			}()
			r.Answer(renew(ctx, r.Claim, r.TTL))
		})
	}
	running.Wait()
	if p := failed.Load(); p != nil {
		panic(p)
	}
}

// Detach runs f in a goroutine of its own and returns its result, or the error of ctx as
// soon as ctx ends. Then f goes on alone, and its result is dropped: so f must not touch
// what its caller goes on to use, such as the fields of a claim.
//
// It is for calls into client libraries that cannot be interrupted. A panic in f is passed on
// to the caller, if that is still there.
func Detach[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value    T
		err      error
		panicked *panicked
	}
	if ctx.Done() == nil {
		return f()
	}
	done := make(chan result, 1) // one element, so that nobody has to be there for the result
	go func() {
		stack.Grow()
		var r result
		defer func() {
			if v := recover(); v != nil {
				r.panicked = asPanic(v)
			}
			done <- r
		}()
		r.value, r.err = f()
	}()
	select {
	case r := <-done:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
