package driver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// lines keeps what is logged, with the request that it was logged for.
type lines struct {
	mu   sync.Mutex
	seen []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprint(r.Level, " ", r.Message, " ", ctx.Value(requestKey{}))
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.Key
		if err, ok := a.Value.Any().(error); ok {
			text += fmt.Sprint("=", errors.Is(err, distlock.ErrLost))
		} else if a.Key != "token" {
			text += "=" + a.Value.String()
		}
		return true
	})
	l.seen = append(l.seen, text)
	return nil
}

// Every line on a lock has the same keys and the context of the call: of Lock, for a loss
// that nobody's call has found.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		n, l, rival := faulty(t, &memlock.Options{Options: distlock.Options{Logger: slog.New(&log)}})
		request := func(id string) context.Context { return context.WithValue(bg, requestKey{}, id) }
		// As requests do, that of the lock ends before the loss.
		lost, cancel := context.WithCancel(request("r1"))
		lock := mustLock(t, lost, l, "lost", distlock.TTL(time.Second), distlock.NoRenewal())
		cancel()
		<-lock.Done()
		time.Sleep(time.Second) // until the store has let go of it
		lock = mustLock(t, request("r2"), l, "freed")
		testkit.Must(t, lock.Unlock(request("r3")))
		lock = mustLock(t, request("r4"), l, "found")
		testkit.Must(t, distlock.Break(healthy(), rival, "found", 0))
		wantErr(t, "Unlock", lock.Unlock(request("r5")), distlock.ErrLost)
		synctest.Wait()
		n.use(on("try", requestLost), on("release", requestLost))
		if _, err := l.TryLock(request("r6"), "failed", distlock.TTL(time.Second)); err == nil {
			t.Fatal("a lock without an answer")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{
			"DEBUG lock acquired r1 lock=lost backend=memory token",
			"WARN lock lost r1 lock=lost backend=memory token err=true",
			"DEBUG lock acquired r2 lock=freed backend=memory token",
			"DEBUG lock released r3 lock=freed backend=memory token",
			"DEBUG lock acquired r4 lock=found backend=memory token",
			"WARN lock lost r5 lock=found backend=memory token err=true",
			"WARN release failed; what is left ends with its TTL r6 lock=failed backend=memory err=false",
		}
		if !slices.Equal(log.seen, want) {
			t.Errorf("logged\n%q, want\n%q", log.seen, want)
		}
		n.use()
		_ = l.Close()
	})
}

// A call that waits for a lock of its own Locker is told, after its TTL and when its context ends: it may
// wait for itself.
func TestOwnLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		_, l, rival := faulty(t, &memlock.Options{Options: distlock.Options{Logger: slog.New(&log)}})
		wait := func() string {
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			_, err := l.Lock(ctx, "x")
			wantErr(t, "Lock", err, context.DeadlineExceeded)
			wantErr(t, "Lock", err, distlock.ErrHeld)
			return err.Error()
		}
		said := func() (n int) {
			for _, line := range log.seen {
				if strings.HasPrefix(line, "INFO waiting for longer than the TTL for a lock of this Locker") {
					n++
				}
			}
			return n
		}
		lock := mustLock(t, bg, l, "x")
		if text := wait(); !strings.Contains(text, "patterns.Reentrant") || said() != 1 {
			t.Errorf("said %d times, and: %s", said(), text)
		}
		mustUnlock(t, bg, lock)
		mustLock(t, bg, rival, "x")
		if text := wait(); strings.Contains(text, "Reentrant") || said() != 1 {
			t.Errorf("of the lock of another, said %d times, and: %s", said(), text)
		}
	})
}

// A deadline that ends a call while the store is silent says that it is; the end of one that waits for a holder does not.
func TestDeadlineOfSilence(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		fails := func(call func(context.Context, string, ...distlock.Option) (distlock.Lock, error), silent bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			_, err := call(ctx, "x")
			wantErr(t, "it", err, context.DeadlineExceeded)
			if strings.Contains(err.Error(), "no answer from memory within") != silent {
				t.Errorf("of a store that is silent (%v): %v", silent, err)
			}
		}
		n.use(on("try", func(ctx context.Context, _ memlock.Call, _ func()) (bool, error) {
			<-ctx.Done()
			return true, ctx.Err()
		}))
		fails(l.TryLock, true)
		fails(l.Lock, true)
		n.use()
		mustLock(t, bg, rival, "x")
		fails(l.Lock, false)
	})
}
