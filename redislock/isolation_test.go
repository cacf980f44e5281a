package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A key of another type fails the renewal of its own lock, and no other.
func TestOneBadKeyFailsAlone(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	for _, split := range []bool{false, true} {
		t.Run(fmt.Sprintf("split=%v", split), func(t *testing.T) {
			d := driverOn(t, c, freshPrefix())
			d.split.Store(split)
			batch := renewals(t, d, 10)
			bad := batch[3].Claim.(*claim).key.entry()
			testkit.Must(t, c.Del(t.Context(), bad).Err())
			testkit.Must(t, c.HSet(t.Context(), bad, "a", "b").Err())
			d.Renew(t.Context(), batch)
			for i, r := range batch {
				if i == 3 && (r.Err == nil || errors.Is(r.Err, distlock.ErrLost) || !strings.Contains(r.Err.Error(), "WRONGTYPE")) ||
					i != 3 && (r.Err != nil || r.Grant.TTL != 2*long) {
					t.Errorf("claim %d: %+v, %v", i, r.Grant, r.Err)
				}
			}
			list, err := d.List(t.Context(), "x")
			if err != nil || len(list) != 9 {
				t.Errorf("List: %d names, %v, want the 9 that are held", len(list), err)
			}
		})
	}
}

// After its clock has gone back, a server says that an entry lasts for long. That ends when the
// clock comes forward again.
func TestNoGrantForMoreThanWasAskedFor(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	for _, split := range []bool{false, true} {
		d := driverOn(t, c, freshPrefix())
		d.split.Store(split)
		a := d.claim("x", long)
		grants(t, a)
		testkit.Must(t, c.PExpire(t.Context(), a.key.entry(), time.Hour).Err())
		if g, err := a.Renew(t.Context(), long); err != nil || g.TTL != long {
			t.Errorf("Renew for %v: %+v, %v", long, g, err)
		}
		if g := grants(t, a); g.TTL != long { // the request is sent twice
			t.Errorf("Try for %v: %+v", long, g)
		}
		releases(t, a)
	}
}

// What the owner of the client has closed does not come back.
func TestClosedClientIsFinal(t *testing.T) {
	t.Parallel()
	for _, cluster := range []bool{false, true} {
		var c redis.UniversalClient = client(t, server(t).URL())
		if cluster {
			c = clusterClient(t, []string{"127.0.0.1:1"})
		}
		d := driverOn(t, c, freshPrefix())
		a := d.claim("x", long)
		a.token = 1
		testkit.Must(t, c.Close())
		batch := []driver.Renewal{{Claim: a, TTL: long}}
		d.Renew(t.Context(), batch)
		_, listErr := d.List(t.Context(), "")
		for what, err := range map[string]error{
			"Try":     second(d.claim("y", long).Try(t.Context())),
			"Renew":   batch[0].Err,
			"Release": a.Release(t.Context()),
			"Inspect": second(d.Inspect(t.Context(), "x")),
			"List":    listErr,
			"Break":   d.Break(t.Context(), "x", 1),
		} {
			if !errors.Is(err, distlock.ErrClosed) || !errors.Is(err, redis.ErrClosed) {
				t.Errorf("cluster %v: %s on a closed client: %v, want ErrClosed of both", cluster, what, err)
			}
		}
	}
}

// While a slot is being moved, some of its keys are here and some there: what is held is
// renewed, and what needs several keys goes on trying.
func testClusterOpenSlot(t *testing.T, addrs []string, nodes []*redis.Client) {
	for _, node := range nodes {
		defer withRights(t, aclRule(t, true), node)()
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, Username: "locker", Password: "secret"})
	defer c.Close()
	d := driverOn(t, c, "distlock:"+freshPrefix())
	a := d.claim("x", long)
	grants(t, a)
	key := a.key.entry()
	slot := int(nodes[0].ClusterKeySlot(t.Context(), key).Val())
	master, err := c.MasterForKey(t.Context(), key)
	testkit.Must(t, err)
	from, to := 0, 1
	for i, addr := range addrs {
		if addr == master.Options().Addr {
			from, to = i, (i+1)%len(addrs)
		}
	}
	openSlot(t, slot, nodes[from], nodes[to])
	if g, err := a.Renew(t.Context(), long); err != nil || g.TTL != long {
		t.Errorf("Renew in an open slot: %+v, %v", g, err)
	}
	host, port, err := net.SplitHostPort(addrs[to])
	testkit.Must(t, err)
	testkit.Must(t, nodes[from].Do(t.Context(), "MIGRATE", host, port, key, 0, 5000).Err())
	if g, err := a.Renew(t.Context(), long); err != nil || g.TTL != long {
		t.Errorf("Renew of an entry that has moved before its slot: %+v, %v", g, err)
	}
	if _, err := d.tryOnly("x", long).Try(t.Context()); !redis.IsTryAgainError(err) || driver.FateOf(err) != driver.NotNow {
		t.Errorf("Try: %v (%v), want the answer of the server", err, driver.FateOf(err))
	}
	refusals := func() (n int) {
		_, stats, _ := strings.Cut(nodes[to].Info(t.Context(), "errorstats").Val()+nodes[from].Info(t.Context(), "errorstats").Val(), "errorstat_TRYAGAIN:count=")
		_, _ = fmt.Sscanf(stats, "%d", &n)
		return n
	}
	l := lockerOn(t, clusterClient(t, addrs), &Options{Prefix: d.prefix})
	locked, before := make(chan error, 1), refusals()
	go func() { locked <- second(l.Lock(t.Context(), "x")) }()
	testkit.Until(t, "Lock asks again and again", func() bool { return refusals() >= before+3 || len(locked) > 0 })
	closeSlot(t, slot, addrs[to], nodes[from], nodes[to], nodes)
	testkit.Until(t, "it waits", func() bool {
		st, err := l.Inspect(t.Context(), "x")
		return err == nil && st.Waiters == 1 || len(locked) > 0
	})
	if _, err := a.Renew(t.Context(), long); err != nil {
		t.Errorf("Renew after the slot has moved: %v", err)
	}
	releases(t, a)
	testkit.Must(t, <-locked)
}

