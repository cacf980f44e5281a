package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/internal/chaos"
	"github.com/distlock-go/distlock/internal/servers"
)

// topology is a way to run a store, started for one test.
type topology struct {
	name  string
	says  string // for the page: the servers, and why locks may be forgotten
	start func(t *testing.T) chaos.Subject
}

var topologies = append([]topology{
	{"redis", "one Redis with an append-only file that is synced with each write", func(t *testing.T) chaos.Subject {
		s := servers.ConfiguredForTest(t, servers.Redis, "appendonly yes", "appendfsync always")
		return subject(s.LockURL(), true, killed("redis", s), frozen("redis", s))
	}},
	{"redis without a file", "one Redis that keeps nothing on disk: a kill forgets all locks", func(t *testing.T) chaos.Subject {
		s := servers.ConfiguredForTest(t, servers.Redis)
		return subject(s.LockURL(), false, killed("redis", s), frozen("redis", s))
	}},
	{"redis, clock steps", "one Redis with a clock that is set forward and back by 3 s: forward ends leases early", func(t *testing.T) chaos.Subject {
		s := servers.ClockedForTest(t, servers.Redis)
		return subject(s.LockURL(), false, jumped(s, 3*time.Second), jumped(s, -3*time.Second))
	}},
	{"redis, sentinel", "a Redis with a replica and three sentinels: a fail-over forgets what was not replicated", sentinel},
	{"redis, cluster", "three masters without replicas, that keep nothing on disk", func(t *testing.T) chaos.Subject {
		nodes := servers.ClusterForTest(t, 3)
		var addrs []string
		var faults []chaos.Fault
		for i, s := range nodes {
			addrs = append(addrs, s.Addr())
			faults = append(faults, frozen(fmt.Sprintf("master %d", i+1), s), killed(fmt.Sprintf("master %d", i+1), s))
		}
		return subject("redis://"+strings.Join(addrs, ",")+"?cluster=true", false, faults...)
	}},
	{"redis, redlock", "five Redis that know nothing of each other, with append-only files; one or two at a time are killed or frozen", redlock},
	{"redis, bad network", "one Redis behind connections that break, delay and swallow", func(t *testing.T) chaos.Subject {
		return badNetwork(t, servers.ForTest(t, servers.Redis))
	}},
	{"mysql", "one MySQL or MariaDB", func(t *testing.T) chaos.Subject {
		s := servers.ForTest(t, servers.MySQL)
		return subject(s.LockURL(), true, killed("mysql", s), frozen("mysql", s))
	}},
	{"mysql, clock steps", "one MySQL or MariaDB with a clock that is set forward and back by 3 s: forward ends leases early", func(t *testing.T) chaos.Subject {
		s := servers.ClockedForTest(t, servers.MySQL)
		return subject(s.LockURL(), false, jumped(s, 3*time.Second), jumped(s, -3*time.Second))
	}},
	{"mysql, bad network", "one MySQL or MariaDB behind connections that break, delay and swallow", func(t *testing.T) chaos.Subject {
		return badNetwork(t, servers.ForTest(t, servers.MySQL))
	}},
	{"zookeeper", "one ZooKeeper", func(t *testing.T) chaos.Subject {
		s := servers.ForTest(t, servers.ZooKeeper)
		return subject(s.LockURL(), true, killed("zookeeper", s), frozen("zookeeper", s))
	}},
	{"zookeeper, bad network", "one ZooKeeper behind connections that break, delay and swallow", func(t *testing.T) chaos.Subject {
		return badNetwork(t, servers.ForTest(t, servers.ZooKeeper))
	}},
	{"etcd", "one etcd", func(t *testing.T) chaos.Subject {
		s := servers.ForTest(t, servers.Etcd)
		return subject(s.LockURL(), true, killed("etcd", s), frozen("etcd", s))
	}},
	{"etcd, bad network", "one etcd behind connections that break, delay and swallow", func(t *testing.T) chaos.Subject {
		return badNetwork(t, servers.ForTest(t, servers.Etcd))
	}},
}, quorum...)

// subject locks on what a URL names.
func subject(url string, exclusive bool, faults ...chaos.Fault) chaos.Subject {
	return chaos.Subject{
		Open:      func(ctx context.Context, _ int) (distlock.Locker, error) { return open(ctx, url) },
		Faults:    faults,
		Exclusive: exclusive,
		// Of ZooKeeper: its sessions are the longest beside their TTL; the others are faster.
		Lag:         10 * time.Second,
		Granularity: time.Second,
	}
}

// open is patient: the run opens a client when all is well, which after a fault may take
// the store a while.
func open(ctx context.Context, url string) (distlock.Locker, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return backends.Open(ctx, url)
}

func killed(what string, s *servers.Server) chaos.Fault {
	return chaos.Fault{Name: what + " killed", Break: s.Kill, Mend: s.Restart}
}

func frozen(what string, s *servers.Server) chaos.Fault {
	return chaos.Fault{Name: what + " frozen", Break: s.Pause, Mend: s.Resume}
}

func jumped(s *servers.Server, d time.Duration) chaos.Fault {
	return chaos.Fault{
		Name:  fmt.Sprintf("clock set by %+v", d),
		Break: func(ctx context.Context) error { return s.Jump(ctx, d) },
		Mend:  func(ctx context.Context) error { return s.Jump(ctx, -d) },
	}
}

