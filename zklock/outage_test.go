package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestSilentServer: a server that says nothing any more does not take the locks of its
// clients along, if there is another.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	first, second, prefix := newProxy(t), newProxy(t), freshPrefix()
	second.away.Store(true) // so that the client connects to the first
	l, err := Open(t.Context(), "zk://"+first.addr+","+second.addr+prefix+"?tick_time=200ms&ttl=15s", nil)
	testkit.Must(t, err)
	defer l.Close()
	held, short := lock(t, l, "x"), lock(t, l, "y", distlock.TTL(9*time.Second))
	second.away.Store(false)
	first.gate.Lock()
	defer first.gate.Unlock()
	before := held.Deadline()
	eventually(t, func() string {
		if held.Err() == nil && !held.Deadline().After(before.Add(4*time.Second)) {
			return "the lock is not renewed"
		}
		return ""
	})
	testkit.Should(t, held.Err())
	testkit.Should(t, short.Err())
}

// TestSilentAddress: one name has the addresses of two servers, and the one that comes first says nothing any more.
func TestSilentAddress(t *testing.T) {
	t.Parallel()
	first, second := newProxy(t), newProxy(t)
	d, err := parse(server(t).URLVia("zk.test:2181")+freshPrefix()+"?tick_time=200ms&ttl=15s", nil)
	testkit.Must(t, err)
	d.target.Lookup = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1", "192.0.2.2"}, nil }
	d.target.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		to := first.addr
		if addr == "192.0.2.2:2181" {
			to = second.addr
		}
		return new(net.Dialer).DialContext(ctx, network, to)
	}
	testkit.Must(t, d.open(t.Context()))
	l, err := newLocker(d)
	testkit.Must(t, err)
	defer l.Close()
	held := lock(t, l, "x")
	first.gate.Lock()
	defer first.gate.Unlock()
	for range 2 { // the connection of the first, and that of the second
		before := held.Deadline()
		testkit.Until(t, "the lock is renewed", func() bool { return held.Err() != nil || held.Deadline().After(before.Add(4*time.Second)) })
	}
	testkit.Should(t, held.Err())
}

// TestWaiterSurvivesOutage: no server can be reached for some seconds, but the session
// and with it the node in the queue live on.
func TestWaiterSurvivesOutage(t *testing.T) {
	t.Parallel()
	w, prefix, conn := newProxy(t), freshPrefix(), connect(t)
	holder := open(t, nil, prefix, 30*time.Second)
	l, err := Open(t.Context(), server(t).URLVia(w.addr)+prefix+"?tick_time=200ms&ttl=15s", nil) // polls every 5 s
	testkit.Must(t, err)
	defer l.Close()
	held := lock(t, holder, "x")
	won, watches := make(chan error, 1), 0
	go func() {
		_, err := l.Lock(context.WithoutCancel(t.Context()), "x")
		won <- err
	}()
	eventually(t, func() string {
		if watches += w.count()[opGetData]; len(claimsOf(t, conn, prefix, "x")) != 2 || watches < 2 {
			return "the waiter does not wait"
		}
		return ""
	})
	w.away.Store(true)
	w.cut()
	time.Sleep(6 * time.Second) // not to wait for something: this is how long it is away
	w.away.Store(false)
	unlock(t, held)
	if err := <-won; err != nil {
		t.Error("the waiter got", err)
	}
}

// TestClosedByItsOwner: closing the connection under the Locker ends its locks. The
// holder is told at once, nothing is repeated, and Close takes no time.
func TestClosedByItsOwner(t *testing.T) {
	server(t)
	defer leavesNothing(t)()
	testkit.WithinFresh(t, 3*time.Second, func() func() { return closedByItsOwner(t) })
}

func closedByItsOwner(t *testing.T) func() {
	addr, prefix := server(t).Addr(), freshPrefix()
	conn := connectTo(t, addr)
	l, err := New(conn, &Options{Prefix: prefix, TickTime: tick})
	testkit.Must(t, err)
	held, fixed := lock(t, l, "x"), lock(t, l, "y", distlock.NoRenewal())
	return func() {
		conn.Close()
		for _, h := range []*Lock{held, fixed} {
			<-h.Done()
			if !errors.Is(h.Err(), distlock.ErrLost) {
				t.Error("the holder was told", h.Err())
			}
		}
		if _, err := l.TryLock(t.Context(), "z"); !errors.Is(err, distlock.ErrClosed) || errors.Is(err, distlock.ErrHeld) {
			t.Error("TryLock:", err)
		}
		_ = l.Close() // that the locks could not be released is no news
	}
}

