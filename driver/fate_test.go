package driver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

func TestFateOf(t *testing.T) {
	refusal := &driver.Fault{Fate: driver.NotNow, Err: errors.New("READONLY")}
	for _, c := range []struct {
		err  error
		want driver.Fate
	}{
		{errors.New("EOF"), driver.Unknown},
		{context.DeadlineExceeded, driver.Unknown},
		{refusal, driver.NotNow},
		{fmt.Errorf("redis: %w", refusal), driver.NotNow},
		{&driver.Fault{Fate: driver.Unknown, Err: refusal}, driver.Unknown}, // an earlier copy is unknown
		{&driver.NoAnswer{From: "redis", After: time.Second, Last: refusal}, driver.Unknown},
		{&driver.Fault{Fate: driver.NotSent, Err: &driver.NoAnswer{From: "redis", After: time.Second, Last: refusal}}, driver.NotSent},
		{fmt.Errorf("%w: %w", distlock.ErrClosed, errors.New("redis: client is closed")), driver.Answered},
		{&distlock.HeldError{}, driver.Answered},
		{distlock.ErrLost, driver.Answered},
		{nil, driver.Answered},
	} {
		if got := driver.FateOf(c.err); got != c.want {
			t.Errorf("the fate of %v is %v, want %v", c.err, got, c.want)
		}
	}
	if refusal.Error() != "READONLY" {
		t.Errorf("a Fault changes the text of its error: %v", refusal)
	}
}

// TestNoAnswer: no caller takes a bound of ours for the end of its own context.
func TestNoAnswer(t *testing.T) {
	last := errors.New("deadlock")
	var err error = &driver.NoAnswer{From: "the server", After: 1234567 * time.Microsecond, Last: last}
	if want := "no answer from the server within 1.235s: the last one was: deadlock"; err.Error() != want {
		t.Errorf("the text is %q, want %q", err, want)
	}
	if errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, last) {
		t.Errorf("%v matches the end of a context, or not the last answer", err)
	}
}

// TestBounded: only the end of the caller's own context looks like that, whatever the client library says of a bound of its own,
// or of ours, or of the request before. A dial that has timed out matches context.DeadlineExceeded.
func TestBounded(t *testing.T) {
	host := &net.DNSError{Name: "h"} // what the client library says beside
	dial := fmt.Errorf("%w: %w: %w", context.DeadlineExceeded, context.Canceled, host)
	repeated := func(ctx context.Context, fate driver.Fate) error {
		return driver.Insist(ctx, func() error { return &driver.Fault{Fate: fate, Err: dial} })
	}
	for what, f := range map[string]func(context.Context) error{
		"a shorter bound":        func(ctx context.Context) error { return repeated(ctx, driver.NotSent) },
		"a member that is mute":  func(ctx context.Context) error { return repeated(ctx, driver.Again) },
		"one that refuses after": func(ctx context.Context) error { <-ctx.Done(); return repeated(ctx, driver.NotNow) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := driver.Bounded(t.Context(), "the server", time.Second, f)
				if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
					t.Errorf("%v looks like the end of the caller's context", err)
				}
				if _, ok := errors.AsType[*net.DNSError](err); !ok || !errors.Is(err, host) || !strings.Contains(err.Error(), dial.Error()) {
					t.Errorf("%v has lost what was said", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if err := driver.Bounded(ctx, "the server", time.Second, func(ctx context.Context) error { <-ctx.Done(); return f(ctx) }); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v does not look like the end of the caller's context", err)
				}
			})
		})
	}
}

// TestInsist: a request that has no answer in the end is told with the answer that was the reason to make it again.
func TestInsist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locked := &driver.Fault{Fate: driver.Again, Err: errors.New("the row is locked")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		requests := 0
		err := driver.Insist(ctx, func() error {
			if requests++; requests < 3 {
				return locked
			}
			<-ctx.Done()
			return &driver.Fault{Fate: driver.NotSent, Err: ctx.Err()}
		})
		if driver.FateOf(err) != driver.NotSent || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locked) {
			t.Errorf("fate %v: %v", driver.FateOf(err), err)
		}
		if want := "context deadline exceeded; the answer before was: the row is locked"; err.Error() != want {
			t.Errorf("the text is %q, want %q", err, want)
		}
	})
}

// TestAnswerBeforeSilence: a call that a bound of ours ends says what the store has said before.
func TestAnswerBeforeSilence(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		locked := errors.New("the row is locked")
		refused := func(context.Context, memlock.Call, func()) (bool, error) {
			return true, &driver.Fault{Fate: driver.Again, Err: locked}
		}
		n.use(on("try", times(2, refused)), on("try", stuck))
		_, err := l.TryLock(bg, "x")
		silent, late := errors.AsType[*driver.NoAnswer](err)
		if !late || !errors.Is(silent.Last, locked) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryLock: %v", err)
		}
		for _, call := range []func(context.Context, string, ...distlock.Option) (distlock.Lock, error){l.TryLock, l.Lock} {
			n.use(on("try", times(2, refused)), on("try", stuck))
			ctx, cancel := context.WithTimeout(bg, time.Second)
			_, err := call(ctx, "y")
			cancel()
			wantErr(t, "a caller's deadline", err, context.DeadlineExceeded)
			wantErr(t, "a caller's deadline", err, locked)
		}
		n.use()
	})
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r driver.Retry
		for _, most := range []time.Duration{10, 20, 40, 80, 160, 320, 640, 1000, 1000} {
			most *= time.Millisecond
			began := time.Now()
			testkit.Must(t, r.Pause(t.Context()))
			if d := time.Since(began); d < most/2 || d > most {
				t.Errorf("a pause of %v, want %v to %v", d, most/2, most)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := r.Pause(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 100*time.Millisecond {
			t.Errorf("a pause ended after %v with %v, want the end of its context", time.Since(began), err)
		}
		began = time.Now()
		if err := r.Pause(ctx); err == nil || time.Since(began) != 0 {
			t.Errorf("a pause on an ended context took %v, and returned %v", time.Since(began), err)
		}
		quick := driver.Retry{First: time.Millisecond, Most: 2 * time.Millisecond}
		for range 5 {
			began := time.Now()
			_ = quick.Pause(t.Context())
			if d := time.Since(began); d < time.Millisecond/2 || d > 2*time.Millisecond {
				t.Errorf("a pause of %v between 1 ms and 2 ms", d)
			}
		}
	})
}
