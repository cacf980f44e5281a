package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
)

// network connects a client, unless it is down.
type network struct {
	mu    sync.Mutex
	down  bool
	dials int // that have failed
	conns []net.Conn
}

var errDown = errors.New("the network is down")

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		n.dials++
		return nil, errDown
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		n.conns = append(n.conns, c)
	}
	return c, err
}

func (n *network) set(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down, n.dials = down, 0
	if down {
		for _, c := range n.conns {
			_ = c.Close()
		}
		n.conns = nil
	}
}

func (n *network) failed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// A waiter outlives an outage of the network, and stays in the queue. A claim that is not in
// the queue fails at once.
func TestWaiterOutlivesAnOutage(t *testing.T) {
	n := new(network)
	c := redis.NewClient(&redis.Options{Addr: server(t).Addr(), Dialer: n.dial, ContextTimeoutEnabled: true,
		DialerRetries: 1, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	drivers, prefix := stores(t, 2)
	d := driverOn(t, c, prefix)
	a, b, last := drivers[0].claim("x", long), d.claim("x", long), drivers[1].claim("x", long)
	grants(t, a)
	queues(t, b)
	queues(t, last)
	n.set(true)
	if _, err := d.claim("x", long).Try(t.Context()); !errors.Is(err, errDown) || n.failed() > 3 {
		t.Errorf("Try of a claim that is not in the queue: %v after %d attempts to connect", err, n.failed())
	}
	tried := make(chan error, 1)
	go func() { _, err := b.Try(t.Context()); tried <- err }()
	eventually(t, "it tries again", func() bool { return n.failed() >= 5 || len(tried) > 0 })
	n.set(false)
	if err := <-tried; !errors.Is(err, distlock.ErrHeld) {
		t.Fatalf("Try during an outage: %v, want ErrHeld after it", err)
	}
	queues(t, b)
	releases(t, a)
	hears(t, b, true)
	grants(t, b)
	releases(t, b)
	releases(t, last)
}

// While the network is down a claim that waits heeds its context.
func TestOutageLongerThanTheCall(t *testing.T) {
	n := new(network)
	c := redis.NewClient(&redis.Options{Addr: server(t).Addr(), Dialer: n.dial, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	drivers, prefix := stores(t, 1)
	a, b := drivers[0].claim("x", long), driverOn(t, c, prefix).claim("x", long)
	grants(t, a)
	queues(t, b)
	n.set(true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := b.Try(ctx); err == nil || errors.Is(err, distlock.ErrHeld) || time.Since(began) > 5*time.Second {
		t.Errorf("Try: %v after %v", err, time.Since(began))
	}
	n.set(false)
	releases(t, b)
	releases(t, a)
}

// A long script of another user makes a server refuse what comes meanwhile. It has run nothing of
// that: a lock is renewed as soon as it can be, and a Try repeated.
func TestServerInALongScript(t *testing.T) {
	_, admin := own(t)
	must(t, admin.ConfigSet(t.Context(), "lua-time-limit", "1").Err())
	const ttl = 2 * time.Second
	lock, err := lockerOn(t, admin, nil).Lock(t.Context(), "x", distlock.TTL(ttl))
	must(t, err)
	other := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, ReadTimeout: -1, MaxRetries: -1})
	defer other.Close()
	released := make(chan struct{})
	go func() { defer close(released); _ = other.Eval(context.Background(), "while true do end", nil).Err() }()
	eventually(t, "the server is busy", func() bool { return redis.HasErrorPrefix(admin.Ping(t.Context()).Err(), "BUSY ") })
	began, deadline := time.Now(), lock.Deadline()
	timer := time.AfterFunc(ttl/2, func() { _ = admin.ScriptKill(context.Background()).Err() })
	defer timer.Stop()
	refuses(t, driverOn(t, admin, defaultPrefix).tryOnly("x", long))
	if took := time.Since(began); took < ttl/3 {
		t.Errorf("the server was busy for %v: the test is none", took)
	}
	<-released
	eventually(t, "it is renewed", func() bool { return lock.Deadline().After(deadline) || lock.Err() != nil })
	must(t, lock.Unlock(t.Context()))
}

// A claim may be granted its name and not be told of it, though it listened. Then the next ones
// look by themselves until a message has arrived.
func TestMissedWakeUpHasTheChannelTested(t *testing.T) {
	drivers, _ := stores(t, 2)
	a, b, next := drivers[0].claim("x", long), drivers[1].claim("x", long), drivers[1].claim("x", long)
	grants(t, a)
	queues(t, b)
	eventually(t, "the channel is confirmed", func() bool { return drivers[1].subscriber.relies(b) })
	hears(t, b, false)
	must(t, client(t, server(t).URL()).Del(t.Context(), a.key.entry()).Err()) // tells no waiter
	grants(t, b)
	if drivers[1].subscriber.relies(b) {
		t.Error("the channel is relied on")
	}
	refuses(t, next) // tests it
	eventually(t, "the channel is confirmed again", func() bool { return drivers[1].subscriber.relies(next) })
	releases(t, b)
	hears(t, next, true)
	grants(t, next)
	if !drivers[1].subscriber.relies(next) {
		t.Error("the channel is not relied on after a wake-up")
	}
	releases(t, next)
}

// While a slot is being moved, Redis ends a script at a key that the script itself has removed.
// No waiter is told of a grant then if the store does not have it.
func testClusterHandOver(t *testing.T, addrs []string, nodes []*redis.Client) {
	prefix := freshPrefix()
	d, rival := driverOn(t, clusterClient(t, addrs), prefix), driverOn(t, clusterClient(t, addrs), prefix)
	a, b, c := d.claim("x", long), rival.claim("x", long), d.claim("x", long)
	grants(t, a)
	queues(t, b)
	queues(t, c)
	key := a.key.entry()
	master, err := d.cluster.MasterForKey(t.Context(), key)
	must(t, err)
	from := slices.Index(addrs, master.Options().Addr)
	to := (from + 1) % len(addrs)
	slot := int(nodes[0].ClusterKeySlot(t.Context(), key).Val())
	openSlot(t, slot, nodes[from], nodes[to])
	ends := func(next *claim, how func() error) {
		if err := how(); err != nil {
			t.Errorf("it fails: %v", err)
		}
		hears(t, next, true)
		g := next.driver.subscriber.granted(next)
		entry := nodes[from].Get(t.Context(), key).Val()
		if want := fmt.Sprintf("%s %d ", next.request.Owner, g.Token); !strings.HasPrefix(entry, want) {
			t.Fatalf("told of token %d, the entry is %q", g.Token, entry)
		}
		grants(t, next)
	}
	a.ambiguous = true
	ends(b, func() error { return a.Release(t.Context()) })
	ends(c, func() error { return rival.Break(t.Context(), "x", b.token) })
	closeSlot(t, slot, addrs[to], nodes[from], nodes[to], nodes)
	releases(t, c)
}
