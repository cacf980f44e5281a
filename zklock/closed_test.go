package zklock

import (
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/zklock/internal/wire"
)

// TestGrantedWhileClosed: a lock is granted just before the connection is closed, and
// wrapped just after. It ends as soon as the others.
func TestGrantedWhileClosed(t *testing.T) {
	prefix := freshPrefix()
	conn := connect(t)
	d, other := claimOn(t, conn, prefix, "x", false).class.store, claimOn(t, conn, prefix, "x", false).class.store
	other.target, other.ttl, other.mainTTL = new(wire.Target), other.defaultTTL(), other.defaultTTL() // notes no locks
	lockers := make([]*Locker, 2)
	for i, d := range []*store{d, other} {
		var err error
		if lockers[i], err = newLocker(d); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lockers[i].Close() })
	}
	l, late := lockers[0], lock(t, lockers[1], "late", distlock.NoRenewal())
	var held []*Lock
	for i := range 100 {
		held = append(held, lock(t, l, fmt.Sprint(i), distlock.NoRenewal()))
	}
	conn.Close()
	told := func(h *Lock) {
		t.Helper()
		<-h.Done()
		// Not that its term is over.
		if !errors.Is(h.Err(), distlock.ErrLost) || !strings.Contains(h.Err().Error(), "was closed") {
			t.Error("the holder was told", h.Err())
		}
	}
	for _, h := range held {
		told(h)
	}
	d.WrapLock(late.Handle, &claim{class: d.main, session: d.main.session, ttl: time.Second})
	told(late)
}

// TestEach: all of many are called, and a few at once.
func TestEach(t *testing.T) {
	var running, most, done atomic.Int64
	each(make([]int, 1000), func(int) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(10 * time.Microsecond)
		running.Add(-1)
		done.Add(1)
	})
	if n := done.Load(); n != 1000 {
		t.Errorf("%d of 1000 done", n)
	}
	if n := most.Load(); n > atOnce {
		t.Errorf("%d at once", n)
	}
}

// TestCloseOfSilentServer: a session is given up in less than a second. The Locker has
// that long to close its connections.
func TestCloseOfSilentServer(t *testing.T) {
	t.Parallel()
	var asking sync.WaitGroup
	defer asking.Wait()
	testkit.WithinFresh(t, 900*time.Millisecond, func() func() {
		w := newProxy(t)
		d := openDriver(t, server(t).URLVia(w.addr)+freshPrefix()+"?tick_time=200ms&ttl=2s")
		w.gate.Lock()
		t.Cleanup(w.gate.Unlock)
		conn := d.main.session.conn
		for range 40 { // more than the library queues up while it cannot send
			asking.Go(func() {
				for !d.main.session.conn.IsClosed() {
					_, _, _ = conn.Exists("/") // fails, and fails
				}
			})
		}
		time.Sleep(1500 * time.Millisecond) // not to wait for something: the server is silent for longer than it may be
		return func() {
			testkit.Should(t, d.Close())
		}
	})
}

// TestAnswerToAnotherSession: that a node is not there is no news if another session is
// told so, as its server may be behind.
func TestAnswerToAnotherSession(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	s := claimOn(t, conn, freshPrefix(), "x", false).class.session
	for session, want := range map[int64]error{conn.SessionID(): zk.ErrNoNode, conn.SessionID() - 1: zk.ErrSessionExpired} {
		w := newWatch()
		if w.arm(s, freshPrefix(), session); !errors.Is(w.err, want) {
			t.Errorf("%v, want %v", w.err, want)
		}
	}
}

// TestCloseUnderContainer: a container is being made when the session is closed. The call
// ends, and no other begins.
func TestCloseUnderContainer(t *testing.T) {
	t.Parallel()
	w, prefix := newProxy(t), freshPrefix()
	d := openDriver(t, server(t).URLVia(w.addr)+prefix+"?tick_time=200ms&ttl=10s")
	s := d.main.session
	reached, held := make(chan struct{}), make(chan struct{})
	w.before(opContainer, func() { close(reached); <-held })
	done := make(chan error, 1)
	go func() {
		_, err := s.createContainer(t.Context(), prefix)
		done <- err
	}()
	<-reached
	s.conn.Close(closeTime)
	if err := <-done; !errors.Is(err, distlock.ErrClosed) {
		t.Error("the call under way got", err)
	}
	close(held)
	if err := s.conn.CreateContainer(prefix, nil); !errors.Is(err, zk.ErrClosing) && !errors.Is(err, zk.ErrConnectionClosed) {
		t.Error("a container after that got", err)
	}
	if _, err := s.children(t.Context(), prefix); !errors.Is(err, distlock.ErrClosed) {
		t.Error("a call after that got", err)
	}
}

// TestCloseWhileMaking: the node of a name is being made when the connection is closed. The session ends on the servers all
// the same, and does not stay there until its time is over.
func TestCloseWhileMaking(t *testing.T) {
	t.Parallel()
	for try := 1; !closedWhileMaking(t); try++ {
		if try == 3 {
			t.Fatal("Close did not wait for the container")
		}
		t.Log("the connection broke, by Close, or since the machine was late: once more")
	}
}

// closedWhileMaking returns false if the connection broke before the node was made.
func closedWhileMaking(t *testing.T) bool {
	w, prefix := newProxy(t), freshPrefix()
	s := openDriver(t, server(t).URLVia(w.addr)+prefix+"?tick_time=200ms&ttl=1m&session_timeout=2m").main.session
	asked, answer := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(answer) })
	defer let() // the proxy cannot end before
	w.before(opContainer, func() { close(asked); <-answer })
	w.count()
	made, closed := make(chan error, 1), make(chan struct{})
	go func() { made <- s.conn.CreateContainer(prefix, s.store.opts.ACL) }()
	<-asked
	go func() { s.conn.Close(time.Hour); close(closed) }()
	testkit.Until(t, "Close waits for the container", func() bool {
		var stacks strings.Builder
		testkit.Must(t, pprof.Lookup("goroutine").WriteTo(&stacks, 1))
		return len(made) > 0 || strings.Contains(stacks.String(), "endContainers")
	})
	if len(made) > 0 {
		return false
	}
	let()
	err := <-made
	<-closed
	if errors.Is(err, zk.ErrConnectionClosed) {
		return false
	}
	testkit.Should(t, err)
	if n := w.count()[opClose]; n != 1 {
		t.Errorf("the session was closed %d times", n)
	}
	return true
}
