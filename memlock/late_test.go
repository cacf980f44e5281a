package memlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock/memlock"
)

// A request that is applied when its caller has left, and its claim was released, leaves
// nothing behind; nor does it touch what the caller goes on to use.
func TestLateRequests(t *testing.T) {
	for _, op := range []string{"try", "renew", "release"} {
		t.Run(op, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var mu sync.Mutex
			var late []func()
			delay := func(request context.Context, c memlock.Call, apply func()) error {
				mu.Lock()
				first := c.Op == op && late == nil
				if first {
					late = append(late, apply)
				}
				mu.Unlock()
				if first {
					cancel()
					<-request.Done()
					return request.Err()
				}
				apply()
				return nil
			}
			store := memlock.NewStore(&memlock.StoreOptions{Intercept: delay})
			a, err := memlock.New(store, nil)
			if err != nil {
				t.Fatal(err)
			}
			lock, err := a.Lock(ctx, "x")
			if err == nil {
				_ = lock.Extend(ctx, time.Minute) // or its answer is lost
				_ = lock.Unlock(ctx)
			}
			if err := a.Close(); err != nil { // what is left is released
				t.Fatal(err)
			}
			for _, apply := range late {
				apply()
			}
			if late == nil {
				t.Fatal("no request was late")
			}
			b, err := memlock.New(store, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if _, err := b.TryLock(t.Context(), "x"); err != nil {
				t.Errorf("the name is not free: %v", err)
			}
		})
	}
}

// TestCloseTellsOfWhatIsLeft: a grant that nobody was told of could not be undone. Close says so.
func TestCloseTellsOfWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := errors.New("cut off")
		store := memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, c memlock.Call, apply func()) error {
			if c.Op == "try" {
				apply()
			}
			return cut
		}})
		l, err := memlock.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryLock(t.Context(), "x"); !errors.Is(err, cut) {
			t.Errorf("TryLock: %v", err)
		}
		if err := l.Close(); err == nil || !strings.Contains(err.Error(), "1 of its calls have failed and could not be undone; what they may have left ends with their TTL: cut off") {
			t.Errorf("Close: %v", err)
		}
	})
}
