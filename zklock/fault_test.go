package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestCreateCutForLong: no look-up succeeds either while the call lasts. The node is
// there, unknown to all, and goes when the connection is back.
func TestCreateCutForLong(t *testing.T) {
	t.Parallel()
	w, prefix, conn := newProxy(t), freshPrefix(), connect(t)
	l := open(t, w, prefix, 30*time.Second)
	keep(t, conn, prefix, "x")
	unlock(t, lock(t, l, "x"))
	created := false
	w.on(func(op int32) fault {
		switch {
		case op == opMulti && !created:
			created = true
			return loseReply
		case created:
			return loseRequest
		}
		return pass
	})
	if held, err := l.TryLock(t.Context(), "x"); err == nil {
		t.Fatal("got the lock:", held.Token())
	}
	if n := len(claimsOf(t, conn, prefix, "x")); n != 1 {
		t.Fatalf("%d claims, want the unknown one", n)
	}
	w.on(nil)
	eventually(t, func() string {
		if n := len(claimsOf(t, conn, prefix, "x")); n != 0 {
			return fmt.Sprintf("%d claims are left", n)
		}
		return ""
	})
}

// TestLongCutLeavesNothing: the server is away for longer than the TTL of a failed
// attempt, but not for a session. What is left lives by the session, so it would
// stay for ever if it were forgotten.
func TestLongCutLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"silent", "refused"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w, prefix, conn := newProxy(t), freshPrefix(), connect(t)
			l, err := New(w.connect(), &Options{Prefix: prefix, TickTime: tick}) // it has but one session
			testkit.Must(t, err)
			t.Cleanup(func() { l.Close() })
			keep(t, conn, prefix, "x")
			unlock(t, lock(t, l, "x"))
			var struck atomic.Bool
			w.on(func(op int32) fault {
				if op != opMulti {
					return pass
				}
				struck.Store(true)
				if how == "silent" {
					w.gate.TryLock() // what was sent is still done, but no answer comes
					return pass
				}
				w.away.Store(true)
				return loseReply
			})
			// The first request of Lock about a known name makes the node. It is sent whatever time there is.
			if _, err := l.Lock(t.Context(), "x", distlock.TTL(2*time.Second)); err == nil {
				t.Fatal("got the lock")
			}
			// Else its answer would pass, where the machine is late.
			testkit.Until(t, "the request has come to the proxy", struck.Load)
			w.on(nil)
			time.Sleep(8 * time.Second) // not to wait for something: this is how long it is away
			if n := len(claimsOf(t, conn, prefix, "x")); n != 1 {
				t.Fatalf("%d claims, want the unknown one", n)
			}
			if how == "silent" {
				w.gate.Unlock()
			}
			w.away.Store(false)
			eventually(t, func() string {
				if n := len(claimsOf(t, conn, prefix, "x")); n != 0 {
					return fmt.Sprintf("%d claims are left", n)
				}
				return ""
			})
		})
	}
}

