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
	testkit.Must(t, err)
	defer link.Close()
	l, err := Open(t.Context(), strings.Replace(s.URL(), s.Addr(), link.Addr(), 1), &Options{Table: table(t), MaxConns: 1})
	testkit.Must(t, err)
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
		testkit.Must(t, err)
		testkit.Should(t, lock.Unlock(t.Context()))
	})
	testkit.Within(t, 5*time.Second, func() {
		testkit.Should(t, l.Close())
	})
}

// Renewals have connections of their own, also when the first of them was lost: they need none of a pool that is busy.
func TestRenewalConnections(t *testing.T) {
	t.Parallel()
	l, err := Open(t.Context(), server(t).URL(), &Options{Table: table(t), MaxConns: 1})
	testkit.Must(t, err)
	defer l.Close()
	d := storeOf(t, l)
	lock, err := l.TryLock(t.Context(), "x")
	testkit.Must(t, err)
	busy, err := d.pool.Acquire(t.Context())
	testkit.Must(t, err)
	defer busy.Release()
	for range 2 {
		testkit.Should(t, lock.Extend(t.Context(), time.Minute))
		lost, err := d.renewals.Acquire(t.Context())
		testkit.Must(t, err)
		_ = lost.Conn().Close(t.Context())
		lost.Release()
	}
}
