package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/internal/chaos"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/sandbox"
	"github.com/distlock-go/distlock/internal/servers"
)

// topology is a way to run a store.
type topology struct {
	name   string
	says   string // for the page: the servers, and what is done to them
	unsafe string // when locks may be forgotten; empty if never
	suite  bool   // whether the suite examines it: not where another topology has the same servers
	start  func(t *testing.T) deployment
}

// deployment is a topology that stands.
type deployment struct {
	harness.Store
	faults []chaos.Fault

	// failover lets the suite take the master away.
	failover *roles

	// alone reports whether the first server alone decides about a name. It lets the suite
	// make that server stuck; nil does not.
	alone func(name string) bool

	// ensemble has the servers, if they need a quorum. It may itself need help after a fault.
	ensemble *servers.Ensemble

	// open is another way to open the client of this number than by the URL of the store.
	open func(ctx context.Context, client int) (distlock.Locker, error)
}

var topologies = append([]topology{
	{"redis", "one Redis with an append-only file that is synced with each write", "", true, func(t *testing.T) deployment {
		s := servers.ConfiguredForTest(t, servers.Redis, "appendonly yes", "appendfsync always")
		return single(s, killed("redis", s), frozen("redis", s))
	}},
	{"redis without a file", "one Redis that keeps nothing on disk", "a kill forgets all locks", true, func(t *testing.T) deployment {
		s := servers.ConfiguredForTest(t, servers.Redis)
		return single(s, killed("redis", s), frozen("redis", s))
	}},
	{"redis, clock steps", "one Redis with a clock that is set forward and back by 3 s", "forward ends leases early", false, func(t *testing.T) deployment {
		s := servers.ClockedForTest(t, servers.Redis)
		return single(s, jumped(s, 3*time.Second), jumped(s, -3*time.Second))
	}},
	{"redis, sentinel", "a Redis with a replica and three sentinels", "a failover forgets what was not replicated", true, sentinel},
	{"redis, cluster", "three masters without replicas, that keep nothing on disk", "a kill forgets the locks of a master", true, func(t *testing.T) deployment {
		d := deployment{Store: harness.Store{Servers: servers.ClusterForTest(t, 3), Found: true, URL: func(addrs ...string) string {
			return "redis://" + strings.Join(addrs, ",") + "?cluster=true"
		}}}
		for i, s := range d.Servers {
			d.Addrs = append(d.Addrs, s.Addr())
			d.faults = append(d.faults, frozen(fmt.Sprintf("master %d", i+1), s), killed(fmt.Sprintf("master %d", i+1), s))
		}
		last := redis.NewClient(&redis.Options{Addr: d.Addrs[2]})
		t.Cleanup(func() { last.Close() })
		d.alone = func(name string) bool {
			slot, err := last.ClusterKeySlot(context.Background(), "{"+name+"}").Result() // the tag of its keys
			return err == nil && slot < 16384/3
		}
		return d
	}},
	{"redis, redlock", "five Redis that know nothing of each other, with append-only files; one or two at a time are killed or frozen", "", true, redlock},
	{"redis, bad network", "one Redis behind connections that break, delay and swallow", "", false, func(t *testing.T) deployment {
		return badNetwork(t, servers.ForTest(t, servers.Redis))
	}},
	{"mysql", "one MySQL or MariaDB", "", true, func(t *testing.T) deployment {
		s := servers.ForTest(t, servers.MySQL)
		return single(s, killed("mysql", s), frozen("mysql", s))
	}},
	{"mysql, clock steps", "one MySQL or MariaDB with a clock that is set forward and back by 3 s", "forward ends leases early", false, func(t *testing.T) deployment {
		s := servers.ClockedForTest(t, servers.MySQL)
		return single(s, jumped(s, 3*time.Second), jumped(s, -3*time.Second))
	}},
	{"mysql, bad network", "one MySQL or MariaDB behind connections that break, delay and swallow", "", false, func(t *testing.T) deployment {
		return badNetwork(t, servers.ForTest(t, servers.MySQL))
	}},
	{"postgres", "one Postgres", "", true, func(t *testing.T) deployment {
		s := servers.ForTest(t, servers.Postgres)
		return single(s, killed("postgres", s), frozen("postgres", s))
	}},
	{"postgres, clock steps", "one Postgres with a clock that is set forward and back by 3 s", "forward ends leases early", false, func(t *testing.T) deployment {
		s := servers.ClockedForTest(t, servers.Postgres)
		return single(s, jumped(s, 3*time.Second), jumped(s, -3*time.Second))
	}},
	{"postgres, bad network", "one Postgres behind connections that break, delay and swallow", "", false, func(t *testing.T) deployment {
		return badNetwork(t, servers.ForTest(t, servers.Postgres))
	}},
	{"zookeeper", "one ZooKeeper", "", true, func(t *testing.T) deployment {
		s := servers.ForTest(t, servers.ZooKeeper)
		return single(s, killed("zookeeper", s), frozen("zookeeper", s))
	}},
	{"zookeeper, bad network", "one ZooKeeper behind connections that break, delay and swallow", "", false, func(t *testing.T) deployment {
		return badNetwork(t, servers.ForTest(t, servers.ZooKeeper))
	}},
	{"etcd", "one etcd", "", true, func(t *testing.T) deployment {
		s := servers.ForTest(t, servers.Etcd)
		return single(s, killed("etcd", s), frozen("etcd", s))
	}},
	{"etcd, bad network", "one etcd behind connections that break, delay and swallow", "", false, func(t *testing.T) deployment {
		return badNetwork(t, servers.ForTest(t, servers.Etcd))
	}},
}, quorum...)

