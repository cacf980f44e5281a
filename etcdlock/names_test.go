package etcdlock

import (
	"errors"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// Names that other libraries have taken for one another.
var oddNames = []string{
	"jobs", "jobs/", "/jobs", "jobs/a", "jobs/a/", "jobs/a/b", "jobs//a", "JOBS/A", "jobs/a ", "jobs/à",
	"!", "!!", "a!b", "a%21b", "%", "%2F", "/", "%252F", "distlock/", ".", "..", " ", "\x00", "\n",
	"käse", "\u00e9", "e\u0301", "{x}", "*", strings.Repeat("x", 512), strings.Repeat("x", 511) + "y", strings.Repeat("x", 511),
}

func TestNoQueueContainsAnother(t *testing.T) {
	d := &store{prefix: "p/"}
	for _, a := range oddNames {
		if back, ok := d.name(d.queue(a) + testkit.Owner()); !ok || back != a {
			t.Errorf("%q comes back as %q, %v", a, back, ok)
		}
		for _, b := range oddNames {
			if a != b && strings.HasPrefix(d.queue(a)+testkit.Owner(), d.queue(b)) {
				t.Errorf("a key of %q is in the queue of %q", a, b)
			}
		}
	}
}

func TestPrefixesNeverMeet(t *testing.T) {
	prefixes := []string{"", "a", "a/", "a//", "a/b", "a/b/", "a%2Fb", "/", "/a", "ä", "distlock", "distlock/distlock"}
	queues := make(map[string]string)
	for _, p := range prefixes {
		checked, err := checkPrefix(p)
		testkit.Must(t, err)
		d := &store{prefix: checked}
		for _, name := range append(oddNames, "b/x", "b", "a/b/x") {
			who := checked + " " + name
			if other, taken := queues[d.queue(name)]; taken && other != who {
				t.Errorf("%q and %q have the same queue", who, other)
			}
			queues[d.queue(name)] = who
		}
	}
	for q := range queues {
		for other := range queues {
			if q != other && strings.HasPrefix(q, other) {
				t.Errorf("the queue %q is within %q", q, other)
			}
		}
	}
}

func TestWrongPrefix(t *testing.T) {
	for _, p := range []string{"a!b", "\xff", strings.Repeat("x", 513)} {
		if _, err := checkPrefix(p); !errors.Is(err, distlock.ErrInvalid) {
			t.Errorf("checkPrefix(%q): %v, want ErrInvalid", p, err)
		}
	}
}

func TestForeignKeysAreNoNames(t *testing.T) {
	d := &store{prefix: "p/"}
	for _, key := range []string{"p/x", "p/b/x!owner", "p/%zz!owner", "p/%61!owner", "p/"} {
		if name, ok := d.name(key); ok {
			t.Errorf("the key %q is taken for one of %q", key, name)
		}
	}
}

func TestURL(t *testing.T) {
	tests := []struct {
		url     string
		options Options
		prefix  string // of a valid URL
		problem string // of another
	}{
		{url: "etcd://h", prefix: "distlock/"},
		{url: "etcd://h/", prefix: "distlock/"},
		{url: "etcd://u:pw@h1,h2:99/app/locks?ttl=5s&holder=me&dial_timeout=1s", prefix: "app/locks/"},
		{url: "etcd://h?prefix=/app", prefix: "/app/"},
		{url: "etcd://h/app?prefix=app/", prefix: "app/"},
		{url: "etcd://h/app", options: Options{Prefix: "app"}, prefix: "app/"},
		{url: "etcd://h", options: Options{Prefix: "app"}, prefix: "app/"},
		{url: "etcds://h?tls_server_name=x", prefix: "distlock/"},
		{url: "etcd://h/app?prefix=other", problem: "the prefix is other/, but also given as app/"},
		{url: "etcd://h/app", options: Options{Prefix: "other"}, problem: "the path is app/, but also given as other/"},
		{url: "etcd://h/a!b", problem: `without "!"`},
		{url: "etcd://h?prefx=a", problem: `did you mean "prefix"`},
		{url: "etcd://user@h", problem: "a user without a password"},
		{url: "etcd://h,h", problem: "listed twice"},
		{url: "etcd://h?ttl=soon", problem: "a duration"},
		{url: "redis://h", problem: "allowed are etcd, etcds"},
	}
	for _, tt := range tests {
		config, opts, err := parse(tt.url, &tt.options)
		switch {
		case tt.problem == "" && err != nil:
			t.Errorf("%s: %v", tt.url, err)
		case tt.problem == "" && opts.Prefix != tt.prefix:
			t.Errorf("%s: the prefix is %q, want %q", tt.url, opts.Prefix, tt.prefix)
		case tt.problem != "" && (!errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), tt.problem)):
			t.Errorf("%s: %v, want ErrInvalid and %q", tt.url, err, tt.problem)
		}
		if secure := strings.HasPrefix(tt.url, "etcds"); err == nil {
			for _, e := range config.Endpoints {
				if strings.HasPrefix(e, "https://") != secure {
					t.Errorf("%s: the endpoint is %s", tt.url, e)
				}
			}
		}
	}
}
