package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// own starts a server that the test may spoil.
func own(t *testing.T) (*servers.Server, *redis.Client) {
	t.Helper()
	s := servers.ForTest(t, servers.Redis)
	if !s.Controlled() {
		t.Skip("the given server is not ours to change")
	}
	return s, client(t, s.URL())
}

// A renewal has two thirds of the time that is left. It finds the connection of the grant, and takes one round trip although
// the server has never seen its script. With a new connection and NOSCRIPT it takes five or six.
func TestFirstRenewalIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	s, admin := own(t)
	var connections atomic.Int32
	o := *admin.Options()
	o.OnConnect = func(context.Context, *redis.Conn) error { connections.Add(1); return nil }
	c := redis.NewClient(&o)
	defer c.Close()
	testkit.Must(t, admin.ScriptFlush(t.Context()).Err())
	testkit.Must(t, admin.ConfigResetStat(t.Context()).Err())
	d := driverOn(t, c, freshPrefix())
	a := d.claim("x", long)
	grants(t, a)
	if _, err := a.Renew(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	errs := admin.Info(t.Context(), "errorstats").Val()
	if n := connections.Load(); n != 1 || strings.Contains(errs, "NOSCRIPT") {
		t.Errorf("a lock and its first renewal took %d connections to %s, want 1, and the server had the errors %q", n, s.Addr(), errs)
	}
	releases(t, a)
}

// Full memory is an error of the server, and does not mean that a lock is held. A holder keeps
// its lock and can release it.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	server, c := own(t)
	d := driverOn(t, c, freshPrefix())
	a, b := d.claim("x", long), d.claim("y", long)
	grants(t, a)
	grants(t, b)
	b.ambiguous = true
	testkit.Must(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if _, err := d.tryOnly("free", long).Try(t.Context()); !redis.IsOOMError(err) || errors.Is(err, distlock.ErrHeld) {
		t.Errorf("Try of a free name with no memory: %v, want the server's OOM error", err)
	}
	refuses(t, d.tryOnly("x", long)) // which needs none
	l, err := Open(t.Context(), server.URL(), nil)
	testkit.Must(t, err)
	testkit.Must(t, l.Close())
	if _, err := a.Renew(t.Context(), 2*long); err != nil {
		t.Errorf("Renew: %v", err)
	}
	releases(t, a)
	releases(t, b) // what Unlock is for is done
	// Nor does what refuses a request of it that may still arrive, also if the release is repeated.
	for range 2 {
		if record := c.HGet(t.Context(), b.key.waiters(), b.request.Owner).Val(); !strings.HasSuffix(record, " x") {
			t.Errorf("the tombstone is %q", record)
		}
		releases(t, b)
	}
	if left := leftovers(t, c, d.prefix); len(left) != 1 {
		t.Errorf("left behind are %q, want the tombstone", left)
	}
}

// A replica may lag behind its master, so it says nothing about holders.
func TestReplicaDecidesNothing(t *testing.T) {
	t.Parallel()
	master, c := start(t, "repl-diskless-sync-delay 0")
	d := driverOn(t, c, defaultPrefix)
	a := d.claim("x", long)
	g := grants(t, a)

	_, rc := start(t)
	host, port, err := net.SplitHostPort(master)
	testkit.Must(t, err)
	r := driverOn(t, rc, defaultPrefix)
	testkit.Must(t, rc.ReplicaOf(t.Context(), host, port).Err())
	testkit.Until(t, "the replica has the entry", func() bool { return rc.Exists(t.Context(), a.key.entry()).Val() == 1 })

	same := r.claim("x", long)
	same.request.Owner, same.token = a.request.Owner, g.Token
	gone := r.claim("gone", long)
	gone.token = 1
	for what, err := range map[string]error{
		"Try of a held name":        second(r.tryOnly("x", long).Try(t.Context())),
		"Try of a free name":        second(r.tryOnly("y", long).Try(t.Context())),
		"Renew of its own":          second(same.Renew(t.Context(), long)),
		"Renew of what it lacks":    second(gone.Renew(t.Context(), long)),
		"Release of what it lacks":  gone.Release(t.Context()),
		"Release of its own":        same.Release(t.Context()),
		"Break of what others hold": r.Break(t.Context(), "x", 1),
	} {
		if !redis.IsReadOnlyError(err) || driver.FateOf(err) != driver.NotNow {
			t.Errorf("%s on a replica: %v (%v), want the server's READONLY error", what, err, driver.FateOf(err))
		}
	}
}

