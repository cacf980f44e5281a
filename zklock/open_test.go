package zklock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://h":                         "allowed are zk, zks",
		"zk://h//a":                         "prefix",
		"zk://h/a/../b":                     "prefix",
		"zk://h?prefix=/a":                  `unknown parameter "prefix"`,
		"zk://h?sesion_timeout=1s":          `did you mean "session_timeout"`,
		"zk://h?session_timeout=0s":         "session_timeout",
		"zk://h?acl=everybody":              "acl",
		"zk://h?acl=creator":                "needs a user",
		"zk://me:s3cret@h?acl=x":            "acl",
		"zk://me:s3cret@h,h":                "listed twice",
		"zks://me:s3cret@h?tls=off":         "tls",
		"zk://me:s3cret@h/p?tick_time=2m":   "tick_time",
		"zk://me:s3cret@h/p?ttl=-1s":        "ttl",
		"zk://me:s3cret@h/other?ttl=2s":     "the prefix is /other, but also given as /mine",
		"zk://me:s3cret@h?dial_timeout=now": "dial_timeout",
	} {
		_, err := Open(t.Context(), url, &Options{Prefix: "/mine"})
		if !errors.Is(err, distlock.ErrInvalid) && !strings.Contains(want, "prefix") {
			t.Errorf("%s: %v is no ErrInvalid", url, err)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q and no password", url, err, want)
		}
	}
}

// TestOpenFails: what cannot be reached fails here, in time, and without a word on
// standard error.
func TestOpenFails(t *testing.T) {
	// The library's Close waits for a second. Open does not wait for that.
	defer leavesNothing(t, goleak.IgnoreAnyFunction("github.com/go-zookeeper/zk.(*Conn).Close"))()
	if _, err := Open(t.Context(), "zk://me:s3cret@127.0.0.1:1", nil); !errors.Is(err, zk.ErrNoServer) {
		t.Error("nobody there:", err)
	}

	silent := testkit.Silent(t)
	testkit.Within(t, 600*time.Millisecond, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := Open(ctx, "zk://"+silent, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("nobody answers:", err)
		}
	})
	// The bound on one server holds until it has answered, not until it accepts.
	if _, err := Open(t.Context(), "zk://"+silent+"?dial_timeout=100ms", nil); !errors.Is(err, zk.ErrNoServer) {
		t.Error("nobody answers:", err)
	}
}

// TestShortestTTL: a TTL that leaves the servers no time to answer is refused, and the error says which is allowed.
func TestShortestTTL(t *testing.T) {
	t.Parallel()
	l := open(t, nil, freshPrefix(), 7*time.Second)
	_, err := l.TryLock(t.Context(), "x", distlock.TTL(minTTL-time.Millisecond))
	if !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), "the TTL is 99ms, allowed on zookeeper is 100ms to ") {
		t.Error("a TTL of 99 ms:", err)
	}
}

// TestNegotiated: the servers grant less than was asked for, or more. What they
// grant decides on the TTLs.
func TestNegotiated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ ask, want time.Duration }{
		{time.Hour, 120 * time.Second},
		{time.Millisecond, 400 * time.Millisecond},
		{7 * time.Second, 7 * time.Second},
	} {
		l := open(t, nil, freshPrefix(), tc.ask)
		lease := leaseOf(tc.want, tick)
		if got := l.Capabilities().MaxTTL; got != (lease - lease/sharing).Truncate(time.Millisecond) {
			t.Errorf("asked for %v: TTLs up to %v, which are not those of a session of %v", tc.ask, got, tc.want)
		}
		conn, _, err := zk.Connect([]string{server(t).Addr()}, tc.ask, zk.WithLogger(silent{}))
		testkit.Must(t, err)
		defer conn.Close()
		if _, err := New(conn, nil); conn.State() != zk.StateHasSession && !errors.Is(err, distlock.ErrInvalid) {
			t.Error("New before there is a session:", err)
		}
		var n *Locker
		eventually(t, func() string { // the library gives a session of 1 ms little time to connect, and drops one of 400 ms soon
			if _, _, err = conn.Exists("/"); err == nil {
				n, err = New(conn, &Options{TickTime: tick})
			}
			if err != nil {
				return err.Error()
			}
			return ""
		})
		if got := n.Capabilities().MaxTTL; got != l.Capabilities().MaxTTL {
			t.Errorf("New finds TTLs up to %v, Open up to %v", got, l.Capabilities().MaxTTL)
		}
		if _, err := New(conn, &Options{SessionTimeout: tc.want + 1}); !errors.Is(err, distlock.ErrInvalid) {
			t.Error("New with a longer timeout than was granted:", err)
		}
	}
	// The longest session here is one of 120 s.
	l, err := Open(t.Context(), server(t).URL()+freshPrefix()+"?ttl=90s&tick_time=200ms", nil)
	testkit.Must(t, err)
	defer l.Close()
	most := l.Capabilities().MaxTTL
	before := time.Now()
	held := lock(t, l, "x")
	if end := held.Deadline(); end.After(time.Now().Add(most)) || end.Before(before.Add(most-2*time.Second)) {
		t.Errorf("a lock that asks for 90 s ends in %v, the most there is are %v", end.Sub(before), most)
	}
	unlock(t, held)
	if _, err := l.TryLock(t.Context(), "x", distlock.NoRenewal()); !errors.Is(err, distlock.ErrInvalid) {
		t.Error("a fixed term that the longest session does not carry:", err)
	}
	_, err = Open(t.Context(), server(t).URL()+"?session_timeout=1s&tick_time=2s", nil)
	if !errors.Is(err, distlock.ErrInvalid) {
		t.Error("a session shorter than the ticks allow:", err)
	}
}