// sessions bounds ZooKeeper's sessions. The suite wants TTLs of 8 s, and waits for the
// longest session where a holder dies.
const sessions = "?session_timeout=13s&tick_time=200ms"

// single is a store of one server.
func single(s *servers.Server, faults ...chaos.Fault) deployment {
	url := s.LockURL()
	if s.Kind() == servers.ZooKeeper {
		url += sessions
	}
	return deployment{Store: harness.Store{Servers: []*servers.Server{s}, Addrs: []string{s.Addr()}, URL: func(addrs ...string) string {
		return strings.Replace(url, s.Addr(), strings.Join(addrs, ","), 1)
	}}, faults: faults}
}

// ensemble is a store of several servers without TLS or users.
func ensemble(e *servers.Ensemble, faults ...chaos.Fault) deployment {
	d := single(e.Members[0], faults...)
	d.Servers, d.Addrs, d.ensemble = e.Members, e.Addrs(), e
	return d
}

// subject is what the faults are done to.
func (top topology) subject(d deployment) chaos.Subject {
	s := chaos.Subject{
		Name:      top.name,
		Open:      d.open,
		Faults:    d.faults,
		Exclusive: top.unsafe == "",
		// Of ZooKeeper: its sessions are the longest beside their TTL; the others are faster.
		Lag:         10 * time.Second,
		Granularity: time.Second,
	}
	if d.ensemble != nil {
		s.Serves, s.Revive = d.ensemble.Serves, d.ensemble.Revive
	}
	if s.Open == nil {
		url := d.URL(d.Addrs...)
		s.Open = func(ctx context.Context, _ int) (distlock.Locker, error) { return open(ctx, url, "") }
	}
	return s
}

// open is patient: the run opens a client when all is well, which after a fault may take
// the store a while. A namespace is a part of the store that the URL names.
func open(ctx context.Context, url, namespace string) (distlock.Locker, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if namespace != "" {
		made, _ := namespaces.LoadOrStore(url+" "+namespace, sync.OnceValues(func() (*sandbox.Sandbox, error) { return sandbox.New(url, "ns") }))
		part, err := made.(func() (*sandbox.Sandbox, error))()
		if err != nil {
			return nil, err
		}
		url = part.URL("")
	}
	return backends.Open(ctx, url)
}

// namespaces has the parts of stores in use.
var namespaces sync.Map

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
func redlock(t *testing.T) deployment {
	never := func(string) bool { return false }
	d := deployment{alone: never, Store: harness.Store{URL: func(addrs ...string) string {
		return "redlock://" + strings.Join(addrs, ",") + "?after_restart=trust"
	}}}
	var before chaos.Fault
	for i := range 5 {
		s := servers.ForTest(t, servers.Redis)
		d.Servers, d.Addrs = append(d.Servers, s), append(d.Addrs, s.Addr())
		one := frozen(fmt.Sprintf("server %d", i+1), s)
		d.faults = append(d.faults, killed(fmt.Sprintf("server %d", i+1), s), one)
		if i > 0 {
			d.faults = append(d.faults, both(before, one))
		}
		before = one
	}
	return d
}

func both(a, b chaos.Fault) chaos.Fault {
	return chaos.Fault{
		Name:  a.Name + " and " + b.Name,
		Break: func(ctx context.Context) error { return errors.Join(a.Break(ctx), b.Break(ctx)) },
		Mend:  func(ctx context.Context) error { return errors.Join(a.Mend(ctx), b.Mend(ctx)) },
	}
}

// badNetwork gives each client a link of its own.
func badNetwork(t *testing.T, s *servers.Server) deployment {
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
	d := single(s,
		fault("all connections cut", func(_ int, l netfault.Link) { l.CutAll() }),
		fault("half of the clients cut off", func(i int, l netfault.Link) { l.Drop(i%2 == 0, i%2 == 0) }),
		fault("replies of half of the clients lost", func(i int, l netfault.Link) { l.Drop(false, i%2 == 1) }),
		fault("requests held back", func(_ int, l netfault.Link) { l.HoldRequest(3) }),
		fault("replies cut", func(i int, l netfault.Link) { l.CutReply(1 + i) }),
		fault("slow", func(_ int, l netfault.Link) { l.Delay(100*time.Millisecond, 100*time.Millisecond) }),
	)
	d.open = func(ctx context.Context, client int) (distlock.Locker, error) {
		p, err := netfault.NewTCPProxy(s.Addr(), uint64(client))
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { p.Close() })
		mu.Lock()
		links = append(links, p)
		mu.Unlock()
		return open(ctx, d.URL(p.Addr()), "")
	}
	return d
}
