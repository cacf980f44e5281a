package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/distlock-go/distlock"
)

// TestSilentServer: a server that says nothing any more does not take the locks of its
// clients along, if there is another.
func TestSilentServer(t *testing.T) {
	first, second, prefix := newWire(t), newWire(t), freshPrefix()
	second.away.Store(true) // so that the client connects to the first
	l, err := Open(t.Context(), "zk://"+first.addr()+","+second.addr()+prefix+"?tick_time=200ms&ttl=4s", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	held, short := lock(t, l, "x"), lock(t, l, "y", distlock.TTL(2*time.Second))
	second.away.Store(false)
	first.gate.Lock()
	defer first.gate.Unlock()
	before := held.Deadline()
	eventually(t, bound, func() string {
		if !held.Deadline().After(before.Add(4 * time.Second)) {
			return "the lock is not renewed"
		}
		return ""
	})
	if held.Err() != nil || short.Err() != nil {
		t.Error("the locks were lost:", held.Err(), short.Err())
	}
}

// TestWaiterSurvivesOutage: no server can be reached for some seconds, but the session
// and with it the node in the queue live on.
func TestWaiterSurvivesOutage(t *testing.T) {
	w, prefix, conn := newWire(t), freshPrefix(), connect(t)
	holder := open(t, nil, prefix, 30*time.Second)
	l, err := Open(t.Context(), server(t).URLVia(w.addr())+prefix+"?tick_time=200ms&ttl=6s", nil) // polls every 2 s
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	held := lock(t, holder, "x")
	won := make(chan error, 1)
	go func() {
		_, err := l.Lock(context.WithoutCancel(t.Context()), "x")
		won <- err
	}()
	eventually(t, bound, func() string {
		if len(claimsOf(t, conn, prefix, "x")) != 2 || monitor(t, "zk_watch_count") != "2" {
			return "the waiter does not wait"
		}
		return ""
	})
	w.away.Store(true)
	w.cut()
	select {
	case err := <-won:
		t.Error("the waiter gave up:", err)
	case <-time.After(4 * time.Second):
	}
	w.away.Store(false)
	unlock(t, held)
	select {
	case err := <-won:
		if err != nil {
			t.Error("the waiter got", err)
		}
	case <-time.After(bound):
		t.Error("the waiter does not get the lock")
	}
}

// TestClosedByItsOwner: closing the connection under the Locker ends its locks. The
// holder is told at once, nothing is repeated, and Close takes no time.
func TestClosedByItsOwner(t *testing.T) {
	addr, prefix := server(t).Addr(), freshPrefix()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	conn, _, err := zk.Connect([]string{addr}, 30*time.Second, zk.WithLogger(debugLog{}), inOrder())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Exists("/"); err != nil {
		t.Fatal(err)
	}
	l, err := New(conn, &Options{Prefix: prefix, TickTime: tick})
	if err != nil {
		t.Fatal(err)
	}
	held, fixed := lock(t, l, "x"), lock(t, l, "y", distlock.NoRenewal())
	began := time.Now()
	conn.Close()
	for _, h := range []*Lock{held, fixed} {
		select {
		case <-h.Done():
		case <-time.After(time.Second):
			t.Error("the holder was not told")
		}
		if !errors.Is(h.Err(), distlock.ErrLost) {
			t.Error("the holder was told", h.Err())
		}
	}
	if _, err := l.TryLock(t.Context(), "z"); !errors.Is(err, distlock.ErrClosed) || errors.Is(err, distlock.ErrHeld) {
		t.Error("TryLock:", err)
	}
	_ = l.Close() // that the locks could not be released is no news
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("all that took %v", took)
	}
}

// TestExpiredSessionLeavesNoSocket: on a connection, the servers say that the session
// has expired. The library forgets that connection.
func TestExpiredSessionLeavesNoSocket(t *testing.T) {
	w := newWire(t)
	l := open(t, w, freshPrefix(), 6*time.Second)
	connected := func() int64 { return w.connected.Load() }
	for range 3 {
		unlock(t, lock(t, l, "x"))
		w.expire()
		eventually(t, bound, func() string {
			held, err := l.TryLock(t.Context(), "x")
			if err != nil {
				return err.Error()
			}
			unlock(t, held)
			return ""
		})
	}
	eventually(t, bound, func() string {
		if n := connected(); n != 1 {
			return fmt.Sprintf("%d connections", n)
		}
		return ""
	})
}

// TestMuteServer: every step to a usable connection, and every request on it, is
// bounded, and the context of Open is kept to.
func TestMuteServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := Open(ctx, "zk://"+silent.Addr().String(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(began); took > 600*time.Millisecond {
		t.Errorf("Open with a context of 300 ms took %v", took)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = Open(ctx, "zk://"+silent.Addr().String()+"?dial_timeout=100ms", nil)
	if err == nil || !strings.Contains(err.Error(), "100ms") {
		t.Error("the reason is missing:", err)
	}
	_, err = Open(context.Background(), "zk://me:s3cret@"+silent.Addr().String()+"?dial_timeout=200ms", nil)
	if err == nil || !strings.Contains(err.Error(), silent.Addr().String()) || !strings.Contains(err.Error(), "200ms") || strings.Contains(err.Error(), "s3cret") {
		t.Error("a server that accepts and says nothing:", err)
	}

	w := newWire(t)
	l, err := Open(t.Context(), server(t).URLVia(w.addr())+freshPrefix()+"?tick_time=200ms&ttl=2s&dial_timeout=500ms", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.gate.Lock()
	answered := make(chan error, 1)
	go func() {
		_, err := l.List(context.Background(), "")
		answered <- err
	}()
	select {
	case err := <-answered:
		if err == nil {
			t.Error("List on a server that says nothing succeeded")
		}
	case <-time.After(bound):
		t.Error("List on a server that says nothing hangs")
	}
	w.gate.Unlock()
	l.Close()
}
