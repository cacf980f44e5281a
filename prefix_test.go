package distlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

var bg = context.Background()

// bubble runs f in virtual time, with two Lockers on one store.
func bubble(t *testing.T, f func(t *testing.T, l, rival distlock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		l, err := memlock.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		rival, err := memlock.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer rival.Close()
		f(t, l, rival)
	})
}

func mustLock(t *testing.T, ctx context.Context, l distlock.Locker, name string) distlock.Lock {
	t.Helper()
	lock, err := l.Lock(ctx, name)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lock
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want one that matches %q", what, err, want)
	}
}

func TestPrefix(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival distlock.Locker) {
		a, b := distlock.Prefix(l, "a/"), distlock.Prefix(rival, "b/")
		lock := mustLock(t, bg, a, "x")
		if lock.Name() != "x" {
			t.Errorf("the lock is called %q", lock.Name())
		}
		mustLock(t, bg, b, "x")
		_, err := rival.TryLock(bg, "a/x")
		wantErr(t, "TryLock of the full name", err, distlock.ErrHeld)
		_, err = a.TryLock(bg, "")
		wantErr(t, "TryLock of the prefix alone", err, distlock.ErrInvalid)
		outside := mustLock(t, bg, rival, "a/")
		_, err = distlock.Inspect(bg, a, "")
		wantErr(t, "Inspect of the prefix alone", err, distlock.ErrInvalid)
		wantErr(t, "Break of the prefix alone", distlock.Break(bg, a, "", outside.Token()), distlock.ErrInvalid)
		if err := outside.Unlock(bg); err != nil {
			t.Error(err)
		}
		sts, err := distlock.List(bg, a, "")
		if err != nil || len(sts) != 1 || sts[0].Name != "x" {
			t.Errorf("List returned %v and %v", sts, err)
		}
		if _, ok := distlock.As[*driver.Handle](lock); !ok {
			t.Error("As does not see through Prefix")
		}
		if err := distlock.Break(bg, a, "x"); err != nil {
			t.Error(err)
		}
	})
}

// An error names the lock, but a name that is no name is not repeated whole.
func TestErrorOfALongName(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ distlock.Locker) {
		_, err := l.TryLock(bg, strings.Repeat("ü", 5000))
		wantErr(t, "a name of 10,000 bytes", err, distlock.ErrInvalid)
		if text := err.Error(); len(text) > 400 || !strings.Contains(text, "10000") {
			t.Errorf("the error is %q", text)
		}
	})
}