func second[T any](_ T, err error) error { return err }

// logHook is told what is written to a log.
type logHook func(text string)

func (f logHook) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

// The rule that docs/redis.md gives is enough for everything, and the one without
// channels for everything but wake-ups.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s, admin := own(t)
	prefix := freshPrefix()
	rule := append([]string{"reset", "on", ">secret", "~" + prefix + "*", "resetchannels", "&" + prefix + "*"}, aclRule(t, false)...)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "locker", rule...).Err())
	testkit.Must(t, admin.ACLSetUser(t.Context(), "silent", append(rule, "resetchannels")...).Err())
	for _, user := range []string{"locker", "silent"} {
		t.Run(user, func(t *testing.T) {
			var book logBook
			l, err := Open(t.Context(), fmt.Sprintf("redis://%s:secret@%s?prefix=%s", user, s.Addr(), prefix),
				&Options{Options: distlock.Options{Logger: book.logger()}})
			testkit.Must(t, err)
			defer l.Close()
			exercise(t, l)
			if warned := strings.Contains(book.String(), "cannot subscribe"); warned != (user == "silent") {
				t.Errorf("the log of %s is %q", user, book.String())
			}
			testkit.Must(t, l.Close())
		})
	}
	t.Run("a log that hangs holds up nobody", func(t *testing.T) {
		said, goOn := make(chan struct{}), make(chan struct{})
		log := logHook(func(text string) {
			if strings.Contains(text, "cannot subscribe") {
				close(said)
				<-goOn
			}
		})
		d := driverOn(t, client(t, "redis://silent:secret@"+s.Addr()), prefix)
		d.subscriber.logger = slog.New(slog.NewTextHandler(log, nil))
		defer close(goOn)
		a, b := d.claim("hook", long), d.claim("hook", long)
		grants(t, a)
		refuses(t, b)
		d.subscriber.enlist(t.Context(), b, false)
		<-said
		refuses(t, b) // and does not hang behind the log
		releases(t, b)
		releases(t, a)
	})
	t.Run("releases without waking", func(t *testing.T) {
		user := func(name string) *store {
			return driverOn(t, client(t, fmt.Sprintf("redis://%s:secret@%s", name, s.Addr())), prefix)
		}
		a, b := user("silent").claim("x", long), user("locker").claim("x", long)
		grants(t, a)
		queues(t, b)
		releases(t, a)
		grants(t, b)
		releases(t, b)
	})
	judgeDenied(t, admin, func(e redis.ACLLogEntry) bool {
		return e.Username == "silent" || e.Object == "client|setinfo" // go-redis does by itself, in a client that is not from Open
	})
}

