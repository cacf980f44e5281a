package compare

import (
	"net"
	"strings"
	"testing"
	"time"
)

// The URL of a run must keep what the user wrote and name a place of its own within it.
func TestPlace(t *testing.T) {
	for _, c := range []struct{ raw, want, via, what string }{
		{"redis://:p%40ss@h/2", "redis://:p%40ss@h/2?prefix=distlock%3Acompare-ID%3A",
			"redis://:p%40ss@127.0.0.1:9/2?prefix=distlock%3Acompare-ID%3A", "keys that begin with distlock:compare-ID:"},
		{"redis://h?prefix=app:&pool_size=3&ttl=9s", "redis://h?pool_size=3&ttl=9s&prefix=app%3Acompare-ID%3A",
			"redis://127.0.0.1:9?pool_size=3&ttl=9s&prefix=app%3Acompare-ID%3A", "keys that begin with app:compare-ID:"},
		{"mysql://u:p@h:33/db", "mysql://u:p@h:33/db?table=distlock_compare_ID&create=true",
			"mysql://u:p@127.0.0.1:9/db?table=distlock_compare_ID&create=true", "the tables distlock_compare_ID and distlock_compare_ID_bare"},
		{"mysql://h/db?table=locks.mine&create=false", "mysql://h/db?table=locks.distlock_compare_ID&create=true",
			"mysql://127.0.0.1:9/db?table=locks.distlock_compare_ID&create=true", "the tables locks.distlock_compare_ID and locks.distlock_compare_ID_bare"},
		{"zk://[::1]:2181", "zk://[::1]:2181/distlock-compare-ID",
			"zk://127.0.0.1:9/distlock-compare-ID", "the node /distlock-compare-ID"},
		{"zk://h/a/b%20c/", "zk://h/a/b%20c/compare-ID", "zk://127.0.0.1:9/a/b%20c/compare-ID", "the node /a/b c/compare-ID"},
		{"etcd://h", "etcd://h/distlock-compare-ID", "etcd://127.0.0.1:9/distlock-compare-ID", "keys that begin with distlock-compare-ID/"},
		{"etcd://h/billing", "etcd://h/billing/compare-ID", "etcd://127.0.0.1:9/billing/compare-ID", "keys that begin with billing/compare-ID/"},
		{"etcd://h?prefix=/x/", "etcd://h?prefix=%2Fx%2Fcompare-ID%2F", "etcd://127.0.0.1:9?prefix=%2Fx%2Fcompare-ID%2F", "keys that begin with /x/compare-ID/"},
		{"mem://x", "mem://x", "mem://127.0.0.1:9", ""},
	} {
		p, err := newPlace(c.raw)
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		id := ""
		if i := strings.Index(p.what, "compare"); i >= 0 {
			id = p.what[i+len("compare")+1:][:12]
		}
		for got, want := range map[string]string{p.url(""): c.want, p.url("127.0.0.1:9"): c.via, p.what: c.what} {
			if id != "" {
				got = strings.ReplaceAll(got, id, "ID")
			}
			if got != want {
				t.Errorf("%s: got %q, want %q", c.raw, got, want)
			}
		}
	}
	if _, err := newPlace("redis://h?prefix=" + strings.Repeat("x", 60)); err == nil {
		t.Error("a prefix that leaves no room was taken")
	}
}

// Traffic is led through a proxy only where the driver would find it there, and not
// notice.
func TestAddr(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h": "h:6379", "redis://h:1": "h:1", "mysql://u:p@h/db": "h:3306", "zk://[::1]": "[::1]:2181", "etcd://h": "h:2379",
		"rediss://h": "", "redis://h?tls=on": "", "mysqls://h": "", "zk://a,b": "", "etcd://a,b": "", "redis://h?cluster=true": "",
		"redis+sentinel://h?master=m": "", "redis://h?master=m": "", "mem://x": "",
	} {
		p, err := newPlace(raw)
		if err != nil {
			t.Fatal(err)
		}
		if addr, err := p.addr(); addr != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q (%v), want %q", raw, addr, err, want)
		}
	}
}

// Where nobody listens, a login fails at once and with the reason, not after the
// patience of the client library and with a deadline of nobody's.
func TestLoginUnreached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody else listens there, and then nobody at all
	must(t, err)
	must(t, l.Close())
	p, err := newPlace("etcd://user:s3cret@" + l.Addr().String())
	must(t, err)
	b, err := openBare(t.Context(), p)
	if err == nil {
		_ = b.Close()
		t.Fatal("nobody was logged in to")
	}
	if !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

// A store that cannot be reached has not been touched, and the run does not wait for
// it again to clean up.
func TestCleanUnreached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody else listens there, and then nobody at all
	must(t, err)
	must(t, l.Close())
	var targets []Target
	for _, scheme := range []string{"redis", "mysql", "zk", "etcd"} {
		target, err := NewTarget(scheme, scheme+"://"+l.Addr().String()+"/0", "for a test", "", time.Minute)
		must(t, err)
		targets = append(targets, target)
	}
	r, err := Run(t.Context(), targets, small(), func(Step) {})
	must(t, err)
	Clean(targets, r)
	for _, b := range r.Backends {
		if b.Touched != "nothing: it could not be opened" || b.Failed["open"] == "" || b.Failed["clean"] != "" {
			t.Errorf("%s: touched %s; failed: %v", b.Name, b.Touched, b.Failed)
		}
	}
}
