package patterns_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

var bg = context.Background()

// bubble runs f in virtual time, with two Lockers on one store.
func bubble(t *testing.T, f func(t *testing.T, l, rival *memlock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		f(t, open(t, store), open(t, store))
	})
}

func open(t *testing.T, store *memlock.Store) *memlock.Locker {
	t.Helper()
	l, err := memlock.New(store, nil)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Should(t, l.Close()) })
	return l
}

// openFailing opens a client of a store that stays down: what its calls have left cannot be undone, and Close says so.
func openFailing(t *testing.T, store *memlock.Store) *memlock.Locker {
	t.Helper()
	l, err := memlock.New(store, nil)
	testkit.Must(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err == nil || !strings.Contains(err.Error(), "could not be undone") {
			t.Errorf("Close beside a store that is down: %v", err)
		}
	})
	return l
}

func mustLock(t *testing.T, ctx context.Context, l distlock.Locker, name string, opts ...distlock.Option) distlock.Lock {
	t.Helper()
	lock, err := l.Lock(ctx, name, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lock
}

func mustUnlock(t *testing.T, ctx context.Context, lock interface{ Unlock(context.Context) error }) {
	t.Helper()
	if err := lock.Unlock(ctx); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want one that matches %q", what, err, want)
	}
}