// TestForeignSessionIsNotAdopted: a node with our owner, but of another session, is a
// leftover of an expired session. It is as good as gone.
func TestForeignSessionIsNotAdopted(t *testing.T) {
	t.Parallel()
	prefix, dying, conn := freshPrefix(), connect(t), connect(t)
	c := claimOn(t, conn, prefix, "x", false)
	testkit.Must(t, c.class.session.makeNode(t.Context(), c.parent(), zk.FlagContainer))
	leftover, err := dying.Create(c.parent()+"/"+claimPrefix+c.owner()+"-", nil,
		zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	testkit.Must(t, err)
	c.session = c.class.session
	c.creation = &creation{done: make(chan struct{}), err: zk.ErrConnectionClosed}
	close(c.creation.done)
	if _, err := c.Try(t.Context()); driver.FateOf(err) != driver.Again {
		t.Fatalf("it is certain that our node was not made: got %v", err)
	}
	grant, err := attempt(t, c)
	testkit.Must(t, err)
	if there, _, err := dying.Exists(leftover); err != nil || there {
		t.Error("the leftover is still there:", err)
	}
	_, stat, err := conn.Exists(c.path)
	if err != nil || stat.EphemeralOwner != conn.SessionID() || stat.Czxid != grant.Token {
		t.Errorf("the claim is %s of session %x: %v", c.path, stat.EphemeralOwner, err)
	}
	testkit.Should(t, c.Release(t.Context()))
}

// TestExpiredWhileHeld: the session ends under a lock; the holder hears of it, and
// the next lock lives by the next session.
func TestExpiredWhileHeld(t *testing.T) {
	t.Parallel()
	w, prefix := newProxy(t), freshPrefix()
	l := open(t, w, prefix, 6*time.Second)
	held := lock(t, l, "x")
	w.expire()
	<-held.Done()
	if err := held.Err(); !errors.Is(err, distlock.ErrLost) {
		t.Error(err)
	}
	if err := held.Unlock(t.Context()); !errors.Is(err, distlock.ErrLost) {
		t.Error("Unlock:", err)
	}
	next := lock(t, l, "x")
	if next.Token() <= held.Token() {
		t.Errorf("the token fell from %d to %d", held.Token(), next.Token())
	}
	unlock(t, next)
}

// TestExpiredWhileWaiting: the session of a waiter has ended. The waiter is told soon,
// and does not hold up the queue.
func TestExpiredWhileWaiting(t *testing.T) {
	t.Parallel()
	// The library learns of it when it has reconnected. The next look would come later.
	testkit.WithinFresh(t, 3*time.Second, func() func() { return expiredWhileWaiting(t) })
}

func expiredWhileWaiting(t *testing.T) func() {
	w, prefix, conn := newProxy(t), freshPrefix(), connect(t)
	holder, doomed, third := open(t, nil, prefix, 30*time.Second), open(t, w, prefix, 30*time.Second), open(t, nil, prefix, 30*time.Second)
	held := lock(t, holder, "x")
	queued := func(n int) {
		t.Helper()
		eventually(t, func() string {
			if got := len(claimsOf(t, conn, prefix, "x")); got != n {
				return fmt.Sprintf("%d claims, want %d", got, n)
			}
			return ""
		})
	}
	failed := make(chan error, 1)
	go func() {
		_, err := doomed.Lock(context.WithoutCancel(t.Context()), "x", distlock.TTL(17*time.Second))
		failed <- err
	}()
	queued(2)
	won := make(chan *Lock, 1)
	go func() { won <- lock(t, third, "x") }()
	queued(3)
	// Both watches: what it asks before may be asked again in the next session, and finds no node.
	watches := 0
	testkit.Until(t, "the waiter watches", func() bool {
		watches += w.count()[opGetData]
		return watches >= 2
	})
	return func() {
		w.expire()
		if err := <-failed; errors.Is(err, distlock.ErrHeld) || !errors.Is(err, zk.ErrSessionExpired) {
			t.Error("the waiter got", err)
		}
		unlock(t, held)
		unlock(t, <-won)
	}
}

// TestExpiredClaim: a lock of a past session is lost, even if the servers have not come
// to its node yet.
func TestExpiredClaim(t *testing.T) {
	t.Parallel()
	w, prefix := newProxy(t), freshPrefix()
	conn := w.connect()
	c := claimOn(t, conn, prefix, "x", false)
	grants(t, c)
	w.expire()
	eventually(t, func() string {
		if id := conn.SessionID(); id == 0 || id == c.id {
			return "no new session"
		}
		return ""
	})
	c.session.confirmed = confirmation{c.id, time.Now()} // good as it was, it confirms nothing any more
	if _, err := c.Renew(t.Context(), time.Second); !errors.Is(err, distlock.ErrLost) {
		t.Error("Renew:", err)
	}
	leftover := c.path
	testkit.Must(t, c.session.makeNode(t.Context(), leftover, zk.FlagPersistent))
	if err := c.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
		t.Error("Release:", err)
	}
	if there, _, err := conn.Exists(leftover); err != nil || there {
		t.Error("the leftover is still there:", err)
	}
}

// TestNodeDeletedByHand: the node of a waiter was deleted. The waiter is told, and
// does not wait for the next poll to find out.
func TestNodeDeletedByHand(t *testing.T) {
	testkit.WithinFresh(t, 7*time.Second, func() func() { return nodeDeletedByHand(t) })
}

func nodeDeletedByHand(t *testing.T) func() {
	prefix, conn := freshPrefix(), connect(t)
	holder, waiter := open(t, nil, prefix, 90*time.Second), open(t, nil, prefix, 90*time.Second)
	held := lock(t, holder, "x")
	failed := make(chan error, 1)
	go func() {
		_, err := waiter.Lock(context.WithoutCancel(t.Context()), "x", distlock.TTL(40*time.Second)) // polls after 10 s
		failed <- err
	}()
	var line []node
	eventually(t, func() string {
		if line = claimsOf(t, conn, prefix, "x"); len(line) != 2 || monitor(t, server(t).Addr(), "zk_watch_count") != "2" {
			return "the waiter does not wait"
		}
		return ""
	})
	return func() {
		testkit.Must(t, conn.Delete(prefix+"/x/"+line[1].name, -1))
		if err := <-failed; err == nil || errors.Is(err, distlock.ErrHeld) {
			t.Error("the waiter got", err)
		}
		unlock(t, held)
	}
}

// A read that hangs holds up no renewal beyond its context: five hundred locks go
// together.
func TestRenewalHeedsItsContext(t *testing.T) {
	t.Parallel()
	w, c, byHand := renewedOnce(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan struct{})
	w.on(func(op int32) fault {
		switch op {
		case opMulti: // confirms the session; meanwhile the watch fires
			if _, err := byHand.Set(c.path, []byte("note"), -1); err != nil {
				t.Error(err)
			}
		case opGetData: // the next watch
			cancel()
			<-returned
		}
		return pass
	})
	_, err := c.Renew(ctx, time.Second)
	close(returned)
	w.on(nil)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Renew: %v", err)
	}
	testkit.Should(t, c.Release(t.Context()))
}