// TestNew: the user's connection outlives the Locker.
func TestNew(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	l, err := New(conn, &Options{Prefix: freshPrefix()})
	testkit.Must(t, err)
	held := lock(t, l, "x")
	testkit.Must(t, l.Close())
	if !errors.Is(held.Err(), distlock.ErrUnlocked) {
		t.Error(held.Err())
	}
	if there, _, err := conn.Exists(held.Path()); err != nil || there {
		t.Error("the node is still there:", err)
	}
	if _, err := New(conn, &Options{Prefix: "relative"}); !errors.Is(err, distlock.ErrInvalid) {
		t.Error(err)
	}
}

// TestCloseLeavesNothing: the session is closed, not left to expire, and nothing of
// it runs any more.
func TestCloseLeavesNothing(t *testing.T) {
	w, prefix, conn := newProxy(t), freshPrefix(), connect(t)
	defer leavesNothing(t, goleak.IgnoreAnyFunction("github.com/distlock-go/distlock/zklock.(*proxy).serve"))()
	var log bytes.Buffer
	l, err := Open(t.Context(), server(t).URLVia(w.addr), &Options{
		Prefix:         prefix,
		SessionTimeout: 30 * time.Second, // the longest, so that no other is tried
		Options:        distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))},
	})
	testkit.Must(t, err)
	lock(t, l, "x")
	testkit.Must(t, l.Close())
	if n := len(claimsOf(t, conn, prefix, "x")); n != 0 {
		t.Errorf("%d claims are left", n)
	}
	if n := w.count()[opClose]; n != 1 {
		t.Errorf("the session was closed %d times", n)
	}
	if !strings.Contains(log.String(), "level=DEBUG") {
		t.Error("the library's messages did not reach the logger")
	}
}

// TestCreatorACL: with acl=creator, nobody else reads or touches what we make.
func TestCreatorACL(t *testing.T) {
	t.Parallel()
	prefix, stranger := freshPrefix(), connect(t)
	url := strings.Replace(server(t).URL(), "zk://", "zk://me:s3cret@", 1) + prefix + "?acl=creator"
	l, err := Open(t.Context(), url, nil)
	testkit.Must(t, err)
	defer l.Close()
	held := lock(t, l, "x")
	if _, _, err := stranger.Get(held.Path()); !errors.Is(err, zk.ErrNoAuth) {
		t.Error("a stranger reads the node:", err)
	}
	if err := stranger.Delete(held.Path(), -1); !errors.Is(err, zk.ErrNoAuth) {
		t.Error("a stranger deletes the node:", err)
	}
	other, err := New(stranger, &Options{Prefix: prefix})
	testkit.Must(t, err)
	defer other.Close()
	if _, err := other.TryLock(t.Context(), "x"); !errors.Is(err, zk.ErrNoAuth) || errors.Is(err, distlock.ErrHeld) {
		t.Error("a stranger's TryLock:", err)
	}
	second, err := Open(t.Context(), url, nil)
	testkit.Must(t, err)
	defer second.Close()
	if _, err := second.TryLock(t.Context(), "x"); !errors.Is(err, distlock.ErrHeld) {
		t.Error("our own TryLock:", err)
	}
	unlock(t, held)
}
