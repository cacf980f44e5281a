package redislock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// named returns a claim of d on a name that has its channel for wake-ups at the master at addr, and is none of
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
func testClusterRefused(t *testing.T, addrs []string) {
	prefix := freshPrefix()
	d, rival := driverOn(t, clusterClient(t, addrs), prefix), driverOn(t, clusterClient(t, addrs), prefix)
	stays, elsewhere := awaited(t, d, rival, addrs[0]), d.named(t, addrs[1])
	misdirected(t, d.subscriber, elsewhere, addrs[0])
	intact(t, stays)
}

// misdirected subscribes for c at a server that does not have its slot, and returns when that has come to nothing.
func misdirected(t *testing.T, s *subscriber, c *claim, addr string) {
	t.Helper()
	w := s.newWaiter(c.key, c.request)
	server, err := s.cluster.MasterForKey(t.Context(), c.key.entry())
	testkit.Must(t, err)
	o := *server.Options()
	o.Addr = addr
	wrong := redis.NewClient(&o)
	s.mu.Lock()
	ch := s.open(w.channel, wrong, addr)
	ch.waiters[w.owner] = w
	s.mu.Unlock()
	<-w.wake
	_ = wrong.Close()
}

// A master at which each subscription fails is told of once, and asked less and less often, though there are others at
// which they succeed.
func testClusterRefusedAgain(t *testing.T, addrs []string) {
	prefix := freshPrefix()
	var log logBook
	d, err := newStore(clusterClient(t, addrs), &Options{Prefix: prefix, Options: distlock.Options{Logger: log.logger()}}, false)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	rival := driverOn(t, clusterClient(t, addrs), prefix)
	elsewhere := d.named(t, addrs[1])
	misdirected(t, d.subscriber, elsewhere, addrs[0])
	awaited(t, d, rival, addrs[2])
	misdirected(t, d.subscriber, elsewhere, addrs[0])
	if n := strings.Count(log.String(), "cannot subscribe"); n != 1 {
		t.Errorf("it is told of %d times:\n%s", n, log.String())
	}
}

// silentOnceAsked returns a server that takes connections and says nothing, and what tells of the first request of each.
func silentOnceAsked(t *testing.T) (addr string, asked <-chan struct{}) {
	t.Helper()
	told := make(chan struct{}, 10)
	return testkit.Serve(t, nil, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		told <- struct{}{}
		_, _ = io.Copy(io.Discard, conn)
	}), told
}

// A Try at a replica drops the connections for wake-ups. It does not wait for one to a server that takes connections and
// says nothing.
func TestReconnectWaitsForNoServer(t *testing.T) {
	t.Parallel()
	silent, asked := silentOnceAsked(t)
	testkit.WithinFresh(t, time.Second, func() func() { // an attempt to subscribe has five
		c := redis.NewClient(&redis.Options{Addr: silent, ReadTimeout: time.Minute, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = c.Close() })
		d := driverOn(t, c, freshPrefix())
		a := d.claim("x", long)
		d.subscriber.enlist(t.Context(), a, false)
		<-asked
		return func() {
			d.subscriber.dropAll(false)
			if d.subscriber.inUse() {
				t.Error("the channel is not forgotten")
			}
		}
	})
}

// refusing returns a driver at a server that lets nobody subscribe.
func refusing(t *testing.T, logger *slog.Logger) *store {
	t.Helper()
	s, admin := own(t)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "deaf", "on", ">secret", "~*", "resetchannels", "+@all").Err())
	c := client(t, "redis://deaf:secret@"+s.Addr())
	d, err := newStore(c, &Options{Prefix: freshPrefix(), Options: distlock.Options{Logger: logger}}, false)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// hangingLog is a slog.Handler that does not return before the test is over.
type hangingLog struct {
	slog.Handler
	asked, over chan struct{}
}

func (h hangingLog) Handle(context.Context, slog.Record) error {
	close(h.asked)
	<-h.over
	return nil
}

// A log that hangs does not hold up Close.
func TestCloseWhileTheLogHangs(t *testing.T) {
	t.Parallel()
	h := hangingLog{slog.NewTextHandler(io.Discard, nil), make(chan struct{}), make(chan struct{})}
	t.Cleanup(func() { close(h.over) })
	d := refusing(t, slog.New(h))
	d.subscriber.enlist(t.Context(), d.claim("x", long), false)
	<-h.asked
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// A connection that was dropped has not failed. Else a subscription that fails after it would not be told of, and the
// next be late.
func TestDroppedConnectionIsNoFailure(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 2)
	a, b := drivers[0].claim("x", long), drivers[1].claim("x", long)
	grants(t, a)
	queues(t, b)
	s := drivers[1].subscriber
	s.dropAll(false)
	s.running.Wait()
	if len(s.failures) > 0 {
		t.Errorf("failures are noted: %v", s.failures)
	}
}

// Nobody reads a connection that has failed, during the pause before the next: so it takes no subscription.
func TestFailedConnectionTakesNoSubscription(t *testing.T) {
	t.Parallel()
	d := refusing(t, slog.New(slog.DiscardHandler))
	s, a := d.subscriber, d.claim("x", long)
	s.failures[""] = 10 // so that the pause lasts
	s.enlist(t.Context(), a, false)
	testkit.Until(t, "it pauses", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.failures[""] > 10
	})
	if err := s.subscribe(a.waiter.ch.conn, "another"); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a subscription meanwhile: %v", err)
	}
}

// Servers may come and go at ever new addresses. What is known of those that failed has a bound.
func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	d := driverOn(t, client(t, server(t).URL()), freshPrefix())
	s := d.subscriber
	for i := range maxFailures {
		s.failures[fmt.Sprint(i)] = 1
	}
	s.pause(&conn{addr: "another", ctx: t.Context()}, io.EOF)
	if n := len(s.failures); n > maxFailures || s.failures["another"] != 1 {
		t.Errorf("%d failures are noted", n)
	}
}
