package zklock

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestUnreadableName: a name that may not be read does not fail the whole List.
func TestUnreadableName(t *testing.T) {
	t.Parallel()
	prefix, admin := freshPrefix(), connect(t)
	l := open(t, nil, prefix, 30*time.Second)
	held := lock(t, l, "open", distlock.Holder("a\x00b"))
	testkit.Must(t, admin.AddAuth("digest", []byte("admin:pw")))
	other, err := New(admin, &Options{Prefix: prefix, ACL: zk.AuthACL(zk.PermAll), TickTime: tick})
	testkit.Must(t, err)
	defer other.Close()
	secret := lock(t, other, "secret")
	list, err := l.List(t.Context(), "")
	if err != nil || len(list) != 1 || list[0].Name != "open" || list[0].Holder != "a\x00b" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if _, err := l.Inspect(t.Context(), "secret"); !errors.Is(err, zk.ErrNoAuth) {
		t.Error("Inspect of the one that may not be read:", err)
	}
	// Nor does trying to take it leave anything that would have to be cleaned up.
	testkit.WithinFresh(t, 3*time.Second, func() func() {
		l := open(t, nil, prefix, 30*time.Second)
		return func() {
			if _, err := l.TryLock(t.Context(), "secret"); !errors.Is(err, zk.ErrNoAuth) || errors.Is(err, distlock.ErrHeld) {
				t.Error("TryLock of the one that may not be touched:", err)
			}
			if err := l.Close(); err != nil {
				t.Error("Close:", err)
			}
		}
	})
	unlock(t, secret)
	unlock(t, held)
}

// TestContainersDropTheConnection: ClickHouse Keeper before 26.7 closes the connection
// at that request. That is not believed for ever.
func TestContainersDropTheConnection(t *testing.T) {
	t.Parallel()
	w := newProxy(t)
	w.each(loseRequest, opContainer)
	d := openDriver(t, server(t).URLVia(w.addr)+freshPrefix()+"?tick_time=200ms&ttl=10s")
	take := func(name string) {
		t.Helper()
		c := d.Claim(driver.Request{Name: name, Owner: testkit.Owner(), TTL: 10 * time.Second})
		grants(t, c)
		testkit.Must(t, c.Release(t.Context()))
	}
	take("x")
	take("y")
	if n := w.count()[opContainer]; n != 3 {
		t.Errorf("a container was asked for %d times, want 3", n)
	}
	w.on(nil)
	over := time.Now()
	d.noContainers.Store(&over)
	take("z")
	if n := w.count()[opContainer]; n != 1 {
		t.Errorf("later, a container was asked for %d times, want 1", n)
	}
}

// TestContainersWithoutMajority: servers that answer reads and no write do not tell
// whether they know containers.
func TestContainersWithoutMajority(t *testing.T) {
	t.Parallel()
	w := newProxy(t)
	d := openDriver(t, server(t).URLVia(w.addr)+freshPrefix()+"?tick_time=200ms&ttl=10s")
	w.each(loseRequest, opContainer, opCreate, opMulti)
	c := d.Claim(driver.Request{Name: "x", Owner: testkit.Owner(), TTL: 10 * time.Second})
	if _, err := attempt(t, c); err == nil || !unanswered(err) {
		t.Error("Try without an answer:", err)
	}
	if d.noContainers.Load() != nil {
		t.Error("the servers are taken not to know containers")
	}
	w.on(nil)
	grants(t, c)
	testkit.Should(t, c.Release(t.Context()))
}

// TestWhyNoServer: what keeps the client from a server is in the error, with the host.
func TestWhyNoServer(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t)
	ca := url.QueryEscape(authority.File)
	addr := strings.TrimPrefix(tlsFront(t, authority, tls.NoClientCert, time.Hour), "zks://")
	ours := "zks://me:s3cret@" + addr + freshPrefix() + "?tls_ca=" + ca
	plain := server(t).Addr()
	for what, tc := range map[string]struct{ url, want string }{
		"an unknown authority": {strings.Split(ours, "?")[0] + "?dial_timeout=1m", "unknown authority"},
		"another name":         {ours + "&tls_server_name=elsewhere&dial_timeout=1m", "elsewhere"},
		"no TLS at a TLS port": {"zk://" + addr + "?dial_timeout=2s", addr},
		"TLS at a plain port":  {"zks://" + plain + "?dial_timeout=1s&tls_ca=" + ca, plain},
		"nobody there":         {"zk://me:s3cret@127.0.0.1:1", "refused"},
		"no such host":         {"zk://me:s3cret@nowhere.invalid", "nowhere.invalid"},
	} {
		_, err := Open(t.Context(), tc.url, nil)
		if err == nil || !unanswered(err) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
	}
}

