package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// TLS with client certificates works, and each way to get it wrong has an error that
// names it.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	cert, key := ca.Files()
	_, admin := start(t, encrypted(ca)...)
	addr := "127.0.0.1:" + tlsPort(t, admin)
	q := func(pairs ...string) string {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return "/?" + v.Encode()
	}
	all := []string{"tls_ca", ca.File, "tls_cert", cert, "tls_key", key}
	l, err := Open(t.Context(), "rediss://"+addr+q(append(all, "ttl", "3s")...), nil)
	testkit.Must(t, err)
	exercise(t, l)
	testkit.Must(t, l.Close())
	for what, c := range map[string]struct{ url, want string }{
		"no client certificate": {"rediss://" + addr + q("tls_ca", ca.File), "certificate required"},
		"unknown authority":     {"rediss://" + addr + q("tls_cert", cert, "tls_key", key), "unknown authority"},
		"another name":          {"rediss://" + addr + q(append(all, "tls_server_name", "elsewhere")...), "elsewhere"},
		"a port without TLS":    {"rediss://" + admin.Options().Addr + q(append(all, "dial_timeout", "1s")...), "without TLS"},
		"no TLS at a TLS port":  {"redis://" + addr + q(), ""},
	} {
		var err error
		testkit.Within(t, 4*time.Second, func() {
			var l *Locker
			if l, err = Open(t.Context(), c.url, nil); err == nil {
				testkit.Must(t, l.Close())
			}
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// A password may have any character.
func TestPasswords(t *testing.T) {
	t.Parallel()
	const password = "p@ss:w/o?r#d% ü\"&=x"
	s, admin := own(t)
	rule := append([]string{"reset", "on", ">" + password, "~distlock:*", "resetchannels", "&distlock:*"}, aclRule(t, false)...)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "locker", rule...).Err())
	at := func(password string) string {
		return (&url.URL{Scheme: "redis", User: url.UserPassword("locker", password), Host: s.Addr()}).String()
	}
	l, err := Open(t.Context(), at(password), nil)
	testkit.Must(t, err)
	exercise(t, l)
	testkit.Must(t, l.Close())
	if _, err := Open(t.Context(), at(password+"x"), nil); err == nil || !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "p@ss") {
		t.Errorf("Open with another password: %v", err)
	}
}

// When the credentials have changed, the loss says so.
func TestRotatedCredentials(t *testing.T) {
	t.Parallel() // it waits for the end of a lease
	s, admin := own(t)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "locker", "on", ">old", "~*", "allchannels", "+@all").Err())
	l, err := Open(t.Context(), fmt.Sprintf("redis://locker:old@%s?ttl=12s", s.Addr()), nil)
	testkit.Must(t, err)
	defer l.Close()
	lock, err := l.Lock(t.Context(), "x")
	testkit.Must(t, err)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "locker", "resetpass", ">new").Err())
	testkit.Must(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "locker").Err())
	// The reason is known then, however late the machine is.
	testkit.Until(t, "the server has refused the old password", func() bool {
		err := lock.Extend(t.Context(), 12*time.Second)
		return err != nil && strings.Contains(err.Error(), "WRONGPASS") || lock.Err() != nil
	})
	<-lock.Done()
	if err := lock.Err(); !errors.Is(err, distlock.ErrLost) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("the lock has ended with %v, want the server's answer to the old password", err)
	}
}

// encrypted are the settings of a server that takes TLS with client certificates on a port of its own.
func encrypted(ca *testkit.Authority, more ...string) []string {
	cert, key := ca.Files()
	return append(more, "tls-port "+servers.SparePort, "tls-cert-file "+cert, "tls-key-file "+key,
		"tls-ca-cert-file "+ca.File, "tls-auth-clients yes")
}

// withRights makes a user with the rights of the page. The function that it returns tells of rights
// that were missing.
func withRights(t *testing.T, rights []string, c *redis.Client) (judge func()) {
	t.Helper()
	rule := append([]string{"reset", "on", ">secret", "~distlock:*", "resetchannels", "&distlock:*"}, rights...)
	testkit.Must(t, c.ACLSetUser(t.Context(), "locker", rule...).Err())
	return func() {
		t.Helper()
		judgeDenied(t, c, func(redis.ACLLogEntry) bool { return false })
	}
}

// judgeDenied fails for what the server has denied to somebody, but what Open asks for in vain, and what is expected.
func judgeDenied(t *testing.T, c *redis.Client, expected func(redis.ACLLogEntry) bool) {
	t.Helper()
	for _, e := range c.ACLLog(t.Context(), 100).Val() {
		if e.Object != "config|get" && e.Object != "role" && !expected(*e) {
			t.Errorf("denied to %s: %s %s", e.Username, e.Reason, e.Object)
		}
	}
}

func tlsPort(t *testing.T, c *redis.Client) string {
	t.Helper()
	return c.ConfigGet(t.Context(), "tls-port").Val()["tls-port"]
}

