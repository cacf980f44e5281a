package turns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock/driver"
)

var errLocked = &driver.Fault{Fate: driver.Again, Err: errors.New("the row was not to be had")}

func newTurns(conns int, linger time.Duration) *Turns {
	return New(conns, linger, func(err error) bool { return errors.Is(err, errLocked) })
}

func answers(err error) func() error { return func() error { return err } }

// A statement that was given up keeps the next of its kind waiting until one about the name is answered, or for a while.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTurns(4, time.Minute)
		waits := func(kind Kind) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			return l.Run(ctx, "n", kind, answers(nil))
		}
		if err := l.Run(t.Context(), "n", Trying, answers(context.Canceled)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := waits(Trying); !errors.Is(err, context.DeadlineExceeded) || driver.FateOf(err) != driver.NotSent {
			t.Fatalf("a try behind one that was given up: %v, want the end of its context", err)
		}
		if err := waits(Releasing); err != nil {
			t.Fatalf("a release: %v", err)
		}
		if err := waits(Trying); err != nil {
			t.Fatalf("a try after the release was answered: %v", err)
		}
		began := time.Now()
		_ = l.Run(t.Context(), "n", Trying, answers(context.Canceled))
		for waits(Trying) != nil { // until the server must have ended it
		}
		if took := time.Since(began); took != maxLinger {
			t.Errorf("the turn was given back after %s, want %s", took, maxLinger)
		}
		if len(l.names) != 0 || l.blocked.Has("n") || len(l.slow) != 0 || len(l.claims) != 0 {
			t.Errorf("left behind: %d names, %d slow, %d claims, blocked=%t", len(l.names), len(l.slow), len(l.claims), l.blocked.Has("n"))
		}
	})
}

// A statement that hangs has its turn, and its slot of the half, for as long as the server may wait for the row.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTurns(8, time.Second)
		l.blocked.Set("n", blockedFor)
		if sent := hangs(t, l, 1, Trying, "n"); sent != 1 {
			t.Fatalf("%d were sent", sent)
		}
		began := time.Now()
		if err := l.Run(t.Context(), "n", Trying, answers(nil)); err != nil || time.Since(began) != time.Second {
			t.Errorf("the next was sent after %s, want a second; %v", time.Since(began), err)
		}
		if len(l.names) != 0 || len(l.slow) != 0 {
			t.Errorf("left behind: %d names, %d slow", len(l.names), len(l.slow))
		}
	})
}

// A panic in a client library costs the name its turn for no longer than a silence.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTurns(8, time.Second)
		func() {
			defer func() { _ = recover() }()
			_ = l.Run(t.Context(), "n", Trying, func() error { panic("a tracer") })
		}()
		if err := l.Run(t.Context(), "n", Trying, answers(nil)); err != nil {
			t.Error(err)
		}
		if len(l.names) != 0 || len(l.claims) != 0 {
			t.Errorf("left behind: %d names, %d claims", len(l.names), len(l.claims))
		}
	})
}

// Where the server is trusted to answer soon, a name has turns only once its row could not be had.
func TestOnlyBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTurns(8, time.Second)
		l.OnlyBlocked = true
		if sent := hangs(t, l, 5, Trying, "n"); sent != 5 {
			t.Errorf("%d were sent, want all", sent)
		}
		_ = l.Run(t.Context(), "locked", Trying, answers(errLocked))
		if sent := hangs(t, l, 5, Trying, "locked"); sent != 1 {
			t.Errorf("%d were sent about a locked row, want 1", sent)
		}
	})
}

// hangs has n statements begin that end with the test, about name, or each about one of its own if it is empty. It returns
// how many were sent at once.
func hangs(t *testing.T, l *Turns, n int, kind Kind, name string) (sent int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(func() { end(); wg.Wait() })
	for i := range n {
		wg.Go(func() {
			_ = l.Run(ctx, cmp.Or(name, fmt.Sprint(kind, i)), kind, func() error {
				mu.Lock()
				sent++
				mu.Unlock()
				<-ctx.Done()
				return nil
			})
		})
	}
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	return sent
}

// Tries and releases leave a connection to what is not bounded.
func TestOneIsLeft(t *testing.T) {
	for conns, want := range map[int]int{1: 1, 2: 2, 3: 2, 8: 7, 0: 20} {
		synctest.Test(t, func(t *testing.T) {
			l := newTurns(conns, time.Second)
			if sent := hangs(t, l, 20, Trying, ""); sent != want {
				t.Errorf("of a pool of %d, %d are used, want %d", conns, sent, want)
			}
			if sent := hangs(t, l, 20, Renewing, ""); sent != 20 {
				t.Errorf("%d renewals were sent, want all", sent)
			}
		})
	}
}

// Names with locked rows share a half, and the others do not wait for them.
func TestLockedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTurns(8, time.Second)
		for i := range 20 {
			_ = l.Run(t.Context(), fmt.Sprint(Releasing, i), Trying, answers(errLocked))
		}
		if sent := hangs(t, l, 20, Releasing, ""); sent != 4 {
			t.Errorf("locked rows keep %d connections, want 4", sent)
		}
		if err := l.Run(t.Context(), "other", Trying, answers(nil)); err != nil {
			t.Error(err)
		}
	})
}

// What has queued behind a statement that could not have its row counts as about a locked row, too.
func TestQueuedBehindLockedRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTurns(8, time.Second)
		answered := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 7 {
			wg.Go(func() {
				_ = l.Run(t.Context(), fmt.Sprint(Trying, i), Trying, func() error { <-answered; return errLocked })
			})
		}
		synctest.Wait()
		if sent := hangs(t, l, 7, Trying, ""); sent != 0 {
			t.Fatalf("%d were sent out of turn", sent)
		}
		close(answered)
		wg.Wait()
		synctest.Wait()
		if len(l.claims) != 4 || len(l.slow) != 4 {
			t.Errorf("locked rows keep %d connections, want 4, and %d count as such", len(l.claims), len(l.slow))
		}
	})
}

// First come, first served, one at a time, and no caller left behind after it gave up.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTurns(4, time.Second)
		var mu sync.Mutex
		var wg sync.WaitGroup
		running, most := 0, 0
		for i := range 50 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%2*1000)*time.Millisecond)
				defer cancel()
				_ = l.Run(ctx, "n", Trying, func() error {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					running--
					mu.Unlock()
					return nil
				})
			})
		}
		wg.Wait()
		if most != 1 || len(l.names) != 0 {
			t.Errorf("%d at a time, want 1; %d names left behind", most, len(l.names))
		}
	})
}