// TestPasswords: what a URL quotes arrives as it is.
func TestPasswords(t *testing.T) {
	t.Parallel()
	const password = `p@ss:w/o?r#d% ü"&=x`
	prefix := freshPrefix()
	at := func(password string) string {
		u := url.URL{Scheme: "zk", Host: server(t).Addr(), Path: prefix, User: url.UserPassword("me", password), RawQuery: "acl=creator"}
		return u.String()
	}
	l, err := Open(t.Context(), at(password), nil)
	testkit.Must(t, err)
	defer l.Close()
	held := lock(t, l, "x")
	conn := connect(t)
	testkit.Must(t, conn.AddAuth("digest", []byte("me:"+password)))
	if _, _, err := conn.Get(held.Path()); err != nil {
		t.Error("the same user and password may not read the node:", err)
	}
	testkit.WithinFresh(t, 3*time.Second, func() func() {
		wrong, err := Open(t.Context(), at("wrong"), nil)
		testkit.Must(t, err)
		return func() {
			if _, err := wrong.TryLock(t.Context(), "x"); !errors.Is(err, zk.ErrNoAuth) {
				t.Error("a wrong password:", err)
			}
			if err := wrong.Close(); err != nil {
				t.Error("Close with a wrong password:", err)
			}
		}
	})
	unlock(t, held)
}

// TestDocumentedRights: a user with the rights of docs/zookeeper.md, and no more, can
// do everything.
func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	prefix, admin := freshPrefix(), connect(t)
	testkit.Must(t, admin.AddAuth("digest", []byte("admin:pw")))
	onPrefix := append(zk.DigestACL(zk.PermAll, "admin", "pw"), zk.DigestACL(zk.PermRead|zk.PermCreate|zk.PermDelete, "app", "pw")...)
	onNames := append(zk.DigestACL(zk.PermAll, "admin", "pw"),
		zk.DigestACL(zk.PermRead|zk.PermWrite|zk.PermCreate|zk.PermDelete, "app", "pw")...)
	if _, err := admin.Create(prefix, nil, 0, onPrefix); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(server(t).URL(), "zk://", "zk://app:pw@", 1) + prefix
	l, err := Open(t.Context(), url, &Options{ACL: onNames, Options: distlock.Options{TTL: 5 * time.Second}, TickTime: tick})
	testkit.Must(t, err)
	defer l.Close()
	held := lock(t, l, "x")
	first := held.Deadline()
	eventually(t, func() string {
		if !held.Deadline().After(first) {
			return "not renewed"
		}
		return ""
	})
	pin.Exercise(t, l, "y")
	if err := distlock.Break(t.Context(), l, "x", 0); err != nil {
		t.Error("Break:", err)
	}
	_ = held.Unlock(t.Context())
	unlock(t, lock(t, l, "x"))
}

// TestUnreadableNodes: a waiter that may watch neither its own node, nor perhaps the one
// ahead, waits all the same. It does not look again and again.
func TestUnreadableNodes(t *testing.T) {
	t.Parallel()
	for what, ahead := range map[string]int32{"its own": zk.PermAll, "both": zk.PermDelete} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			prefix := freshPrefix()
			holder, waiter := claimOn(t, connect(t), prefix, "x", false), claimOn(t, connect(t), prefix, "x", false)
			admin := claimOn(t, connect(t), prefix, "x", false)
			testkit.Must(t, admin.class.session.makeNode(t.Context(), admin.parent(), zk.FlagPersistent))
			holder.class.store.opts.ACL, waiter.class.store.opts.ACL = zk.WorldACL(ahead), zk.WorldACL(zk.PermDelete)
			grants(t, holder)
			vain := 0
			for range 3 {
				refuses(t, waiter)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(300*time.Millisecond, cancel)
				if err := waiter.Wait(ctx); err == nil {
					vain++
				}
				cancel()
			}
			if most := map[string]int{"its own": 0, "both": 1}[what]; vain > most {
				t.Errorf("%d of 3 waits ended at once, want %d", vain, most)
			}
			testkit.Must(t, holder.Release(t.Context()))
			if what == "its own" {
				if err := waiter.Wait(t.Context()); err != nil {
					t.Error("not woken up:", err)
				}
			}
			if _, err := attempt(t, waiter); err != nil {
				t.Error("not granted what is free:", err)
			}
		})
	}
}
