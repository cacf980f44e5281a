package backends_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	neturl "net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// kinds are the servers behind the schemes, and their forms for TLS.
var kinds = map[string]servers.Kind{
	"redis": servers.Redis, "rediss": servers.Redis, "redis+sentinel": servers.Redis,
	"mysql": servers.MySQL, "mysqls": servers.MySQL,
	"postgres": servers.Postgres, "postgresql": servers.Postgres,
	"zk": servers.ZooKeeper, "zks": servers.ZooKeeper,
	"etcd": servers.Etcd, "etcds": servers.Etcd,
}

// wantError checks that err matches target and says every one of parts.
func wantError(t *testing.T, err, target error, parts ...string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("the error is %v, want one that matches %q", err, target)
	}
	for _, p := range append(parts, "distlock: open") {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error does not say %q: %v", p, err)
		}
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("the error shows the password: %v", err)
	}
}

const password = "s3cret%2Fpw"

func open(t *testing.T, url string, opts ...backends.Option) distlock.Locker {
	t.Helper()
	l, err := backends.Open(t.Context(), url, opts...)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Should(t, l.Close()) })
	return l
}

// Two Lockers by the same URL contend, on each backend, whatever the scheme.
func TestOpen(t *testing.T) {
	urls := map[string]func(t *testing.T) string{
		"mem": func(*testing.T) string { return "mem://" + strings.ToLower(t.Name()) },
	}
	for _, kind := range servers.Kinds {
		urls[string(kind)] = func(t *testing.T) string { return servers.ForTest(t, kind).LockURL() }
	}
	for kind, url := range urls {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := url(t)
			scheme, _, _ := strings.Cut(url, ":")
			var acquired atomic.Int32
			observer := &distlock.Observer{Acquired: func(distlock.Acquired) { acquired.Add(1) }}
			alice, bob := open(t, url, backends.Observer(observer)), open(t, url, backends.Logger(slog.New(slog.DiscardHandler)))
			name := fmt.Sprintf("backends/%d", time.Now().UnixNano())
			lock, err := alice.TryLock(t.Context(), name)
			testkit.Must(t, err)
			if _, err := bob.TryLock(t.Context(), name); !errors.Is(err, distlock.ErrHeld) {
				t.Errorf("the second locker got %v, want ErrHeld", err)
			}
			testkit.Should(t, lock.Unlock(t.Context()))
			lock, err = bob.TryLock(t.Context(), name)
			testkit.Must(t, err)
			testkit.Should(t, lock.Unlock(t.Context()))
			checkPromises(t, scheme, url)
			if n := acquired.Load(); n != 1 {
				t.Errorf("the observer was told of %d locks, want 1", n)
			}
		})
	}
}

func TestMemory(t *testing.T) {
	for _, url := range []string{"mem://memory-a", "mem://memory-b", "mem://", "mem://memory-a/b", "mem://memory-a,b", "mem://注文", "mem://a:1:b"} {
		lock, err := open(t, url).TryLock(t.Context(), "x") // each has a store of its own
		testkit.Must(t, err)
		defer lock.Unlock(t.Context())
	}
	_, err := open(t, "mem://"+neturl.PathEscape("memory-a/b")).TryLock(t.Context(), "x")
	if !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("the same name, escaped, has another store: %v", err)
	}
	for _, url := range []string{"mem://me:" + password + "@a", "mem://a#b"} {
		_, err := backends.Open(t.Context(), url)
		wantError(t, err, distlock.ErrInvalid, "write it as %")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = backends.Open(ctx, "mem://a")
	wantError(t, err, context.Canceled)
}

// A URL with any fault is refused before a server is asked.
func TestStrict(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Error("a server was asked")
			conn.Close()
		}
	}()
	for _, scheme := range backends.Default.Schemes() {
		t.Run(scheme, func(t *testing.T) {
			base := scheme + "://"
			if scheme == "mem" {
				base += "x"
			} else {
				base += "me:" + password + "@" + listener.Addr().String() + "/"
			}
			for query, want := range map[string]string{
				"?holdr=me":        `unknown parameter "holdr" (did you mean "holder"?), allowed are `,
				"?nonsense=1":      `the unknown parameter "nonsense", allowed are `,
				"?x1y2z3=1":        "an unknown parameter, allowed are ",
				"?ttl=10":          `the parameter ttl is "10", allowed is a duration`,
				"?ttl=0s":          "1ms to 8760h",
				"?ttl=10s&ttl=10s": "twice",
				"?ttl":             "key=value",
			} {
				_, err := backends.Open(t.Context(), base+query)
				wantError(t, err, distlock.ErrInvalid, want)
			}
			_, err := backends.Config{URL: base + "?ttl=10s", TTL: backends.Duration(time.Second)}.Open(t.Context())
			wantError(t, err, distlock.ErrInvalid, "the ttl is 10s, but also given as 1s", scheme+"://")
			_, err = backends.Config{URL: base + "?holder=me", Holder: "you"}.Open(t.Context())
			wantError(t, err, distlock.ErrInvalid, "the holder is me, but also given as you", scheme+"://")
		})
	}
}

