package main

import (
	"context"
	"fmt"

	"github.com/distlock-go/distlock"
)

// locked returns fn with a lock around each call, on the name that key makes of the
// argument: what @Lock("order/" + id) is above a method elsewhere. Calls with one key run
// one after the other, in whatever process, and those with different keys side by side.
func locked[A, R any](l distlock.Locker, key func(A) string, fn func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	return func(ctx context.Context, arg A) (result R, err error) {
		err = distlock.Do(ctx, l, key(arg), func(ctx context.Context) error {
			result, err = fn(ctx, arg)
			return err
		})
		return result, err
	}
}

// pay takes the message that an order was paid for. The payment provider sends it to each
// process: it repeats what was not confirmed in time.
func (w *worker) pay(ctx context.Context) error {
	pay := w.payOrder
	if w.locker != nil {
		pay = locked(w.locker, func(order int) string { return fmt.Sprint("order/", order) }, pay)
	}
	for i := range orders {
		order := (i + w.Worker) % orders
		first, err := pay(ctx, order)
		if err == nil && !first {
			err = w.tell(ctx, "order %d was paid before", order)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// payOrder marks an order as paid and gives its customer the points for it. It reports
// false if that was done before. It has no thought of other processes.
func (w *worker) payOrder(ctx context.Context, order int) (first bool, err error) {
	state := fmt.Sprint("state of order ", order)
	paid, err := w.read(ctx, state)
	if err != nil || paid == 1 {
		return false, err
	}
	if err := w.add(ctx, fmt.Sprint("points of customer ", order), points); err != nil {
		return false, err
	}
	if err := w.write(ctx, state, 1); err != nil {
		return false, err
	}
	return true, w.tell(ctx, "order %d paid, %d points for customer %d", order, points, order)
}
