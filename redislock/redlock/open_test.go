package redlock

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// What is wrong with a URL is said before a server is asked, with what is allowed, and without the
// password.
func TestURLErrors(t *testing.T) {
	for url, part := range map[string]string{
		"redlock://:s3cret@a":                       "at least 3 servers",
		"redlock://:s3cret@a,b":                     "best an odd number",
		"redlock://:s3cret@a,b,a":                   "listed twice",
		"redlock://:s3cret@a,b,a:6379":              "listed twice",
		"redlock://s3cret@a,b,c":                    "redis://:password@host",
		"redlock://:s3cret@a,b,c/x":                 "number of a database",
		"redlock://:s3cret@a,b,c?max_ttl=1h":        "1s to 10m",
		"redlock://:s3cret@a,b,c?after_restart=yes": "wait, trust",
		"redlock://:s3cret@a,b,c?cluster=true":      "unknown parameter",
		"redlock://:s3cret@a,b,c?prefix=":           "prefix",
		"redlock://:s3cret@a,b,c?prefix={}":         "visible ASCII",
		"redlocks://:s3cret@a,b,c?tls=off":          "insecure-skip-verify",
		"redis://:s3cret@a,b,c":                     "allowed are redlock, redlocks",
	} {
		_, err := Open(t.Context(), url, nil)
		if !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want ErrInvalid with %q", url, err, part)
		}
	}
	for _, o := range []Options{{MaxTTL: time.Millisecond}, {MaxTTL: time.Hour}, {TokenMemory: -1}, {Prefix: "a b"}} {
		if _, err := Open(t.Context(), "redlock://a,b,c", &o); !errors.Is(err, distlock.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", o, err)
		}
	}
}

// The vote of a server with two names would count twice.
func TestOneServerTwice(t *testing.T) {
	t.Parallel()
	g := five(t)
	_, port, err := net.SplitHostPort(g.servers[0].Addr())
	testkit.Must(t, err)
	_, err = Open(t.Context(), urlOf(append(g.addrs()[:2], "localhost:"+port)), nil)
	if !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), "are the same server") {
		t.Errorf("%v, want ErrInvalid", err)
	}
	testkit.Must(t, g.admins[1].ConfigSet(t.Context(), "requirepass", "other").Err())
	if _, err := Open(t.Context(), g.url(), nil); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("one of five refuses the login: %v", err)
	}
}

// A user has the rights that docs/redis.md lists, and no others.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	g := five(t)
	for _, a := range g.admins {
		testkit.Must(t, a.Do(t.Context(), "ACL", "SETUSER", "locker", "on", ">s3cret", "~redlock:*",
			"+evalsha", "+eval", "+get", "+getex", "+set", "+del", "+pttl", "+pexpire", "+time", "+scan", "+info", "+ping").Err())
	}
	l := open(t, "redlock://locker:s3cret@"+strings.Join(g.addrs(), ",")+"?max_ttl=4s")
	var held distlock.Lock
	testkit.Until(t, "the servers are trusted", func() (ok bool) {
		var err error
		held, err = l.TryLock(t.Context(), "x", distlock.TTL(4*time.Second))
		return err == nil
	})
	if _, err := l.TryLock(t.Context(), "x"); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
	testkit.Must(t, held.Extend(t.Context(), 4*time.Second))
	list, err := l.List(t.Context(), "")
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v, want one lock", list, err)
	}
	testkit.Must(t, l.Break(t.Context(), "x", list[0].Token))
	testkit.Until(t, "the holder knows", func() bool { return errors.Is(held.Err(), distlock.ErrLost) })
	testkit.Must(t, lock(t, l, "x").Unlock(t.Context()))
}