// A master that hangs holds up nothing of the others: no renewal, no Try, no wake-up, and
// List and Close for no longer than they may take.
func testClusterFrozen(t *testing.T, addrs []string, members []*servers.Server) {
	prefix := freshPrefix()
	d, rival := driverOn(t, clusterClient(t, addrs), prefix), driverOn(t, clusterClient(t, addrs), prefix)
	batch := renewals(t, d, 30)
	master := func(c *claim) string {
		m, err := d.cluster.MasterForKey(t.Context(), c.key.entry())
		testkit.Must(t, err)
		return m.Options().Addr
	}
	ill := master(batch[0].Claim.(*claim))
	var holder *claim // of a name on another master
	for _, r := range batch {
		if c := r.Claim.(*claim); master(c) != ill {
			holder = c
		}
	}
	waiter, stuck := rival.claim(holder.request.Name, long), rival.claim("x0", long)
	queues(t, waiter)
	queues(t, stuck)
	hc := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ReadTimeout: -1})
	t.Cleanup(func() { _ = hc.Close() })
	heedless := driverOn(t, hc, prefix)
	heedless.Renew(t.Context(), batch) // it knows the topology
	freeze(t, members, ill)

	const limit = 6 * time.Second
	testkit.Within(t, limit, func() {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		d.Renew(ctx, batch)
	})
	for i, r := range batch {
		switch dead := master(r.Claim.(*claim)) == ill; {
		case dead && (r.Err == nil || !strings.Contains(r.Err.Error(), ill) || errors.Is(r.Err, context.DeadlineExceeded)):
			t.Errorf("claim %d, on the master that hangs: %v", i, r.Err)
		case !dead && (r.Err != nil || r.Grant.TTL != 2*long):
			t.Errorf("claim %d, on another master: %+v, %v", i, r.Grant, r.Err)
		}
	}
	for _, how := range []func(context.Context, time.Duration) (context.Context, context.CancelFunc){context.WithTimeout, cancelAfter} {
		testkit.Within(t, limit, func() { // its reads have no timeout
			ctx, cancel := how(t.Context(), limit/2)
			defer cancel()
			heedless.Renew(ctx, batch)
		})
		for i, r := range batch {
			if master(r.Claim.(*claim)) != ill && r.Err != nil {
				t.Errorf("claim %d, on another master, by a client that does not heed contexts: %v", i, r.Err)
			}
		}
		testkit.Within(t, limit, func() {
			ctx, cancel := how(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := d.List(ctx, ""); err == nil {
				t.Error("List has an answer of the master that hangs")
			}
		})
	}
	for i := range 20 {
		if c := d.claim(fmt.Sprint("y", i), long); master(c) != ill {
			grants(t, c)
			releases(t, c)
		}
	}
	releases(t, holder)
	hears(t, waiter)
	grants(t, waiter)
	releases(t, waiter)
	testkit.Must(t, rival.Close())
}

// freeze makes the member of a cluster at addr hang until the test is over.
func freeze(t *testing.T, members []*servers.Server, addr string) {
	t.Helper()
	for _, s := range members {
		if s.Addr() == addr {
			testkit.Must(t, s.Pause(t.Context()))
			t.Cleanup(func() { testkit.Must(t, s.Resume(context.Background())) })
		}
	}
}

// cancelAfter returns a context without a deadline.
func cancelAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(d, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}