// The servers of a cluster are found by what one of them tells: each is verified, and gets the
// certificate of the client.
func TestClusterTLS(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	_, node := start(t, encrypted(ca, "cluster-enabled yes", "cluster-announce-ip 127.0.0.1", "tls-cluster yes", "cluster-port "+servers.SparePort)...)
	testkit.Must(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	testkit.Until(t, "the cluster serves", func() bool {
		return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	judge := withRights(t, aclRule(t, true), node)
	securely(t, "rediss://locker:secret@127.0.0.1:"+tlsPort(t, node)+"/?cluster=true", ca)
	judge()
}

// The sentinels speak TLS as well, and ask for a user.
func TestSentinelTLS(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	_, master := start(t, encrypted(ca)...)
	_, sentinel := start(t, encrypted(ca, "tls-replication yes", "sentinel monitor main 127.0.0.1 "+tlsPort(t, master)+" 1")...)
	// A sentinel does not show its TLS port, but it tells other sentinels.
	hello := master.Subscribe(t.Context(), "__sentinel__:hello")
	defer hello.Close()
	msg, err := hello.ReceiveMessage(t.Context())
	testkit.Must(t, err)
	addr := strings.Join(strings.Split(msg.Payload, ",")[:2], ":")

	judge, judgeSentinel := withRights(t, aclRule(t, false), master), withRights(t, sentinelRule(t), sentinel)
	securely(t, "redis+sentinel://locker:secret@"+addr+"/?master=main&sentinel_auth=true&tls=on", ca)
	judge()
	judgeSentinel()
}

// sentinelRule returns the rights at a sentinel that docs/redis.md recommends.
func sentinelRule(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/redis.md")
	testkit.Must(t, err)
	_, rule, found := strings.Cut(string(page), "ACL SETUSER locker on >secret resetchannels &+")
	rule, _, _ = strings.Cut(rule, "```")
	if !found {
		t.Fatal("docs/redis.md has no rule for sentinels")
	}
	return strings.Fields(strings.ReplaceAll("&+"+rule, "\\", " "))
}

// securely works at a URL with the certificates: a lock changes hands. Without the authority, Open
// refuses the server.
func securely(t *testing.T, rawURL string, ca *testkit.Authority) {
	t.Helper()
	ctx := t.Context()
	cert, key := ca.Files()
	own := "&tls_cert=" + cert + "&tls_key=" + key
	l, err := Open(ctx, rawURL+"&tls_ca="+ca.File+own, nil)
	testkit.Must(t, err)
	for i := range 4 {
		pin.Exercise(t, l, fmt.Sprint("name", i))
	}
	testkit.Must(t, l.Close())
	l, err = Open(ctx, rawURL+own, nil)
	if err == nil {
		testkit.Must(t, l.Close())
	}
	if err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("Open without the authority: %v", err)
	}
}

// A server that closes its connections, as when it restarts, costs calls no error. With TLS, go-redis does not see that
// a connection is closed before it uses it.
func TestTLSConnectionsThatWereClosed(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	cert, key := ca.Files()
	_, admin := start(t, encrypted(ca)...)
	l, err := Open(t.Context(), "rediss://127.0.0.1:"+tlsPort(t, admin)+"/?tls_ca="+ca.File+"&tls_cert="+cert+"&tls_key="+key, nil)
	testkit.Must(t, err)
	defer l.Close()
	testkit.Must(t, admin.Do(t.Context(), "CLIENT", "PAUSE", time.Hour.Milliseconds(), "WRITE").Err())
	var all sync.WaitGroup
	for i := range endpoint.MaxPipelines {
		all.Go(func() { testkit.Should(t, second(l.TryLock(t.Context(), fmt.Sprint("x", i)))) })
	}
	testkit.Until(t, "all have a connection", func() bool {
		return strings.Count(admin.ClientList(t.Context()).Val(), " flags=b ") == endpoint.MaxPipelines
	})
	testkit.Must(t, admin.ClientUnpause(t.Context()).Err())
	all.Wait()
	testkit.Must(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	testkit.Must(t, second(l.TryLock(t.Context(), "y")))
}

// A client of the user's keeps more connections than a request has copies. With TLS, each of them that the server has closed
// costs a copy; and none of those counts.
func TestTLSConnectionsOfAPoolThatWereClosed(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	certFile, keyFile := ca.Files()
	_, admin := start(t, encrypted(ca, "cluster-enabled yes", "cluster-announce-ip 127.0.0.1", "tls-cluster yes", "cluster-port "+servers.SparePort)...)
	testkit.Must(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	testkit.Until(t, "the cluster serves", func() bool {
		return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	testkit.Must(t, err)
	// What verifies the server is no part of this.
	addr, secure := "127.0.0.1:"+tlsPort(t, admin), &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true}
	const many = 3 * endpoint.MaxPipelines
	for what, c := range map[string]redis.UniversalClient{
		"server":  redis.NewClient(&redis.Options{Addr: addr, TLSConfig: secure, PoolSize: many, ContextTimeoutEnabled: true}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, TLSConfig: secure, PoolSize: many, ContextTimeoutEnabled: true}),
	} {
		t.Run(what, func(t *testing.T) {
			t.Cleanup(func() { _ = c.Close() })
			d := driverOn(t, c, freshPrefix())
			held := d.claim("held", long)
			grants(t, held)
			stale := func() {
				testkit.Must(t, admin.Do(t.Context(), "CLIENT", "PAUSE", time.Hour.Milliseconds(), "WRITE").Err())
				var all sync.WaitGroup
				for range many {
					all.Go(func() { testkit.Should(t, c.Set(t.Context(), "x", "", 0).Err()) })
				}
				testkit.Until(t, "all have a connection", func() bool {
					return strings.Count(admin.ClientList(t.Context()).Val(), " flags=b ") == many
				})
				testkit.Must(t, admin.ClientUnpause(t.Context()).Err())
				all.Wait()
				testkit.Must(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
			}
			stale()
			grants(t, d.tryOnly("y", long))
			stale()
			if _, err := held.Renew(t.Context(), long); err != nil {
				t.Error(err)
			}
		})
	}
}
