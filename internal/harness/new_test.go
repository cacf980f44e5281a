package harness_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/etcdlock"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/mysqllock"
	"github.com/distlock-go/distlock/redislock"
)

// The URL of a server, for a test here, begins with the name of its client and a bar.
func TestMain(m *testing.M) { harness.Main(m, open) }

func open(_ context.Context, rawURL, space string) (distlock.Locker, error) {
	name, rawURL, _ := strings.Cut(rawURL, "|")
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	return clients[name].open(u, space)
}

// client is what a program may have already when it begins to use locks.
type client struct {
	start func(t *testing.T) harness.Store // without URL
	open  func(u *url.URL, space string) (distlock.Locker, error)
}

var clients = map[string]client{
	"redis without timeouts": {
		start: one(servers.Redis),
		open: func(u *url.URL, space string) (distlock.Locker, error) {
			return onRedis(redis.NewClient(&redis.Options{Addr: u.Host, ReadTimeout: -1, WriteTimeout: -1}), space)
		},
	},
	"redis sentinel": {
		start: func(t *testing.T) harness.Store {
			s := servers.ConfiguredForTest(t, servers.Redis)
			return harness.Store{Servers: []*servers.Server{s}, Addrs: []string{servers.SentinelForTest(t, s).Addr()}, Found: true}
		},
		open: func(u *url.URL, space string) (distlock.Locker, error) {
			return onRedis(redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{u.Host}}), space)
		},
	},
	"redis cluster": {
		start: func(t *testing.T) harness.Store {
			nodes := servers.ClusterForTest(t, 3)
			return harness.Store{Servers: nodes, Addrs: []string{nodes[0].Addr(), nodes[1].Addr()}, Found: true}
		},
		open: func(u *url.URL, space string) (distlock.Locker, error) {
			return onRedis(redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(u.Host, ",")}), space)
		},
	},
	"mysql with one connection": {
		start: one(servers.MySQL),
		open: func(u *url.URL, space string) (distlock.Locker, error) {
			c := mysql.NewConfig()
			c.Net, c.Addr, c.DBName, c.User, c.Logger = "tcp", u.Host, strings.Trim(u.Path, "/"), u.User.Username(), &mysql.NopLogger{}
			c.Passwd, _ = u.User.Password()
			connector, err := mysql.NewConnector(c)
			if err != nil {
				return nil, err
			}
			db := sql.OpenDB(connector)
			db.SetMaxOpenConns(1)
			l, err := mysqllock.New(db, &mysqllock.Options{Table: space, Create: true})
			if err != nil {
				return nil, errors.Join(err, db.Close())
			}
			return with{l.Client, sync.OnceValue(db.Close)}, nil
		},
	},
	"etcd in a namespace": {
		start: one(servers.Etcd),
		open: func(u *url.URL, space string) (distlock.Locker, error) {
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{u.Host}, Logger: zap.NewNop(),
				DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second})
			if err != nil {
				return nil, err
			}
			c.KV, c.Watcher, c.Lease = namespace.NewKV(c.KV, "app/"), namespace.NewWatcher(c.Watcher, "app/"), namespace.NewLease(c.Lease, "app/")
			l, err := etcdlock.New(c, &etcdlock.Options{Prefix: space})
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			return with{l.Client, sync.OnceValue(c.Close)}, nil
		},
	},
}

func one(kind servers.Kind) func(*testing.T) harness.Store {
	return func(t *testing.T) harness.Store {
		s := servers.ForTest(t, kind)
		return harness.Store{Servers: []*servers.Server{s}, Addrs: s.Addrs()}
	}
}

func onRedis(c redis.UniversalClient, space string) (distlock.Locker, error) {
	l, err := redislock.New(c, &redislock.Options{Prefix: space})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return with{l.Client, sync.OnceValue(c.Close)}, nil
}

// with is a Locker that takes the user's client with it.
type with struct {
	*driver.Client
	end func() error // the second time as well
}

func (w with) Close() error { return errors.Join(w.Client.Close(), w.end()) }

// newVariable is the environment variable that, as "all", has all mandatory checks run on each client: without it, every
// eighth does, chosen at random.
const newVariable = "DISTLOCK_CONFORMANCE_NEW"

// TestConformanceOfNew has the suite examine the Lockers on clients that a program has already, half of them by chance. That of
// ZooKeeper, which is a session, is in package zklock.
func TestConformanceOfNew(t *testing.T) {
	for _, name := range servers.Sample(len(clients)/2, slices.Collect(maps.Keys(clients))...) {
		client := clients[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := client.start(t)
			first := store.Servers[0]
			store.URL = func(addrs ...string) string { return name + "|" + first.URLVia(strings.Join(addrs, ",")) }
			h := harness.OnStore(t, store, open)
			conformance.Run(t, h, &conformance.Options{Parallel: 6, Filter: sample()})
		})
	}
}

func sample() func(conformance.Check) bool {
	share := uint32(8)
	if os.Getenv(newVariable) == "all" {
		share = 1
	}
	some := harness.OneIn(share)
	return func(k conformance.Check) bool {
		return k.Mandatory && some(k) && !strings.HasPrefix(k.ID, "pair/herd") // which is about the store
	}
}