func TestUnknownScheme(t *testing.T) {
	for _, url := range []string{"oracle://me:" + password + "@h/db", "localhost:6379", "me:" + password + "@tcp(h:3306)/db", "redis:me:" + password + "@h"} {
		_, err := backends.Open(t.Context(), url)
		wantError(t, err, distlock.ErrInvalid, "scheme", "mem, mysql, mysqls")
	}
	_, err := backends.Open(t.Context(), "pw")
	wantError(t, err, distlock.ErrInvalid, "the URL xxxxx (hidden: it may contain a password) does not")
	for _, url := range []string{"foo", "me:" + password + "@tcp(h:3306)/db"} {
		if _, err := backends.Open(t.Context(), url); !strings.Contains(err.Error(), "does not begin with scheme://") || strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%q: %v", url, err)
		}
	}
	for url, meant := range map[string]string{
		"localhost:6379":   "(did you mean redis://?)",
		"db.internal:3306": "(did you mean mysql://?)",
		"zookeeper://h":    "(did you mean zk://?)",
		"rediss+tls://h":   "mem, mysql, mysqls",
		"ectd://h":         "(did you mean etcd://?)",
	} {
		_, err := backends.Open(t.Context(), url)
		wantError(t, err, distlock.ErrInvalid, meant)
	}
	_, err = backends.Open(t.Context(), "")
	wantError(t, err, distlock.ErrInvalid, "the URL is empty")
}

// An absent server fails at open, soon, and without a word of the
// password.
func TestDeadServer(t *testing.T) {
	const addr = "127.0.0.1:1" // it refuses connections, and is no other test's
	for _, scheme := range backends.Default.Schemes() {
		if kinds[scheme] == "" {
			continue
		}
		url := scheme + "://me:" + password + "@" + addr + "/"
		switch {
		case scheme == "redis+sentinel":
			url += "?master=x"
		case kinds[scheme] == servers.MySQL:
			url += "schema"
		}
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			testkit.Within(t, 10*time.Second, func() { // eight seconds after its context has ended
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				l, err := backends.Open(ctx, url)
				if err == nil {
					l.Close()
					t.Fatal("opened")
				}
				if errors.Is(err, distlock.ErrInvalid) || errors.Is(err, distlock.ErrHeld) {
					t.Errorf("the error is %v, want one of the network", err)
				}
				if n := strings.Count(err.Error(), "distlock: "); n != 1 {
					t.Errorf("it says %d times that it is an error of distlock: %v", n, err)
				}
				if strings.Contains(err.Error(), "s3cret") || !strings.HasPrefix(err.Error(), "distlock: open "+openurl.Redact(url)+": ") {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}

// What a backend does not promise fails at open, and the Locker is closed.
func TestRequire(t *testing.T) {
	l, err := backends.Config{
		URL:     "mem://require",
		Require: []backends.Requirement{backends.Fair, backends.Push},
	}.Open(t.Context())
	testkit.Must(t, err)
	l.Close()

	fake := &closeCounter{Locker: l}
	r := new(backends.Registry)
	r.Register(func(context.Context, string, *distlock.Options) (distlock.Locker, error) { return fake, nil }, "fake")
	r.Register(func(context.Context, string, *distlock.Options) (distlock.Locker, error) {
		return struct{ distlock.Locker }{fake}, nil
	}, "mute")
	for _, tc := range []struct {
		caps     driver.Capabilities
		required backends.Requirement
		ok       bool
	}{
		{driver.Capabilities{}, backends.Fair, false},
		{driver.Capabilities{Fair: true}, backends.Fair, true},
		{driver.Capabilities{Fair: true}, backends.Push, false},
		{driver.Capabilities{Push: true}, backends.Push, true},
		{driver.Capabilities{}, backends.Durable, false},
		{driver.Capabilities{Durability: driver.Volatile}, backends.Durable, false},
		{driver.Capabilities{Durability: driver.Restart}, backends.Durable, true},
		{driver.Capabilities{Durability: driver.Quorum}, backends.Durable, true},
		{driver.Capabilities{Durability: driver.Restart}, backends.Quorum, false},
		{driver.Capabilities{Durability: driver.Quorum}, backends.Quorum, true},
	} {
		fake.caps, fake.closed = tc.caps, 0
		c := backends.Config{URL: "fake://me:" + password + "@h", Require: []backends.Requirement{tc.required}}
		_, err := r.Open(t.Context(), c)
		if tc.ok {
			if err != nil || fake.closed != 0 {
				t.Errorf("%s of %+v: %v, closed %d times", tc.required, tc.caps, err, fake.closed)
			}
			continue
		}
		wantError(t, err, distlock.ErrUnsupported, "distlock: open fake://me:xxxxx@h: not supported by this backend: it does not promise to be "+string(tc.required))
		if fake.closed != 1 {
			t.Errorf("the locker was closed %d times, want once", fake.closed)
		}
	}
	_, err = r.Open(t.Context(), backends.Config{URL: "mute://", Require: []backends.Requirement{backends.Fair}})
	wantError(t, err, distlock.ErrUnsupported, "does not say what it promises")
	_, err = backends.Config{URL: "mem://", Require: []backends.Requirement{"durible"}}.Open(t.Context())
	wantError(t, err, distlock.ErrInvalid, `"durible" is not known, allowed are durable, fair, push, quorum`)
}

type closeCounter struct {
	distlock.Locker
	caps   driver.Capabilities
	closed int
}

func (c *closeCounter) Capabilities() driver.Capabilities { return c.caps }
func (c *closeCounter) Close() error                      { c.closed++; return nil }

func TestRegister(t *testing.T) {
	open := func(context.Context, string, *distlock.Options) (distlock.Locker, error) { return nil, io.EOF }
	r := new(backends.Registry)
	r.Register(open, "b", "a")
	if got, want := r.Schemes(), []string{"a", "b"}; !reflect.DeepEqual(got, want) {
		t.Errorf("the schemes are %q, want %q", got, want)
	}
	if _, err := r.Open(t.Context(), backends.Config{URL: "B://x"}); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "b://x") {
		t.Errorf("the error is %v, want the opener's, with the URL", err)
	}
	for scheme, want := range map[string]string{"a": "twice", "": "not a scheme", "A": "lower case", "c:": "not a scheme"} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, want) {
					t.Errorf("the panic for %q is %s", scheme, p)
				}
			}()
			r.Register(open, scheme)
		}()
	}
}
