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
	"github.com/distlock-go/distlock/internal/testkit"
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
	t.Parallel()
	behind := func(n *network) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: server(t).Addr(), Dialer: n.dial, ContextTimeoutEnabled: true,
			DialerRetries: 1, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	n, another := new(network), new(network) // a claim's own, for the waiter dials again and again
	drivers, prefix := stores(t, 2)
	d := driverOn(t, behind(another), prefix)
	a, last := drivers[0].claim("x", long), drivers[1].claim("x", long)
	grants(t, a)
	got := make(chan error, 1)
	l := lockerOn(t, behind(n), &Options{Prefix: prefix, Options: distlock.Options{TTL: long}})
	go func() {
		lock, err := l.Lock(t.Context(), "x")
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		got <- err
	}()
	admin := client(t, server(t).URL())
	listening := func(many int) func() bool {
		return func() bool {
			return len(admin.PubSubChannels(t.Context(), prefix+"wake:*").Val()) == many || len(got) > 0
		}
	}
	testkit.Until(t, "it waits", listening(1))
	queues(t, last)
	n.set(true)
	another.set(true)
	if _, err := d.claim("x", long).Try(t.Context()); !errors.Is(err, errDown) || another.failed() > 3 {
		t.Errorf("Try of a claim that is not in the queue: %v after %d attempts to connect", err, another.failed())
	}
	testkit.Until(t, "it tries again", func() bool { return n.failed() >= 10 || len(got) > 0 })
	testkit.Until(t, "the server knows", listening(1))
	n.set(false)
	testkit.Until(t, "it is back", listening(2))
	releases(t, a)
	testkit.Must(t, <-got)
	hears(t, last)
	grants(t, last)
	releases(t, last)
}

// A long script of another user makes a server refuse what comes meanwhile. It has run nothing of
// that: a lock is renewed as soon as it can be, and Lock asks again.
func TestServerInALongScript(t *testing.T) {
	t.Parallel()
	_, admin := own(t)
	testkit.Must(t, admin.ConfigSet(t.Context(), "lua-time-limit", "1").Err())
	l := lockerOn(t, admin, nil)
	lock, err := l.Lock(t.Context(), "x", distlock.TTL(15*time.Second))
	testkit.Must(t, err)
	other := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, ReadTimeout: -1, MaxRetries: -1})
	defer other.Close()
	released := make(chan struct{})
	go func() { defer close(released); _ = other.Eval(context.Background(), "while true do end", nil).Err() }()
	testkit.Until(t, "the server is busy", func() bool { return redis.HasErrorPrefix(admin.Ping(t.Context()).Err(), "BUSY ") })
	deadline := lock.Deadline()
	if _, err := l.TryLock(t.Context(), "y"); !redis.HasErrorPrefix(err, "BUSY ") {
		t.Errorf("TryLock: %v, want the server's answer", err)
	}
	timer := time.AfterFunc(time.Second, func() { _ = admin.ScriptKill(context.Background()).Err() })
	defer timer.Stop()
	waited, err := l.Lock(t.Context(), "y")
	testkit.Must(t, err)
	testkit.Must(t, waited.Unlock(t.Context()))
	<-released
	testkit.Until(t, "it is renewed", func() bool { return lock.Deadline().After(deadline) || lock.Err() != nil })
	testkit.Must(t, lock.Unlock(t.Context()))
}

// A claim may be granted its name and not be told of it, though it listened. Then the next ones
// look by themselves until a message has arrived.
func TestMissedWakeUpHasTheChannelTested(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 2)
	a, b, next := drivers[0].claim("x", long), drivers[1].claim("x", long), drivers[1].claim("x", long)
	grants(t, a)
	queues(t, b)
	testkit.Until(t, "the channel is confirmed", func() bool { return drivers[1].subscriber.relies(b) })
	drivers[1].subscriber.enlist(t.Context(), b, false)                               // as Wait does
	testkit.Must(t, client(t, server(t).URL()).Del(t.Context(), a.key.entry()).Err()) // tells no waiter
	grants(t, b)
	if drivers[1].subscriber.relies(b) {
		t.Error("the channel is relied on")
	}
	refuses(t, next) // tests it
	testkit.Until(t, "the channel is confirmed again", func() bool { return drivers[1].subscriber.relies(next) })
	releases(t, b)
	hears(t, next)
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
	testkit.Must(t, err)
	from := slices.Index(addrs, master.Options().Addr)
	to := (from + 1) % len(addrs)
	slot := int(nodes[0].ClusterKeySlot(t.Context(), key).Val())
	openSlot(t, slot, nodes[from], nodes[to])
	ends := func(next *claim, how func() error) {
		if err := how(); err != nil {
			t.Errorf("it fails: %v", err)
		}
		hears(t, next)
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
