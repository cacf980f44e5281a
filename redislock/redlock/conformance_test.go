package redlock

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
)

const childURL = "DISTLOCK_REDLOCK_CHILD_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		os.Exit(conformance.ChildMain(func(ctx context.Context) (distlock.Locker, error) { return Open(ctx, url, nil) }))
	}
	redis.SetLogger(&logging.VoidLogger{}) // each refused connection is a line
	os.Exit(m.Run())
}

// TestConformance runs the groups that take seconds. With DISTLOCK_REDLOCK_CONFORMANCE=all it runs
// the whole suite, which takes minutes.
func TestConformance(t *testing.T) {
	groups := []string{"meta", "core", "held", "owner", "fence", "cancel", "inspect", "list", "break"}
	all := os.Getenv("DISTLOCK_REDLOCK_CONFORMANCE") == "all"
	conformance.Run(t, harness{five(t)}, &conformance.Options{Filter: func(k conformance.Check) bool {
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
	g := new(group)
	for range 5 {
		s := servers.ForTest(t, servers.Redis)
		admin := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Second, MaxRetries: -1})
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

func (g *group) all(ctx context.Context, f func(*servers.Server, context.Context) error) error {
	errs := make([]error, len(g.servers))
	var all sync.WaitGroup
	for i, s := range g.servers {
		all.Go(func() { errs[i] = f(s, ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// harness lets the suite examine the driver on five servers.
type harness struct{ *group }

var (
	_ conformance.Proxy      = harness{}
	_ conformance.Process    = harness{}
	_ conformance.Inspector  = harness{}
	_ conformance.Namespaces = harness{}
	_ conformance.Child      = harness{}
)

func (h harness) Open(ctx context.Context, c *conformance.C) (distlock.Locker, error) {
	return Open(ctx, h.url(), nil)
}

func (h harness) OpenIn(ctx context.Context, c *conformance.C, label string) (distlock.Locker, error) {
	return Open(ctx, h.url()+"&prefix="+label, nil)
}

func (h harness) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	var l links
	var addrs []string
	for _, s := range h.servers {
		p, err := netfault.NewTCPProxy(s.Addr(), c.Rand().Uint64())
		if err != nil {
			return nil, nil, err
		}
		c.Cleanup(func() { _ = p.Close() })
		l, addrs = append(l, p), append(addrs, p.Addr())
	}
	locker, err := Open(ctx, urlOf(addrs), nil)
	return locker, l, err
}

func (h harness) Child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+h.url())
	return cmd
}

func (h harness) Pause(ctx context.Context) error   { return h.all(ctx, (*servers.Server).Pause) }
func (h harness) Resume(ctx context.Context) error  { return h.all(ctx, (*servers.Server).Resume) }
func (h harness) Kill(ctx context.Context) error    { return h.all(ctx, (*servers.Server).Kill) }
func (h harness) Restart(ctx context.Context) error { return h.all(ctx, (*servers.Server).Restart) }

func (h harness) Caps() conformance.Caps {
	caps := conformance.CapsFrom(capabilities())
	caps.Inspector, caps.Proxy, caps.Namespaces, caps.Child = conformance.Yes, conformance.Yes, conformance.Yes, conformance.Yes
	caps.Process, caps.ServerClock, caps.Failover = conformance.Yes, conformance.No, conformance.No
	return caps
}

func capabilities() driver.Capabilities { return (&store{maxTTL: defaultMaxTTL}).Capabilities() }

func (h harness) Timing() conformance.Timing { return conformance.TimingFrom(capabilities()) }

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

func (h harness) Delete(ctx context.Context, name string) error {
	for _, a := range h.admins {
		if err := a.Del(ctx, keyOf(defaultPrefix, name).entry()).Err(); err != nil {
			return err
		}
	}
	return nil
}

// links are those of one client to all servers, with the same fault on each.
type links []*netfault.TCPProxy

func (l links) each(f func(netfault.Link)) {
	for _, p := range l {
		f(p)
	}
}

// most is that of the server that sees the most: bounds are for one server.
func (l links) most(f func(netfault.Link) int64) (most int64) {
	l.each(func(p netfault.Link) { most = max(most, f(p)) })
	return most
}

func (l links) CutReply(k int)    { l.each(func(p netfault.Link) { p.CutReply(k) }) }
func (l links) CutRequest(k int)  { l.each(func(p netfault.Link) { p.CutRequest(k) }) }
func (l links) HoldRequest(k int) { l.each(func(p netfault.Link) { p.HoldRequest(k) }) }
func (l links) Release()          { l.each(netfault.Link.Release) }
func (l links) Drop(up, down bool) {
	l.each(func(p netfault.Link) { p.Drop(up, down) })
}
func (l links) Delay(d, jitter time.Duration) {
	l.each(func(p netfault.Link) { p.Delay(d, jitter) })
}
func (l links) Slice(on bool) { l.each(func(p netfault.Link) { p.Slice(on) }) }
func (l links) CutAll()       { l.each(netfault.Link.CutAll) }
func (l links) Heal()         { l.each(netfault.Link.Heal) }
func (l links) Requests() int {
	return int(l.most(func(p netfault.Link) int64 { return int64(p.Requests()) }))
}
func (l links) Bytes() int64 { return l.most(netfault.Link.Bytes) }
func (l links) Connections() int {
	return int(l.most(func(p netfault.Link) int64 { return int64(p.Connections()) }))
}
func (l links) Fired() int {
	return int(l.most(func(p netfault.Link) int64 { return int64(p.Fired()) }))
}
