package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://host":                              "allowed are redis, rediss, redis+sentinel",
		"redis://u:secret@host/x":                  "the number of a database",
		"redis://u:secret@host/-1":                 "the number of a database",
		"redis://u:secret@a,b":                     "needs cluster=true, or master=name",
		"redis://u:secret@a,a?cluster=true":        "listed twice",
		"redis://u:secret@a/1?cluster=true":        "a cluster does not have",
		"redis://u:secret@a?cluster=yes":           "true or false",
		"redis://u:secret@a?cluster=true&master=m": "both master and cluster=true",
		"redis+sentinel://u:secret@a":              "needs the parameter master",
		"redis://secret@a":                         "redis://:password@host",
		"redis://u:secret@a?prefx=x":               `did you mean "prefix"?`,
		"redis://u:secret@a?prefix=":               `the parameter prefix is "", allowed is`,
		"redis://u:secret@a?prefix=%7Bx":           "the prefix",
		"redis://u:secret@a?prefix=other":          "but also given as mine",
		"redis://u:secret@a?token_memory=2h":       "but also given as 3h0m0s",
		"redis://u:secret@a?token_memory=x":        "a duration",
		"redis://u:secret@a?request_timeout=11s":   "to 10s",
		"redis://u:secret@a?ttl=1ms":               "100ms",
		"redis://u:secret@a?pool_size=-1":          "0 to 10000",
		"rediss://u:secret@a?tls=off":              "insecure-skip-verify",
	} {
		o := &Options{}
		switch {
		case strings.Contains(url, "other"):
			o.Prefix = "mine"
		case strings.Contains(url, "2h"):
			o.TokenMemory = 3 * time.Hour
		}
		l, err := Open(t.Context(), url, o)
		if err == nil {
			_ = l.Close()
		}
		if !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open of %s: %v, want ErrInvalid and %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestOpenReadsTheURL(t *testing.T) {
	t.Parallel()
	read := func(raw string) (*redis.UniversalOptions, *Options) {
		t.Helper()
		u, err := openurl.Parse(raw, schemes...)
		testkit.Must(t, err)
		var o Options
		c, err := configure(u, &o)
		testkit.Must(t, err)
		return c, &o
	}
	c, o := read("rediss://me:p%40ss@h:1/3?ttl=3s&holder=who&prefix=p&token_memory=5m&dial_timeout=1s&request_timeout=200ms&pool_size=7")
	if c.Username != "me" || c.Password != "p@ss" || c.Addrs[0] != "h:1" || c.DB != 3 || c.TLSConfig == nil ||
		c.DialTimeout != time.Second || c.ReadTimeout != 200*time.Millisecond || c.WriteTimeout != c.ReadTimeout ||
		c.PoolSize != 7 || c.IsClusterMode || c.MasterName != "" || !c.ContextTimeoutEnabled || c.SentinelPassword != "" {
		t.Errorf("read as %+v", c)
	}
	if o.TTL != 3*time.Second || o.Holder != "who" || o.Prefix != "p" || o.TokenMemory != 5*time.Minute {
		t.Errorf("read as %+v", o)
	}
	if c, _ := read("redis://"); c.Addrs[0] != "localhost:6379" || c.ReadTimeout != maxRequestTimeout || c.TLSConfig != nil {
		t.Errorf("the defaults are %+v", c)
	}
	if c, _ := read("redis://h?ttl=6s"); c.ReadTimeout != time.Second {
		t.Errorf("the timeout for a TTL of 6s is %v", c.ReadTimeout)
	}
	if c, _ := read("redis://h?ttl=100ms"); c.ReadTimeout != endpoint.MinRequestTimeout {
		t.Errorf("the timeout for a TTL of 100ms is %v", c.ReadTimeout)
	}
	c, _ = read("redis+sentinel://me:pw@a,b:2/1?master=m&sentinel_auth=true")
	if c.MasterName != "m" || c.Addrs[0] != "a:26379" || c.Addrs[1] != "b:2" || c.DB != 1 || c.SentinelPassword != "pw" || c.SentinelUsername != "me" {
		t.Errorf("sentinels are read as %+v", c)
	}
	if c, _ := read("redis://a,b?cluster=true"); !c.IsClusterMode || len(c.Addrs) != 2 {
		t.Errorf("a cluster is read as %+v", c)
	}
}

func TestOpenFailsWithoutAServer(t *testing.T) {
	t.Parallel()
	const dead = "127.0.0.1:1"
	silent := testkit.Silent(t)
	for addr, query := range map[string]string{dead: "", silent: "?request_timeout=50ms"} {
		_, err := Open(t.Context(), "redis://u:secret@"+addr+query, nil)
		var network net.Error
		if !errors.As(err, &network) || !strings.Contains(err.Error(), "redis://u:xxxxx@"+addr) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open of %s: %v, want an error of the network that names the URL", addr, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, "redis://"+silent, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open until its context ends: %v, want DeadlineExceeded", err)
	}
	var err error
	testkit.Within(t, 5*time.Second, func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err = Open(ctx, "redis://"+silent+"?request_timeout=10s", nil)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Open until its context is cancelled: %v, want Canceled", err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer c.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for _, bad := range []struct {
		client redis.UniversalClient
		o      Options
		want   string
	}{
		{nil, Options{}, "<nil>"},
		{(*redis.Client)(nil), Options{}, "*redis.Client is nil"},
		{(*redis.ClusterClient)(nil), Options{}, "*redis.ClusterClient is nil"},
		{ring, Options{}, "*redis.Ring"},
		{c, Options{Prefix: "{x}"}, "{x}"},
		{c, Options{TokenMemory: -1}, "TokenMemory"},
		{c, Options{Options: distlock.Options{TTL: time.Millisecond}}, "100ms"},
	} {
		if _, err := New(bad.client, &bad.o); !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("New(%T, %+v): %v, want ErrInvalid and %q", bad.client, bad.o, err, bad.want)
		}
	}
}

