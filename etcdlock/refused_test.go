package etcdlock

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A call fails at once, and says why, if every member refuses the connection, also if a lease is held in readiness.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := servers.ForTest(t, servers.Etcd)
	if !s.Controlled() {
		t.Skip("a server given by URL is not the test's to kill")
	}
	opened, err := Open(t.Context(), s.URL(), nil)
	testkit.Must(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	testkit.Must(t, err)
	own, err := New(client, nil)
	testkit.Must(t, err)
	lockers := map[string]*Locker{"of Open": opened, "of New": own}
	for _, l := range lockers {
		h, err := l.TryLock(t.Context(), "x")
		testkit.Must(t, err)
		testkit.Must(t, h.Unlock(t.Context()))
	}
	testkit.Must(t, s.Kill(t.Context()))
	for whose, l := range lockers {
		for what, call := range map[string]func(context.Context, string, ...distlock.Option) (distlock.Lock, error){"TryLock": l.TryLock, "Lock": l.Lock} {
			// Without a lease that lasts, the first request grants one.
			for _, ttl := range []time.Duration{0, time.Hour} {
				var opts []distlock.Option
				if ttl > 0 {
					opts = append(opts, distlock.TTL(ttl))
				}
				testkit.Within(t, time.Second, func() {
					_, err = call(t.Context(), "x", opts...)
				})
				if driver.FateOf(err) != driver.NotSent || !strings.Contains(err.Error(), "connect") {
					t.Errorf("%s %s: %v (%v), want one that was not sent, and why", what, whose, err, driver.FateOf(err))
				}
			}
		}
	}
}
