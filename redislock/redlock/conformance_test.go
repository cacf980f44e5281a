package redlock

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // each refused connection is a line
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue { // the tests mostly wait
		_ = f.Value.Set("4")
	}
	pin.Main(m, openURL)
}

func openURL(ctx context.Context, url, namespace string) (distlock.Locker, error) {
	return Open(ctx, url, &Options{Prefix: namespace})
}

// TestConformance runs the groups that take seconds. With DISTLOCK_REDLOCK_CONFORMANCE=all it runs
// the whole suite, which takes minutes.
func TestConformance(t *testing.T) {
	t.Parallel()
	groups := []string{"meta", "core", "held", "after", "owner", "fence", "cancel", "inspect", "list", "break", "pair"}
	all := os.Getenv("DISTLOCK_REDLOCK_CONFORMANCE") == "all"
	g := five(t)
	h := pin.OnStore(t, pin.Store{Servers: g.servers, Addrs: g.addrs(), URL: func(addrs ...string) string { return urlOf(addrs) }}, openURL)
	pin.Run(t, harness{h, g.admins}, &conformance.Options{Filter: func(k conformance.Check) bool {
		return all || slices.Contains(groups, k.Group())
	}})
}

// group is five servers, with a client of each that looks into it without the driver.
type group struct {
	servers []*servers.Server
	admins  []*redis.Client
}

func five(t *testing.T) *group {
	t.Helper()
	return fiveOf(t, func() *servers.Server { return servers.ForTest(t, servers.Redis) })
}

// fiveForgetful is five servers that keep nothing on disk.
func fiveForgetful(t *testing.T) *group {
	t.Helper()
	return fiveOf(t, func() *servers.Server { return servers.ConfiguredForTest(t, servers.Redis) })
}

func fiveOf(t *testing.T, start func() *servers.Server) *group {
	t.Helper()
	g := new(group)
	for range 5 {
		s := start()
		admin := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, ReadTimeout: 30 * time.Second, MaxRetries: -1})
		t.Cleanup(func() { _ = admin.Close() })
		g.servers, g.admins = append(g.servers, s), append(g.admins, admin)
	}
	return g
}

func (g *group) addrs() []string {
	var addrs []string
	for _, s := range g.servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// url trusts restarts: the servers have append-only files, and no power cut comes.
func (g *group) url() string { return urlOf(g.addrs()) }

func urlOf(addrs []string) string {
	return "redlock://" + strings.Join(addrs, ",") + "?after_restart=trust"
}

// harness looks into the servers without the driver.
type harness struct {
	*pin.Harness
	admins []*redis.Client
}

// Records returns 1 if a majority has an entry: what a minority has stops nobody.
func (h harness) Records(ctx context.Context, name string) (int, error) {
	var counts []int64
	for _, a := range h.admins {
		n, err := a.Exists(ctx, keyOf(defaultPrefix, name).entry()).Result()
		if err != nil {
			return 0, err
		}
		counts = append(counts, n)
	}
	slices.Sort(counts)
	return int(counts[len(counts)/2]), nil
}

func (h harness) Waiters(ctx context.Context, name string) (int, error) { return -1, nil }

// BlockName implements conformance.NameBlocker: another program uses the key for a list, so that
// every request for the name fails.
func (h harness) BlockName(ctx context.Context, name string) (func() error, error) {
	undo := func() error { return h.Delete(context.Background(), name) }
	if err := undo(); err != nil {
		return nil, err
	}
	for _, a := range h.admins {
		if err := a.RPush(ctx, keyOf(defaultPrefix, name).entry(), "not a lock").Err(); err != nil {
			return undo, err
		}
	}
	return undo, nil
}

// Delete removes the entry until it is nowhere: a renewal that goes on meanwhile puts it back where it finds the others.
func (h harness) Delete(ctx context.Context, name string) error {
	for deleted := int64(1); deleted > 0; {
		deleted = 0
		for _, a := range h.admins {
			n, err := a.Del(ctx, keyOf(defaultPrefix, name).entry()).Result()
			if err != nil {
				return err
			}
			deleted += n
		}
	}
	return nil
}
