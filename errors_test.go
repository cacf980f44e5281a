package distlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
)

// An error names the lock, but a name that is no name is not repeated whole.
func TestErrorOfALongName(t *testing.T) {
	l := locker()
	defer l.Close()
	_, err := l.TryLock(context.Background(), strings.Repeat("ü", 5000))
	if !errors.Is(err, distlock.ErrInvalid) {
		t.Fatal(err)
	}
	if text := err.Error(); len(text) > 400 || !strings.Contains(text, "10000") {
		t.Errorf("the error is %q", text)
	}
}

// A log has one line for each error.
func TestErrorIsOneLine(t *testing.T) {
	pgx := errors.New("failed to connect:\n\ta: refused\n\tb: refused")
	err := &distlock.Error{Op: "open redis", Err: errors.Join(errors.New("x"), pgx)}
	if want := "distlock: open redis: x; failed to connect: a: refused; b: refused"; err.Error() != want {
		t.Errorf("the text is %q, want %q", err, want)
	}
}

// A refusal says of the holder what is known of it, and that it is the Locker itself.
func TestTextOfHeld(t *testing.T) {
	for want, err := range map[string]*distlock.HeldError{
		"held by another":                       {},
		"held by another (token 7)":             {Token: 7},
		`held by another ("host a")`:            {Holder: "host a"},
		`held by another ("host a", token 7)`:   {Holder: "host a", Token: 7},
		`held by another ("a\nb\x1b", token 7)`: {Holder: "a\nb\x1b", Token: 7},
	} {
		if err.Error() != want || !errors.Is(err, distlock.ErrHeld) {
			t.Errorf("the text is %q, want %q", err, want)
		}
	}
	l := locker()
	defer l.Close()
	ctx := context.Background()
	lock, err := l.Lock(ctx, "own")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock(ctx)
	if _, err := l.TryLock(ctx, "own"); !errors.Is(err, distlock.ErrHeld) || !strings.Contains(err.Error(), "not re-entrant") {
		t.Errorf("the error is %v", err)
	}
}

// Without a Locker nothing is supported, and that is the caller's mistake.
func TestNilLocker(t *testing.T) {
	ctx := context.Background()
	_, inspect := distlock.Inspect(ctx, nil, "x")
	_, list := distlock.List(ctx, nil, "")
	_, sweep := distlock.Sweep(ctx, nil, 0)
	for _, err := range []error{inspect, list, sweep, distlock.Break(ctx, nil, "x", 0)} {
		if !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), "the Locker is nil") {
			t.Errorf("the error is %v", err)
		}
	}
}