// aclRule returns the rights that docs/redis.md recommends: all of them, or without
// those that only a cluster asks for.
func aclRule(t *testing.T, cluster bool) (rights []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/redis.md")
	testkit.Must(t, err)
	_, section, found := strings.Cut(string(page), "ACL SETUSER locker ")
	if !cluster {
		section, _, _ = strings.Cut(section, "On a cluster")
	} else {
		section, _, _ = strings.Cut(section, "`+config|get`")
	}
	for _, word := range strings.Fields(strings.ReplaceAll(section, "`", " ")) {
		if strings.HasPrefix(word, "+") {
			rights = append(rights, word)
		}
	}
	if !found || len(rights) < 10 {
		t.Fatal("docs/redis.md has no rule")
	}
	return rights
}

// What is no Redis hangs up, or sends what is no answer of one.
func TestOpenTellsWhatIsNoRedis(t *testing.T) {
	t.Parallel()
	for greeting, want := range map[string]string{"": "may be no Redis", "d\x00\x00\x00\n5.5.5-": "does not answer like a Redis"} {
		addr := testkit.Serve(t, nil, func(c net.Conn) {
			_, _ = c.Write([]byte(greeting))
			_ = c.(*net.TCPConn).CloseWrite() // a Close would be a reset if something is unread
			_, _ = io.Copy(io.Discard, c)
		})
		if _, err := Open(t.Context(), "redis://:s3cret@"+addr, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error is %v, want one with %q", greeting, err, want)
		}
	}
}

// A server that refuses a certificate, or wants one, closes the connection after the handshake. What it says of that is
// lost if the client has begun to write.
func TestOpenTellsWhatMayBeRefused(t *testing.T) {
	t.Parallel()
	const want = "client certificate required"
	ca := testkit.NewAuthority(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(time.Now().Add(time.Hour))}}
	addr := testkit.Serve(t, config, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*tls.Conn).NetConn().(*net.TCPConn).SetLinger(0)
		_ = c.(*tls.Conn).NetConn().Close() // a reset
	})
	if _, err := Open(t.Context(), "rediss://"+addr+"/?tls_ca="+ca.File, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want one with %q", err, want)
	}
}
