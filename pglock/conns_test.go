package pglock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A request that hangs keeps no place in the pool, also while the library takes its leave of the server: who comes next
// has a connection at once, and Close
// does not wait for it either.
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
		testkit.Until(t, "renewals have their connections", func() bool { return idle(d.renewals) == renewConns })
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

// Renewals that find no connection ready do not wait for one, and those that were lost are replaced.
func TestRenewalConnections(t *testing.T) {
	t.Parallel()
	l, err := Open(t.Context(), server(t).URL(), &Options{Table: table(t)})
	if err != nil {
		t.Fatal(err)
	}
	n := storeOf(t, l).renewals
	for range 2 {
		testkit.Until(t, "all are there", func() bool { return idle(n) == renewConns })
		taken := []*pgx.Conn{n.take(), n.take(), n.take()}
		if n.take() != nil {
			t.Fatal("more than there should be")
		}
		for _, conn := range taken {
			closeNow(conn)
			n.give(conn)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n.made != 0 || n.take() != nil {
		t.Errorf("%d connections are left by Close", n.made)
	}
}

func idle(n *renewals) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.ready)
}
