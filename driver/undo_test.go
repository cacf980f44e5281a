package driver_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
)

// A Lock that was cancelled has left the store's queue when it returns: a TryLock that comes then is not refused for it.
func TestCancelledHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l, rival := faulty(t, nil)
		n.use(func(_ context.Context, _ memlock.Call, apply func()) (bool, error) {
			time.Sleep(time.Millisecond)
			apply()
			return true, nil
		})
		lock := mustLock(t, healthy(), rival, "x")
		ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
		defer cancel()
		_, err := l.Lock(ctx, "x")
		wantErr(t, "Lock", err, context.DeadlineExceeded)
		_ = lock.Unlock(healthy())
		lock, err = rival.TryLock(healthy(), "x")
		if err != nil {
			t.Fatalf("TryLock after the Unlock: %v", err)
		}
		// Where the undo hangs, the call returns all the same.
		n.use(on("release", func(ctx context.Context, _ memlock.Call, _ func()) (bool, error) {
			<-ctx.Done()
			return true, ctx.Err()
		}))
		ctx, cancel = context.WithTimeout(bg, time.Second)
		defer cancel()
		began := time.Now()
		_, err = l.Lock(ctx, "x")
		wantErr(t, "Lock", err, distlock.ErrHeld)
		if late := time.Since(began) - time.Second; late > 30*time.Millisecond {
			t.Errorf("Lock returned %v after the end of its context", late)
		}
		n.use()
		_ = lock.Unlock(bg)
	})
}

// A call that meets a lock of its own Locker is told so, whether it waits or not.
func TestOwnLockIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, rival *memlock.Locker) {
		mustLock(t, bg, l, "x")
		for locker, own := range map[*memlock.Locker]bool{l: true, rival: false} {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			_, waited := locker.Lock(ctx, "x")
			_, tried := locker.TryLock(bg, "x")
			for what, err := range map[string]error{"Lock": waited, "TryLock": tried} {
				wantErr(t, what, err, distlock.ErrHeld)
				if strings.Contains(err.Error(), "a lock of this Locker") != own {
					t.Errorf("%s, of a lock of its own: %v: %v", what, own, err)
				}
			}
		}
	})
}
