package sandbox

import (
	"strings"
	"testing"
)

// The URL of a run must keep what the user wrote and name a part of its own within it.
func TestSandbox(t *testing.T) {
	for _, c := range []struct{ raw, want, via, what string }{
		{"redis://:p%40ss@h/2", "redis://:p%40ss@h/2?prefix=distlock%3Acompare-ID%3A",
			"redis://:p%40ss@127.0.0.1:9/2?prefix=distlock%3Acompare-ID%3A", "keys that begin with distlock:compare-ID:"},
		{"redis://h?prefix=app:&pool_size=3&ttl=9s", "redis://h?pool_size=3&ttl=9s&prefix=app%3Acompare-ID%3A",
			"redis://127.0.0.1:9?pool_size=3&ttl=9s&prefix=app%3Acompare-ID%3A", "keys that begin with app:compare-ID:"},
		{"redlock://a,b,c/2", "redlock://a,b,c/2?prefix=redlock%3Acompare-ID%3A",
			"redlock://127.0.0.1:9/2?prefix=redlock%3Acompare-ID%3A", "keys that begin with redlock:compare-ID:"},
		{"mysql://u:p@h:33/db", "mysql://u:p@h:33/db?table=distlock_compare_ID&create=true",
			"mysql://u:p@127.0.0.1:9/db?table=distlock_compare_ID&create=true", "the tables distlock_compare_ID and distlock_compare_ID_bare"},
		{"mysql://h/db?table=locks.mine&create=false", "mysql://h/db?table=locks.distlock_compare_ID&create=true",
			"mysql://127.0.0.1:9/db?table=locks.distlock_compare_ID&create=true", "the tables locks.distlock_compare_ID and locks.distlock_compare_ID_bare"},
		{"zk://[::1]:2181", "zk://[::1]:2181/distlock/compare-ID",
			"zk://127.0.0.1:9/distlock/compare-ID", "the node /distlock/compare-ID"},
		{"zk://h/a/b%20c/", "zk://h/a/b%20c/compare-ID", "zk://127.0.0.1:9/a/b%20c/compare-ID", "the node /a/b c/compare-ID"},
		{"etcd://h", "etcd://h/distlock/compare-ID", "etcd://127.0.0.1:9/distlock/compare-ID", "keys that begin with distlock/compare-ID/"},
		{"etcd://h/billing", "etcd://h/billing/compare-ID", "etcd://127.0.0.1:9/billing/compare-ID", "keys that begin with billing/compare-ID/"},
		{"etcd://h?prefix=/x/", "etcd://h?prefix=%2Fx%2Fcompare-ID%2F", "etcd://127.0.0.1:9?prefix=%2Fx%2Fcompare-ID%2F", "keys that begin with /x/compare-ID/"},
		{"mem://x", "mem://x", "mem://127.0.0.1:9", ""},
	} {
		p, err := New(c.raw, "compare")
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		id := ""
		if i := strings.Index(p.What, "compare"); i >= 0 {
			id = p.What[i+len("compare")+1:][:12]
		}
		for got, want := range map[string]string{p.URL(""): c.want, p.URL("127.0.0.1:9"): c.via, p.What: c.what} {
			if id != "" {
				got = strings.ReplaceAll(got, id, "ID")
			}
			if got != want {
				t.Errorf("%s: got %q, want %q", c.raw, got, want)
			}
		}
	}
	if _, err := New("redis://h?prefix="+strings.Repeat("x", 60), "compare"); err == nil {
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
		p, err := New(raw, "compare")
		if err != nil {
			t.Fatal(err)
		}
		if addr, err := p.Addr(); addr != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q (%v), want %q", raw, addr, err, want)
		}
	}
}

// Where nobody listens, a login fails at once and with the reason, not after the
// patience of the client library and with a deadline of nobody's.
func TestLoginUnreached(t *testing.T) {
	p, err := New("etcd://user:s3cret@127.0.0.1:1", "compare")
	must(t, err)
	b, err := p.Open(t.Context())
	if err == nil {
		_ = b.Close()
		t.Fatal("nobody was logged in to")
	}
	if !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
