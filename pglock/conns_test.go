package pglock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A request that hangs keeps no place in the pool, also while the library takes its leave of the server: who comes next
// has a connection at once, and Close does not wait for it either.
func TestPlaceOfHungRequest(t *testing.T) {
	t.Parallel()
	s := server(t)
	link, err := netfault.NewTCPProxy(s.Addr(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	l, err := Open(t.Context(), strings.Replace(s.URL(), s.Addr(), link.Addr(), 1), &Options{Table: table(t), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	d := storeOf(t, l)
	testkit.Within(t, 5*time.Second, func() {
		testkit.Until(t, "renewals have their connection", func() bool { return d.renewals.Stat().IdleConns() == 1 })
		fired := link.Fired()
		link.DropRequest(1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := l.TryLock(ctx, "hangs"); err == nil || link.Fired() == fired {
			t.Fatalf("nothing hung: %v", err)
		}
		lock, err := l.TryLock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
	testkit.Within(t, 5*time.Second, func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Renewals have connections of their own, also when the first of them was lost: they need none of a pool that is busy.
func TestRenewalConnections(t *testing.T) {
	t.Parallel()
	l, err := Open(t.Context(), server(t).URL(), &Options{Table: table(t), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := storeOf(t, l)
	lock, err := l.TryLock(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	busy, err := d.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Release()
	for range 2 {
		if err := lock.Extend(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		lost, err := d.renewals.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = lost.Conn().Close(t.Context())
		lost.Release()
	}
}
