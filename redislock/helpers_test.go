package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

const (
	// long is a TTL that does not end while a test runs.
	long = time.Minute

	// lease is how long a waiter that listens counts; see queue.lua.
	lease = 30 * time.Second
)

// shared is the server of the tests that change nothing about it; each has a prefix
// of its own there.
var shared = servers.Shared{Kind: servers.Redis}

// libraryLog is what go-redis would write to the standard error.
var libraryLog logBook

// Printf implements the logger of go-redis.
func (b *logBook) Printf(_ context.Context, format string, v ...any) {
	fmt.Fprintf(b, format+"\n", v...)
}

func TestMain(m *testing.M) {
	redis.SetLogger(&libraryLog)
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue { // the tests mostly wait
		_ = f.Value.Set("4")
	}
	pin.Main(m, openURL, shared.Close)
}

func server(t testing.TB) *servers.Server {
	t.Helper()
	return shared.ForTest(t)
}

// client returns a client of the server at rawURL with the defaults of go-redis.
func client(t testing.TB, rawURL string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(rawURL)
	testkit.Must(t, err)
	o.ContextTimeoutEnabled = true
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// via returns a client. Its whole traffic passes the proxy.
func via(t testing.TB, s *servers.Server) (*redis.Client, *netfault.TCPProxy) {
	t.Helper()
	p, err := netfault.NewTCPProxy(s.Addr(), 1)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return client(t, s.URLVia(p.Addr())), p
}

func freshPrefix() string { return "test-" + rand.Text() + ":" } // unlike an owner

// driverOn returns a driver without its Locker.
func driverOn(t testing.TB, c redis.UniversalClient, prefix string) *store {
	t.Helper()
	d, err := newStore(c, (&Options{Prefix: prefix}).clone(), false)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func lockerOn(t testing.TB, c redis.UniversalClient, o *Options) *Locker {
	t.Helper()
	l, err := New(c, o)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// claim returns a claim that queues.
func (d *store) claim(name string, ttl time.Duration) *claim {
	return d.Claim(driver.Request{Name: name, Owner: testkit.Owner(), TTL: ttl, Holder: "test"}).(*claim)
}

// tryOnly returns a claim that does not queue.
func (d *store) tryOnly(name string, ttl time.Duration) *claim {
	return d.Claim(driver.Request{Name: name, Owner: testkit.Owner(), TTL: ttl, NoWait: true}).(*claim)
}

// grants fails the test unless c gets its name.
func grants(t testing.TB, c *claim) driver.Grant {
	t.Helper()
	g, err := c.Try(t.Context())
	if err != nil {
		t.Fatalf("Try of %.20q: %v, want a grant", c.request.Name, err)
	}
	if g.Token <= 0 || g.TTL < c.request.TTL {
		t.Fatalf("Try of %.20q granted %+v for a TTL of %v", c.request.Name, g, c.request.TTL)
	}
	return g
}

// refuses fails the test unless c's name is held by another.
func refuses(t testing.TB, c *claim) time.Duration {
	t.Helper()
	return refusal(t, c).Remaining
}

// refusal is refuses with the whole answer.
func refusal(t testing.TB, c *claim) *driver.Held {
	t.Helper()
	_, err := c.Try(t.Context())
	var held *driver.Held
	if !errors.As(err, &held) {
		t.Fatalf("Try of %.20q: %v, want ErrHeld", c.request.Name, err)
	}
	return held
}

// releases fails the test unless c held its name, or waited for it.
func releases(t testing.TB, c *claim) {
	t.Helper()
	if err := c.Release(t.Context()); err != nil {
		t.Fatalf("Release of %.20q: %v", c.request.Name, err)
	}
}

// hears waits until c is woken.
func hears(t testing.TB, c *claim) {
	t.Helper()
	if err := c.Wait(t.Context()); err != nil {
		t.Fatalf("Wait for %.20q: %v, want a wake-up", c.request.Name, err)
	}
}

// unheard fails the test if c has been woken. Messages come in order, so one that is published now comes after all
// that c could have been woken by.
func unheard(t testing.TB, c *claim) {
	t.Helper()
	s, mark := c.driver.subscriber, &waiter{owner: testkit.Owner(), channel: c.waiter.channel, ch: c.waiter.ch, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	mark.ch.waiters[mark.owner] = mark
	s.mu.Unlock()
	testkit.Must(t, client(t, "redis://"+c.driver.client.(*redis.Client).Options().Addr).Publish(t.Context(), mark.channel, mark.owner).Err())
	<-mark.wake
	s.retire(mark, false)
	if len(c.waiter.wake) != 0 {
		t.Fatalf("the claim of %.20q was woken", c.request.Name)
	}
}

// queues fails the test unless c is put into the queue and listens from then on.
func queues(t testing.TB, c *claim) {
	t.Helper()
	refuses(t, c)
	if !c.waiter.listens {
		hears(t, c) // the confirmation
		refuses(t, c)
	}
	if !c.waiter.listens {
		t.Fatal("the claim does not listen after its subscription was confirmed")
	}
}

// renewals takes n names, and returns what renews them for twice as long.
func renewals(t testing.TB, d *store, n int) (batch []driver.Renewal) {
	t.Helper()
	for i := range n {
		a := d.claim(fmt.Sprint("x", i), long)
		grants(t, a)
		batch = append(batch, driver.Renewal{Claim: a, TTL: 2 * long})
	}
	return batch
}

// leftovers returns the keys with the prefix that do not only remember tokens.
func leftovers(t testing.TB, c *redis.Client, prefix string) []string {
	t.Helper()
	keys, err := c.Keys(context.Background(), prefix+"*").Result()
	testkit.Must(t, err)
	var left []string
	for _, k := range keys {
		if !strings.HasSuffix(k, ":token") {
			left = append(left, k)
		}
	}
	return left
}

// granted returns what a release has granted to c.
func (s *subscriber) granted(c *claim) driver.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.waiter.grant
}

// relies reports whether the waiters on the channel of c rely on it.
func (s *subscriber) relies(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[s.newWaiter(c.key, c.request).channel]
	return ch != nil && ch.state.Load() == proven
}

// logBook is a Logger that can be read.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// breakSeen ends whatever hold there is on a name; ErrLost if there is none.
func breakSeen(ctx context.Context, d *store, name string) error {
	st, err := d.Inspect(ctx, name)
	if err != nil {
		return err
	}
	return d.Break(ctx, name, max(st.Token, 1))
}

// Renew renews the claim alone.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	one := []driver.Renewal{{Claim: c, TTL: ttl}}
	c.driver.Renew(ctx, one)
	return one[0].Grant, one[0].Err
}