// redlock has a minority of five servers killed or frozen.
func redlock(t *testing.T) chaos.Subject {
	var addrs []string
	var faults []chaos.Fault
	var before chaos.Fault
	for i := range 5 {
		s := servers.ForTest(t, servers.Redis)
		addrs = append(addrs, s.Addr())
		one := frozen(fmt.Sprintf("server %d", i+1), s)
		faults = append(faults, killed(fmt.Sprintf("server %d", i+1), s), one)
		if i > 0 {
			faults = append(faults, both(before, one))
		}
		before = one
	}
	return subject("redlock://"+strings.Join(addrs, ",")+"?after_restart=trust", true, faults...)
}

func both(a, b chaos.Fault) chaos.Fault {
	return chaos.Fault{
		Name:  a.Name + " and " + b.Name,
		Break: func(ctx context.Context) error { return errors.Join(a.Break(ctx), b.Break(ctx)) },
		Mend:  func(ctx context.Context) error { return errors.Join(a.Mend(ctx), b.Mend(ctx)) },
	}
}

// badNetwork gives each client a link of its own.
func badNetwork(t *testing.T, s *servers.Server) chaos.Subject {
	var mu sync.Mutex
	var links []*netfault.TCPProxy
	each := func(f func(i int, l netfault.Link)) func(context.Context) error {
		return func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			for i, l := range links {
				f(i, l)
			}
			return nil
		}
	}
	heal := each(func(_ int, l netfault.Link) { l.Heal() })
	fault := func(name string, f func(i int, l netfault.Link)) chaos.Fault {
		return chaos.Fault{Name: name, Break: each(f), Mend: heal}
	}
	sub := subject("", true,
		fault("all connections cut", func(_ int, l netfault.Link) { l.CutAll() }),
		fault("half of the clients cut off", func(i int, l netfault.Link) { l.Drop(i%2 == 0, i%2 == 0) }),
		fault("replies of half of the clients lost", func(i int, l netfault.Link) { l.Drop(false, i%2 == 1) }),
		fault("requests held back", func(_ int, l netfault.Link) { l.HoldRequest(3) }),
		fault("replies cut", func(i int, l netfault.Link) { l.CutReply(1 + i) }),
		fault("slow", func(_ int, l netfault.Link) { l.Delay(100*time.Millisecond, 100*time.Millisecond) }),
	)
	sub.Open = func(ctx context.Context, client int) (distlock.Locker, error) {
		p, err := netfault.NewTCPProxy(s.Addr(), uint64(client))
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { p.Close() })
		mu.Lock()
		links = append(links, p)
		mu.Unlock()
		url := strings.Replace(s.LockURL(), s.Addr(), p.Addr(), 1)
		return open(ctx, url)
	}
	return sub
}

// sentinel is a master, a replica and three sentinels. The faults find out which of the
// two servers is the master when they come.
func sentinel(t *testing.T) chaos.Subject {
	one := servers.ConfiguredForTest(t, servers.Redis, "repl-diskless-sync-delay 0")
	host, port, err := net.SplitHostPort(one.Addr())
	if err != nil {
		t.Fatal(err)
	}
	two := servers.ConfiguredForTest(t, servers.Redis, "repl-diskless-sync-delay 0", "replicaof "+host+" "+port)
	pair := []*servers.Server{one, two}
	var sentinels []string
	for range 3 {
		s := servers.ConfiguredForTest(t, servers.Redis, "sentinel monitor main "+host+" "+port+" 2",
			"sentinel down-after-milliseconds main 500", "sentinel failover-timeout main 2000")
		sentinels = append(sentinels, s.Addr())
	}
	roles := &roles{pair: pair, sentinel: sentinels[0]}
	if err := roles.settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	return subject("redis+sentinel://"+strings.Join(sentinels, ",")+"/0?master=main", false,
		roles.fault("master killed", (*servers.Server).Kill, (*servers.Server).Restart),
		roles.fault("master frozen", (*servers.Server).Pause, (*servers.Server).Resume))
}

// roles knows the master of two servers.
type roles struct {
	pair     []*servers.Server
	sentinel string
	broken   *servers.Server // by the present fault
}

type step func(*servers.Server, context.Context) error

// fault breaks the master; its mending ends when the pair replicates again, or the next
// fault would take the only server that knows anything.
func (r *roles) fault(name string, do, undo step) chaos.Fault {
	return chaos.Fault{
		Name: name,
		Break: func(ctx context.Context) error {
			addr, err := r.master(ctx)
			if err != nil {
				return err
			}
			for _, s := range r.pair {
				if s.Addr() == addr {
					r.broken = s
				}
			}
			return do(r.broken, ctx)
		},
		Mend: func(ctx context.Context) error {
			if err := undo(r.broken, ctx); err != nil {
				return err
			}
			return r.settled(ctx)
		},
	}
}

func (r *roles) master(ctx context.Context) (string, error) {
	c := redis.NewSentinelClient(&redis.Options{Addr: r.sentinel})
	defer c.Close()
	addr, err := c.GetMasterAddrByName(ctx, "main").Result()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(addr[0], addr[1]), nil
}

// settled waits until the sentinels' master has its replica.
func (r *roles) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		addr, err := r.master(ctx)
		if err == nil {
			c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
			var info string
			info, err = c.Info(ctx, "replication").Result()
			c.Close()
			if err == nil && strings.Contains(info, "role:master") && strings.Contains(info, "state=online") {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the pair does not replicate again: %w", ctx.Err()), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
