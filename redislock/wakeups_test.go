package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/internal/testkit"
)

// named returns a claim of d on a name whose channel for wake-ups is at the master at addr, and is none of
// those in use.
func (d *store) named(t *testing.T, addr string) *claim {
	t.Helper()
	for {
		c := d.claim(testkit.Owner(), long)
		m, err := d.cluster.MasterForKey(t.Context(), c.key.entry())
		testkit.Must(t, err)
		if m.Options().Addr == addr {
			return c
		}
	}
}

// awaited returns a claim of d that waits for a name at the master at addr, and listens.
func awaited(t *testing.T, d, rival *store, addr string) *claim {
	t.Helper()
	c := d.named(t, addr)
	grants(t, rival.claim(c.request.Name, long))
	queues(t, c)
	return c
}

// intact fails the test if the channel on which c listens was forgotten.
func intact(t *testing.T, c *claim) {
	t.Helper()
	s := c.driver.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels[c.waiter.channel] != c.waiter.ch {
		t.Error("the channel of another name was forgotten")
	}
}

// Subscriptions that nobody needs end alone, though they are in several slots.
func testClusterSweep(t *testing.T, addrs []string, nodes []*redis.Client) {
	prefix := freshPrefix()
	d, rival := driverOn(t, clusterClient(t, addrs), prefix), driverOn(t, clusterClient(t, addrs), prefix)
	stays := awaited(t, d, rival, addrs[0])
	s := d.subscriber
	var old []string
	for range 3 {
		c := awaited(t, d, rival, addrs[0])
		ch := c.waiter.ch
		old = append(old, c.waiter.channel)
		releases(t, c)
		s.mu.Lock()
		ch.used = time.Now().Add(-2 * idle)
		s.mu.Unlock()
	}
	if !s.sweep(stays.waiter.ch.conn) {
		t.Error("the connection is not needed any more")
	}
	testkit.Until(t, "the server has ended them", func() bool {
		left := 0
		for _, n := range nodes[0].PubSubShardNumSub(t.Context(), old...).Val() {
			left += int(n)
		}
		return left == 0
	})
	intact(t, stays)
}

// A server refuses a subscription, since it has given the slot away. The others there go on.
func testClusterRefused(t *testing.T, addrs []string, _ []*redis.Client) {
	prefix := freshPrefix()
	d, rival := driverOn(t, clusterClient(t, addrs), prefix), driverOn(t, clusterClient(t, addrs), prefix)
	stays, elsewhere := awaited(t, d, rival, addrs[0]), d.named(t, addrs[1])
	s := d.subscriber
	w := s.newWaiter(elsewhere.key, elsewhere.request)
	s.mu.Lock()
	ch := s.open(w.channel, nil, addrs[0])
	ch.waiters[w.owner] = w
	s.mu.Unlock()
	<-w.wake
	if ch.state.Load() != broken {
		t.Error("a subscription at a server that does not have the slot is not forgotten")
	}
	intact(t, stays)
}
