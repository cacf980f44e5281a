package pglock

import (
	"context"
	"net"
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
	testkit.Within(t, 5*time.Second, func() {
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

// The first renewal has a connection as soon as Open has returned, also where the dial for it has taken longer than Open else.
func TestRenewalConnectionStands(t *testing.T) {
	t.Parallel()
	config, opts, err := parseURL(server(t).URL(), Options{Table: table(t)})
	testkit.Must(t, err)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= renewDial {
			<-time.After(renewDial / 4)
		}
		return dial(ctx, network, addr)
	}
	l, err := openOwn(t.Context(), config, opts)
	testkit.Must(t, err)
	defer l.Close()
	if storeOf(t, l).renewals.Stat().IdleConns() == 0 {
		t.Error("Open has returned, and the first renewal would have to dial")
	}
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
