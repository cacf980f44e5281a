package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A key space that the program puts into its client after New leads to no other locks.
func testKeySpaceStays(t *testing.T, s *servers.Server) {
	client := newClient(t, s.Addr())
	l, err := New(client, &Options{Prefix: t.Name() + "/"})
	testkit.Must(t, err)
	defer l.Close()
	lock, err := l.TryLock(t.Context(), "x", distlock.NoRenewal(), distlock.TTL(5*time.Minute))
	testkit.Must(t, err)
	client.KV = namespace.NewKV(client.KV, "app/")
	client.Watcher = namespace.NewWatcher(client.Watcher, "app/")
	client.Lease = namespace.NewLease(client.Lease, "app/")
	if _, err := l.TryLock(t.Context(), "x"); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("the lock is gone: %v", err)
	}
	testkit.Should(t, lock.Unlock(t.Context()))
}

// The end of the context that a client was made with closes nothing: a program that is told to end releases its locks.
func testEndOfTheClientsContext(t *testing.T, s *servers.Server) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Context: ctx, Logger: zap.NewNop()})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	l, err := New(client, &Options{Prefix: t.Name() + "/"})
	testkit.Must(t, err)
	lock, err := l.Lock(t.Context(), "x")
	testkit.Must(t, err)
	end()
	testkit.Should(t, lock.Unlock(t.Context()))
	testkit.Should(t, l.Close())
	resp, err := client.Get(t.Context(), t.Name()+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	testkit.Must(t, err)
	if resp.Count != 0 {
		t.Errorf("%d keys are left", resp.Count)
	}
}
