package driver_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

func TestUnlockRacesRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		n.use(on("renew", slow(4*time.Millisecond)))
		for range 1000 {
			lock := mustLock(t, bg, l, "x", distlock.TTL(300*time.Millisecond))
			time.Sleep(95*time.Millisecond + rand.N(12*time.Millisecond))
			mustUnlock(t, bg, lock)
			probe, err := rival.TryLock(healthy(), "x")
			if err != nil {
				t.Fatalf("busy right after Unlock: %v", err)
			}
			time.Sleep(10 * time.Millisecond)
			if probe.Err() != nil {
				t.Fatal(probe.Err())
			}
			mustUnlock(t, healthy(), probe)
		}
	})
}

func TestDo(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, rival *memlock.Locker) {
		errOwn := errors.New("own")
		err := distlock.Do(bg, l, "x", func(ctx context.Context) error {
			if lock, ok := distlock.FromContext(ctx); !ok || lock.Err() != nil {
				t.Error("the context carries no held lock")
			}
			return errOwn
		})
		if err != errOwn {
			t.Errorf("got %v", err)
		}
		err = distlock.Do(bg, l, "x", func(ctx context.Context) error {
			testkit.Should(t, distlock.Break(bg, rival, "x", 0))
			<-ctx.Done()
			wantErr(t, "cause", context.Cause(ctx), distlock.ErrLost)
			return nil
		})
		wantErr(t, "Do", err, distlock.ErrLost)
		// What fn says of another lock does not hide the loss.
		other := fmt.Errorf("of another lock: %w", distlock.ErrUnlocked)
		err = distlock.Do(bg, l, "x", func(ctx context.Context) error {
			testkit.Should(t, distlock.Break(bg, rival, "x", 0))
			<-ctx.Done()
			return other
		})
		wantErr(t, "Do", err, distlock.ErrLost)
		wantErr(t, "Do", err, other)
		// A loss is said once, and on one line.
		for _, more := range []error{nil, errOwn} {
			err = distlock.Do(bg, l, "x", func(ctx context.Context) error {
				testkit.Should(t, distlock.Break(bg, rival, "x", 0))
				<-ctx.Done()
				return cmp.Or(more, context.Cause(ctx))
			})
			wantErr(t, "Do", err, distlock.ErrLost)
			if more != nil {
				wantErr(t, "Do", err, more)
			}
			if text := err.Error(); strings.Count(text, "lock lost") != 1 || strings.Contains(text, "\n") {
				t.Errorf("the loss is said as %q", text)
			}
		}
		mustPanic(t, "in fn", func() {
			_ = distlock.Do(bg, l, "x", func(context.Context) error { panic("in fn") })
		})
		if _, err := rival.TryLock(bg, "x"); err != nil {
			t.Errorf("a panic left the lock: %v", err)
		}
	})
}

// The outcome is known: the context of a later call must not hide it.
func TestUnlockAgainReportsTheSame(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x")
		mustUnlock(t, bg, lock)
		done, cancel := context.WithCancel(bg)
		cancel()
		for range 50 { // a choice at random would pass a single try
			if err := lock.Unlock(done); err != nil {
				t.Fatalf("Unlock again: %v", err)
			}
		}
	})
}

// A driver may return the cause of its context, as net/http does. The store may have been asked all the same.
func TestCloseUndoesWhatEndsByItsCause(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		n.use(on("try", func(ctx context.Context, _ memlock.Call, apply func()) (bool, error) {
			apply()
			<-ctx.Done()
			return true, context.Cause(ctx)
		}))
		told := make(chan error, 1)
		go func() {
			_, err := l.Lock(bg, "x")
			told <- err
		}()
		time.Sleep(time.Second)
		testkit.Should(t, l.Close())
		wantErr(t, "Lock beside Close", <-told, distlock.ErrClosed)
		if _, err := rival.TryLock(healthy(), "x"); err != nil {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A grant that is on its way when Close is called is undone before Close returns,
// because the driver is closed then.
func TestCloseUndoesWhatIsInFlight(t *testing.T) {
	for range 200 {
		bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
			n.use(on("try", slow(time.Second)))
			var wg sync.WaitGroup
			var lock distlock.Lock
			var err error
			wg.Go(func() { lock, err = l.Lock(bg, "x") })
			time.Sleep(time.Second) // the reply comes at this very moment
			testkit.Should(t, l.Close())
			if _, err := rival.TryLock(healthy(), "x"); err != nil {
				t.Errorf("after Close: %v", err)
			}
			wg.Wait()
			if err == nil { // granted just before
				err = lock.Err()
			}
			if !errors.Is(err, distlock.ErrClosed) && !errors.Is(err, distlock.ErrUnlocked) {
				t.Errorf("Lock beside Close: %v", err)
			}
		})
	}
}

// TestNilContext: the lock that a caller of Unlock or Extend has passed no context to is held as before.
func TestNilContext(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, rival *memlock.Locker) {
		lock := mustLock(t, bg, l, "x")
		var none context.Context
		mustPanic(t, "unlock of a nil context", func() { _ = lock.Unlock(none) })
		mustPanic(t, "extend of a nil context", func() { _ = lock.Extend(none, time.Minute) })
		wantErr(t, "after it", lock.Err(), nil)
		mustUnlock(t, bg, lock)
		if _, err := rival.TryLock(healthy(), "x"); err != nil {
			t.Error(err)
		}
	})
}
