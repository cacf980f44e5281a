package driver_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// TestKeepBesideClose: a lock that is made a record while it is held stays in the store, however soon Close comes.
func TestKeepBesideClose(t *testing.T) {
	const locks = 2000
	store := memlock.NewStore(nil)
	rival, err := memlock.New(store, nil)
	testkit.Must(t, err)
	defer rival.Close()
	for round := range 12 {
		l, err := memlock.New(store, nil)
		testkit.Must(t, err)
		held := make([]distlock.Lock, locks)
		for i := range held {
			held[i], err = l.TryLock(t.Context(), fmt.Sprint(round, "/", i), distlock.TTL(time.Hour), distlock.NoRenewal())
			testkit.Must(t, err)
		}
		records := 0
		begun, kept := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(kept)
			for i, lock := range held {
				keep(lock)
				if lock.Err() != nil {
					return
				}
				records++
				if i == 0 {
					close(begun)
				}
			}
		}()
		<-begun
		testkit.Must(t, l.Close())
		<-kept
		if st, err := distlock.Inspect(t.Context(), rival, held[records-1].Name()); err != nil || !st.Held {
			t.Fatalf("after %d records, the last one is held: %v, %v", records, st.Held, err)
		}
	}
}

func keep(lock distlock.Lock) {
	record, _ := distlock.As[interface {
		distlock.Lock
		KeepOnClose()
	}](lock)
	record.KeepOnClose()
}

// TestRecordIsReported: the Observer is told of the end of each lock that it was told of, also of one that Close leaves in the
// store.
func TestRecordIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var active atomic.Int32
		l, err := memlock.New(memlock.NewStore(nil), &memlock.Options{Options: distlock.Options{Observer: &distlock.Observer{
			Acquired: func(distlock.Acquired) { active.Add(1) },
			Released: func(distlock.Released) { active.Add(-1) },
		}}})
		testkit.Must(t, err)
		lock, err := l.TryLock(t.Context(), "job", distlock.NoRenewal())
		testkit.Must(t, err)
		keep(lock)
		testkit.Must(t, l.Close())
		if n := active.Load(); n != 0 {
			t.Errorf("%d locks are active after Close", n)
		}
		if err := lock.Unlock(t.Context()); !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("the record stays in the store, and Unlock says %v", err)
		}
	})
}

// TestSweepThatIsRepeated: what the first call has removed counts.
func TestSweepThatIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &interrupted{Driver: memlock.NewDriver(memlock.NewStore(nil))}
		l, err := driver.New(d, nil)
		testkit.Must(t, err)
		defer l.Close()
		if n, err := l.Sweep(t.Context(), time.Hour); n != 5 || err != nil {
			t.Errorf("got %d, %v, want 5", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		d.stop = cancel
		if n, err := l.Sweep(ctx, time.Hour); n != 2 || !errors.Is(err, context.Canceled) {
			t.Errorf("stopped on its way: got %d, %v, want 2, and why it has stopped", n, err)
		}
	})
}

// interrupted has a Sweep that removes three names and is stopped, and then two.
type interrupted struct {
	driver.Driver
	calls int
	stop  func()
}

func (d *interrupted) Sweep(ctx context.Context, _ time.Duration) (int, error) {
	if d.calls++; d.calls == 1 {
		return 3, &driver.Fault{Fate: driver.Again, Err: errors.New("a statement_timeout")}
	}
	if d.stop != nil {
		d.stop()
		<-ctx.Done()
		return 2, ctx.Err()
	}
	return 2, nil
}
