package zklock

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/zklock/internal/wire"
)

// shared is the server of all tests of the package: each has a prefix of its own. A test
// that stops or kills it runs alone.
var shared = servers.Shared{Kind: servers.ZooKeeper}

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		os.Exit(conformance.ChildMain(func(ctx context.Context) (distlock.Locker, error) {
			return Open(ctx, url, suiteOptions())
		}))
	}
	// The tests wait most of the time, so they need no processor each. Three of them are runs of
	// the suite, which take longer than all others together. A flag of the command line comes
	// later, and counts more.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if shared.Close() != nil {
		code = 1
	}
	os.Exit(code)
}

func server(t testing.TB) *servers.Server {
	t.Helper()
	return shared.ForTest(t)
}

// tick is the tickTime of the test server.
const tick = 200 * time.Millisecond

// connect returns a connection of the test's own, past the driver.
func connect(t testing.TB) *zk.Conn {
	t.Helper()
	return connectTo(t, server(t).Addr())
}

func connectTo(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	return connectOver(t, addr, func(conn net.Conn) net.Conn { return conn })
}

// connectOver has each TCP connection go over another.
func connectOver(t testing.TB, addr string, over func(net.Conn) net.Conn) *zk.Conn {
	t.Helper()
	conn, err := dial(t.Context(), addr, 30*time.Second, func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			conn = over(conn)
		}
		return conn, err
	})
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close(time.Second) })
	return conn.Conn
}

// dial returns a connection of the tests' own with a session. It is by package wire, to keep
// the race detector quiet about the library: with New, its data race at a reconnection with
// watches is the user's, and here the tests'. But it waits for answers for as long as the
// library does, except for the first. An engine listens on the port of a container before the
// server in it does, and a connection from that time may hang.
func dial(ctx context.Context, addr string, session time.Duration, by func(ctx context.Context, network, addr string) (net.Conn, error)) (*wire.Conn, error) {
	conn, err := wire.Dial(wire.Target{
		Hosts:       []string{addr},
		Lookup:      net.DefaultResolver.LookupHost,
		Dial:        by,
		DialTimeout: 3 * time.Second,
		Logger:      slog.New(slog.DiscardHandler),
		Lease:       func(time.Duration) time.Duration { return 24 * time.Hour },
	}, session)
	if err != nil {
		return nil, err
	}
	if _, err := driver.Detach(ctx, func() (bool, error) { there, _, err := conn.Exists("/"); return there, err }); err != nil {
		conn.Close(time.Second)
		return nil, err
	}
	return conn, nil
}

// silent takes what the library has to say.
type silent struct{}

func (silent) Printf(string, ...any) {}

func freshPrefix() string { return "/t" + rand.Text() }

// open returns a Locker under prefix, through w unless w is nil.
func open(t testing.TB, w *proxy, prefix string, session time.Duration) *Locker {
	t.Helper()
	url := server(t).URL()
	if w != nil {
		url = server(t).URLVia(w.addr)
	}
	l, err := Open(t.Context(), url, &Options{Prefix: prefix, SessionTimeout: session, TickTime: tick})
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// claimOn returns a claim on the driver of a connection.
func claimOn(t testing.TB, conn *zk.Conn, prefix, name string, nowait bool) *claim {
	t.Helper()
	d := newStoreOn(conn, Options{Prefix: prefix, ACL: zk.WorldACL(zk.PermAll), TickTime: tick}, 30*time.Second)
	t.Cleanup(d.end)
	return d.Claim(driver.Request{
		Name: name, Owner: testkit.Owner(), TTL: 10 * time.Second, Holder: "me", NoWait: nowait,
	}).(*claim)
}

// attempt repeats Try while its fate is Again, as the engine does: the servers may remove the node of a name as empty
// just before a claim is in it.
func attempt(t testing.TB, c driver.Claim) (grant driver.Grant, err error) {
	for range 20 {
		if grant, err = c.Try(t.Context()); driver.FateOf(err) != driver.Again {
			break
		}
	}
	return grant, err
}

// grants fails the test unless c gets its name.
func grants(t testing.TB, c driver.Claim) driver.Grant {
	t.Helper()
	grant, err := attempt(t, c)
	testkit.Must(t, err)
	return grant
}

// refuses fails the test unless another has c's name.
func refuses(t testing.TB, c driver.Claim) {
	t.Helper()
	if _, err := attempt(t, c); !errors.Is(err, distlock.ErrHeld) {
		t.Fatalf("Try: %v, want ErrHeld", err)
	}
}

// eventually waits until f returns "". What it returned last is logged if the test has
// to end before that.
func eventually(t testing.TB, f func() string) {
	t.Helper()
	last := ""
	defer func() {
		if last != "" {
			t.Log("at last:", last)
		}
	}()
	testkit.Until(t, "the event that the test waits for", func() bool {
		last = f()
		return last == ""
	})
}

// keep makes the node of a name, before any claim has, as one that stays. A driver's is a container: the server removes it
// within a second of being empty, and would refuse the next claim.
func keep(t testing.TB, conn *zk.Conn, prefix, name string) {
	t.Helper()
	for _, path := range []string{prefix, prefix + "/" + encode(name)} {
		if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
}

// leavesNothing returns a check that no goroutine is left but those that run now, nor comes to its end much later.
func leavesNothing(t testing.TB, ignored ...goleak.Option) func() {
	ignored = append(ignored, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("github.com/distlock-go/distlock/internal/canary.(*Canary).run"))
	return func() {
		t.Helper()
		testkit.Within(t, time.Second, func() {
			var err error
			for range 20 { // each look takes half a second where one is left
				if err = goleak.Find(ignored...); err == nil {
					return
				}
			}
			t.Fatal(err)
		})
	}
}

// claimsOf lists the claims on a name as the server has them.
func claimsOf(t testing.TB, conn *zk.Conn, prefix, name string) []node {
	t.Helper()
	if _, err := conn.Sync(prefix); err != nil {
		t.Fatal(err)
	}
	children, _, err := conn.Children(prefix + "/" + encode(name))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return queueOf(children)
}

// Renew renews the claim alone.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	one := []driver.Renewal{{Claim: c, TTL: ttl}}
	c.class.store.Renew(ctx, one)
	return one[0].Grant, one[0].Err
}