// exercise does everything that a Locker can, on several slots of a cluster.
func exercise(t *testing.T, l *Locker) {
	t.Helper()
	ctx := t.Context()
	var broken []distlock.Lock
	for i := range 8 {
		name := fmt.Sprint("name", i)
		pin.Exercise(t, l, name, distlock.TTL(long))
		lock, err := l.Lock(ctx, name)
		testkit.Must(t, err)
		testkit.Must(t, distlock.Break(ctx, l, name, 0))
		broken = append(broken, lock)
	}
	for _, lock := range broken {
		if err := lock.Extend(ctx, time.Minute); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Extend after Break: %v, want ErrLost", err)
		}
		<-lock.Done()
		if err := lock.Unlock(ctx); !errors.Is(err, distlock.ErrLost) {
			t.Fatalf("Unlock after Break: %v, want ErrLost", err)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	s, c := own(t)
	open := func() string {
		var book logBook
		l, err := Open(t.Context(), s.URL(), &Options{Options: distlock.Options{Logger: book.logger()}})
		testkit.Must(t, err)
		testkit.Must(t, l.Close())
		return book.String()
	}
	if text := open(); text != "" {
		t.Errorf("a server without a fault: %s", text)
	}
	testkit.Must(t, c.ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err())
	if text := open(); !strings.Contains(text, "noeviction") || !strings.Contains(text, "volatile-lru") {
		t.Errorf("a server that evicts: %q", text)
	}
	testkit.Must(t, c.ACLSetUser(t.Context(), "default", "-config").Err())
	if text := open(); !strings.Contains(text, "does not show") || strings.Contains(text, "WARN") {
		t.Errorf("a server that does not show its settings: %s", text)
	}

	var book logBook
	o := *c.Options()
	o.ContextTimeoutEnabled = false
	heedless := redis.NewClient(&o)
	defer heedless.Close()
	lockerOn(t, heedless, &Options{Options: distlock.Options{Logger: book.logger()}})
	if !strings.Contains(book.String(), "ContextTimeoutEnabled") {
		t.Errorf("a client that does not heed contexts: %q", book.String())
	}
}

// A call that fails leaves no waiter behind: it may have sent nothing that a Release would be owed for.
func TestFailedLockLeavesNoWaiter(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 2)
	d := drivers[1]
	a, b, wrong := drivers[0].claim("x", long), d.claim("x", long), d.claim("wrong", long)
	grants(t, a)
	queues(t, b)
	testkit.Must(t, client(t, server(t).URL()).RPush(t.Context(), wrong.key.entry(), "a list").Err())
	if _, err := wrong.Try(t.Context()); driver.FateOf(err) != driver.Answered {
		t.Errorf("Try of a key of another type: %v, want the server's refusal", err)
	}
	d.subscriber.mu.Lock()
	if n := len(d.subscriber.channels[b.waiter.channel].waiters); n != 1 {
		t.Errorf("%d waiters, one call waits", n)
	}
	d.subscriber.mu.Unlock()
	releases(t, b)
	releases(t, a)
}

// A master that becomes a replica keeps its subscribers, and answers them, but nobody counts them where
// names are released now.
func TestReplicaLosesItsSubscribers(t *testing.T) {
	t.Parallel()
	_, c := own(t)
	d := driverOn(t, c, freshPrefix())
	a, b := d.claim("x", long), d.claim("x", long)
	grants(t, a)
	queues(t, b)
	testkit.Until(t, "the channel is confirmed", func() bool { return d.subscriber.relies(b) })
	testkit.Must(t, c.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	if _, err := d.tryOnly("y", long).Try(t.Context()); !redis.IsReadOnlyError(err) {
		t.Errorf("Try at a replica: %v, want the server's refusal", err)
	}
	if d.subscriber.relies(b) {
		t.Error("a waiter relies on a subscription to a replica")
	}
	testkit.Must(t, c.ReplicaOf(t.Context(), "NO", "ONE").Err())
	releases(t, a)
	grants(t, b)
	releases(t, b)
}

// The connection for wake-ups is there while calls wait, and closed when none has waited for a
// while.
func TestSubscriberIsClosedWhenIdle(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 2)
	d := drivers[1]
	a, b := drivers[0].claim("x", long), d.claim("x", long)
	grants(t, a)
	queues(t, b)
	d.subscriber.mu.Lock()
	conn, ch := d.subscriber.conns[""], d.subscriber.channels[b.waiter.channel]
	d.subscriber.mu.Unlock()
	age := func() {
		d.subscriber.mu.Lock()
		defer d.subscriber.mu.Unlock()
		ch.used = time.Now().Add(-2 * idle)
	}
	age()
	if !d.subscriber.sweep(conn) {
		t.Fatal("closed although a call waits")
	}
	releases(t, b)
	if !d.subscriber.sweep(conn) {
		t.Fatal("closed at once, though the next may come soon")
	}
	age()
	if d.subscriber.sweep(conn) {
		t.Fatal("not closed although no call has waited for long")
	}
	d.subscriber.drop(conn)
	c := d.claim("x", long)
	queues(t, c) // opened again
	releases(t, a)
	hears(t, c)
	releases(t, c)
}