// TestExpiredSessionLeavesNoSocket: on a connection, the servers say that the session
// has expired. The library forgets that connection.
func TestExpiredSessionLeavesNoSocket(t *testing.T) {
	t.Parallel()
	w := newProxy(t)
	l := open(t, w, freshPrefix(), 6*time.Second)
	connected := func() int64 { return w.connected.Load() }
	usable := func() string {
		held, err := l.TryLock(t.Context(), "x")
		if err != nil {
			return err.Error()
		}
		unlock(t, held)
		return ""
	}
	eventually(t, usable)
	for range 3 {
		w.expire()
		eventually(t, usable)
	}
	eventually(t, func() string {
		if n := connected(); n != 1 {
			return fmt.Sprintf("%d connections", n)
		}
		return ""
	})
}

// TestMuteServer: every step to a usable connection, and every request on it, is
// bounded.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	silent := testkit.Silent(t)
	_, err := Open(context.Background(), "zk://me:s3cret@"+silent+"?dial_timeout=200ms", nil)
	if err == nil || !strings.Contains(err.Error(), silent) || !strings.Contains(err.Error(), "200ms") || strings.Contains(err.Error(), "s3cret") {
		t.Error("a server that accepts and says nothing:", err)
	}

	w := newProxy(t)
	l, err := Open(t.Context(), server(t).URLVia(w.addr)+freshPrefix()+"?tick_time=200ms&ttl=2s&dial_timeout=3s", nil)
	testkit.Must(t, err)
	w.gate.Lock()
	if _, err := l.List(context.Background(), ""); err == nil {
		t.Error("List on a server that says nothing succeeded")
	}
	w.gate.Unlock()
	l.Close()
}

// movable has d connect to an address that may change.
func movable(d *store, first string) *atomic.Value {
	addr := new(atomic.Value)
	addr.Store(first)
	d.target.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
	}
	return addr
}

// TestForsakenIsClosed: a session was given up, as no answer came, while the servers keep it. What was on its way in it, and
// comes late, must not hold a name until it expires.
func TestForsakenIsClosed(t *testing.T) {
	t.Parallel()
	before, after := newProxy(t), newProxy(t)
	d, err := parse(server(t).URL()+freshPrefix()+"?tick_time=200ms&ttl=30s", nil)
	testkit.Must(t, err)
	addr := movable(d, before.addr)
	d.target.Lease = func(time.Duration) time.Duration { return 100 * time.Millisecond } // given up soon, and kept for a minute
	testkit.Must(t, d.open(t.Context()))
	defer d.Close()
	take := func() {
		c := d.Claim(driver.Request{Name: "x", Owner: testkit.Owner(), TTL: 30 * time.Second}).(*claim)
		testkit.Until(t, "the name is free", func() bool { _, err := c.Try(t.Context()); return err == nil })
		testkit.Until(t, "the lock is released", func() bool { return c.Release(t.Context()) == nil })
	}
	take()
	session := d.main.session.conn.SessionID()

	before.gate.Lock()
	before.count()
	addr.Store(after.addr)
	take()
	if d.main.session.conn.SessionID() == session {
		t.Fatal("the session was not given up")
	}
	before.gate.Unlock() // and the first request for a node comes
	testkit.Until(t, "it has", func() bool { return before.count()[opMulti] > 0 })
	testkit.Within(t, 20*time.Second, take)
}

// TestRebuilt: the servers have lost all they had, and count from the beginning. They refuse a client that has seen more
// than they have. Its locks are lost with its session, and the next session is one of theirs.
func TestRebuilt(t *testing.T) {
	t.Parallel()
	before, after, conn := newProxy(t), servers.ForTest(t, servers.ZooKeeper), connect(t)
	if !after.Controlled() {
		t.Skip("a server given by URL is the only one, and this test takes two")
	}
	d, err := parse(server(t).URL()+freshPrefix()+"?tick_time=200ms&ttl=2s", nil)
	testkit.Must(t, err)
	addr := movable(d, before.addr)
	testkit.Must(t, d.open(t.Context()))
	l, err := newLocker(d)
	testkit.Must(t, err)
	defer l.Close()
	for range 500 { // more than the other server will have counted
		_, err := conn.Multi(&zk.CheckVersionRequest{Path: "/", Version: -1})
		testkit.Must(t, err)
	}
	held := lock(t, l, "x")
	addr.Store(after.Addr())
	before.cut()
	<-held.Done()
	if err := held.Err(); !errors.Is(err, distlock.ErrLost) {
		t.Error("the holder was told", err)
	}
	eventually(t, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // for the text of the error
		defer cancel()
		next, err := l.TryLock(ctx, "x")
		if err != nil {
			return err.Error()
		}
		if next.Token() >= held.Token() {
			t.Errorf("token %d after %d: the servers have not forgotten", next.Token(), held.Token())
		}
		_ = next.Unlock(t.Context()) // a machine that is late may have lost it
		return ""
	})
}
