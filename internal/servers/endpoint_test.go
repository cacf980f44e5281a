package servers

import (
	"slices"
	"testing"
)

func TestEndpoint(t *testing.T) {
	for _, c := range []struct {
		raw      string
		addrs    []string
		user, pw string
		path     string
		via      string
		redacted string
	}{
		{"redis://localhost", []string{"localhost:9"}, "", "", "", "redis://p:1", "redis://localhost:9"},
		{"redis://:pw@h:6379/2?prefix=x", []string{"h:6379"}, "", "pw", "2", "redis://:pw@p:1/2?prefix=x", "redis://:xxxxx@h:6379/2?…"},
		{"mysql://u:p%40ss@h/db", []string{"h:9"}, "u", "p@ss", "db", "mysql://u:p%40ss@p:1/db", "mysql://u:xxxxx@h:9/db"},
		{"zk://a:2181,b:2182,c/root", []string{"a:2181", "b:2182", "c:9"}, "", "", "root", "zk://p:1/root", "zk://a:2181,b:2182,c:9/root"},
		{"etcd://[::1]:2379,[::2]", []string{"[::1]:2379", "[::2]:9"}, "", "", "", "etcd://p:1", "etcd://[::1]:2379,[::2]:9"},
	} {
		e, err := parseEndpoint(c.raw, "9")
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		user, pw := e.login()
		if !slices.Equal(e.addrs(), c.addrs) || e.addr() != c.addrs[0] || user != c.user || pw != c.pw || e.path() != c.path {
			t.Errorf("%s: got %v, user %q, password %q, path %q", c.raw, e.addrs(), user, pw, e.path())
		}
		if via := e.at("p:1").String(); via != c.via {
			t.Errorf("%s: by way of p:1 it is %s, want %s", c.raw, via, c.via)
		}
		if got := e.redacted(); got != c.redacted {
			t.Errorf("%s: redacted it is %s, want %s", c.raw, got, c.redacted)
		}
	}
	for _, raw := range []string{"", "localhost", "localhost:6379", "redis://", "zk://a,,b", "://h"} {
		if e, err := parseEndpoint(raw, "9"); err == nil {
			t.Errorf("%q: got %s, want an error", raw, e)
		}
	}
}

func TestRecentEtcd(t *testing.T) {
	for version, want := range map[string]bool{
		"etcd Version: 3.4.23\nGit SHA: x": false, "etcd Version: 3.5.0": true, "etcd Version: 3.10.1": true,
		"etcd Version: 4.0.0": true, "etcd Version: 2.9.0": false, "": false,
	} {
		if recentEtcd(version) != want {
			t.Errorf("%q: got %v, want %v", version, !want, want)
		}
	}
}

func TestHubPrefix(t *testing.T) {
	for _, c := range []struct{ prefix, image, want string }{
		{"", "redis:8", "redis:8"},
		{"mirror.local", "redis:8", "mirror.local/redis:8"},
		{"mirror.local", "testcontainers/ryuk:1", "mirror.local/testcontainers/ryuk:1"},
		{"mirror.local", "quay.io/coreos/etcd:v3", "quay.io/coreos/etcd:v3"},
	} {
		if got := withHub(c.prefix, c.image); got != c.want {
			t.Errorf("withHub(%q, %q) = %q, want %q", c.prefix, c.image, got, c.want)
		}
	}
}
