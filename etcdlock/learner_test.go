package etcdlock

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/etcdlock/internal/member"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A learner among the endpoints gets half of the requests, and refuses them all. No
// call of a Locker of Open fails for it, nor does a keep-alive.
func TestLearner(t *testing.T) {
	t.Parallel()
	e := servers.EnsembleForTest(t, servers.Etcd, 1, servers.Setup{})
	ctx := context.WithoutCancel(t.Context())
	if err := e.AddLearner(ctx); err != nil {
		t.Fatal(err)
	}
	l, err := Open(ctx, e.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	held, err := l.Lock(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		lock, err := l.Lock(ctx, fmt.Sprint("x", i%2))
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	waited := make(chan error, 1)
	go func() {
		lock, err := l.Lock(ctx, "held")
		if err == nil {
			err = lock.Unlock(ctx)
		}
		waited <- err
	}()
	testkit.Until(t, "there is a waiter", func() bool {
		st, err := distlock.Inspect(ctx, l, "held")
		if err != nil {
			t.Fatal(err)
		}
		return st.Waiters > 0
	})
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Error("a waiter:", err)
	}
	keepsAlive(ctx, t, e.URL())
}

// keepsAlive sends keep-alives as a Locker at url does.
func keepsAlive(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	st := dialed(ctx, t, url)
	defer st.Close()
	lease, err := st.client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		err := errDeposed
		for err != nil && fate(err) == driver.Again {
			_, err = member.KeepAlive(ctx, st.granter, lease.ID, grpc.WaitForReady(true))
		}
		if err != nil {
			t.Fatal("a keep-alive:", err)
		}
	}
}
