package redislock

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/testkit"
)

// crowd takes a connection of c until the test is over, and returns when it has one.
func crowd(t *testing.T, c redis.UniversalClient, admin *redis.Client) {
	t.Helper()
	key, over := freshPrefix()+"crowd", make(chan struct{})
	ctx := context.WithoutCancel(t.Context())
	go func() { defer close(over); _ = c.BLPop(ctx, 0, key).Err() }()
	t.Cleanup(func() {
		admin.RPush(ctx, key, "x")
		<-over
	})
	testkit.Until(t, "a connection is taken", func() bool {
		return strings.Contains(admin.ClientList(t.Context()).Val(), " flags=b ")
	})
}

// Renewals do not wait for a connection behind calls to Lock and Unlock. There may be any number of those on a
// cluster, where each goes alone.
func TestRenewalPassesACrowdOnACluster(t *testing.T) {
	t.Parallel()
	addrs, nodes, _ := startCluster(t, 1)
	u, err := openurl.Parse("redis://"+addrs[0]+"?cluster=true&pool_size=1", schemes...)
	testkit.Must(t, err)
	config, err := configure(u, new(Options).clone())
	testkit.Must(t, err)
	c := redis.NewUniversalClient(config)
	t.Cleanup(func() { _ = c.Close() })
	d := driverOn(t, c, freshPrefix())
	a, b := d.claim("x", long), d.claim("y", long)
	grants(t, a)
	grants(t, b)
	crowd(t, c, nodes[0])
	if _, err := a.Renew(t.Context(), long); err != nil {
		t.Errorf("a renewal of one: %v", err)
	}
	batch := []driver.Renewal{{Claim: a, TTL: long}, {Claim: b, TTL: long}}
	if d.Renew(t.Context(), batch); batch[0].Err != nil || batch[1].Err != nil {
		t.Errorf("a renewal of two: %v, %v", batch[0].Err, batch[1].Err)
	}
}

// A renewal of one lock that had no answer is sent again on a connection for pipelines: those of the pool that it
// went by may all be taken or stale.
func TestRenewalIsSentAgainOnAnotherPool(t *testing.T) {
	t.Parallel()
	s := server(t)
	admin := client(t, s.URL())
	p, err := netfault.NewTCPProxy(s.Addr(), 1)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), ContextTimeoutEnabled: true, PoolSize: 1, PoolTimeout: 100 * time.Millisecond})
	t.Cleanup(func() { _ = c.Close() })
	d := driverOn(t, c, freshPrefix())
	a := d.claim("x", long)
	grants(t, a)
	first := true
	c.AddHook(&checkpoint{single: func(next func() error) error {
		err := next()
		if first {
			first = false
			crowd(t, c, admin)
		}
		return err
	}})
	p.CutReply(1)
	if _, err := a.Renew(t.Context(), long); err != nil {
		t.Error(err)
	}
}

// Copies end also where each loses its connection: there are no more than the client allows and connections were idle. A
// client that allows none has none.
func TestCopiesAreBounded(t *testing.T) {
	t.Parallel()
	s := server(t)
	for resends, most := range map[int]int{-1: 1, 2: 1 + 2 + 1} {
		p, err := netfault.NewTCPProxy(s.Addr(), 1)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = p.Close() })
		c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: resends, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = c.Close() })
		one, other := c.Conn(), c.Conn()
		testkit.Must(t, errors.Join(one.Ping(t.Context()).Err(), other.Ping(t.Context()).Err(), one.Close(), other.Close()))
		copies := 0
		c.AddHook(&checkpoint{single: func(next func() error) error {
			copies++
			p.CutReply(1)
			return next()
		}})
		d := driverOn(t, c, freshPrefix())
		if _, err := d.tryOnly("x", long).Try(t.Context()); !errors.Is(err, io.EOF) || copies != most {
			t.Errorf("%v after %d copies, want %d", err, copies, most)
		}
	}
}
