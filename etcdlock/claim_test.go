package etcdlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A put has been applied, and its reply is lost. Repeated, Try must find its own key,
// not somebody else's, and stay where it is in the queue.
func testLostReplyOfTry(t *testing.T, s *servers.Server) {
	for name, with := range map[string]func(*driver.Request){
		"wait": nil, "no-wait": noWait, "fixed": noRenewal,
		"fixed, no-wait": func(r *driver.Request) { r.NoWait, r.NoRenewal = true, true },
	} {
		st := newStore(t, s)
		c := st.claim("x", with)
		st.unheard(c, loseReply)
		rival := st.claim("x", nil)
		st.held(rival)
		g := st.grant(c)
		kvs := st.keys()
		if len(kvs) != 2 || g.Token != kvs[slices.IndexFunc(kvs, isKey(c.key))].CreateRevision {
			t.Fatalf("%s: token %d, keys %v", name, g.Token, kvs)
		}
		st.release(c, nil)
		if g2 := st.grant(rival); g2.Token <= g.Token {
			t.Errorf("%s: token %d after %d", name, g2.Token, g.Token)
		}
		st.release(rival, nil)
		st.wantKeys(0)
	}
}

// The reply of a release was lost, so the driver does not know the outcome. But the key
// is known to be gone.
func testLostReplyOfRelease(t *testing.T, s *servers.Server) {
	for _, with := range []func(*driver.Request){nil, noRenewal} {
		st := newStore(t, s)
		c := st.won("x", with)
		st.wire.next("Txn", loseReply)
		if err := c.Release(t.Context()); err == nil || errors.Is(err, distlock.ErrLost) {
			t.Fatalf("Release: %v, want the client's error", err)
		}
		st.wantKeys(0)
		st.release(c, distlock.ErrLost)
	}
}

// The lease of a fixed term goes with it. The client library repeats a revocation by
// itself, and the second answer is "not found". If only the revocation has failed, a
// repeated Release must still give the answer of the first.
func testLostReplyOfRevoke(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.won("x", noRenewal)
	st.wire.next("LeaseRevoke", loseReply)
	st.release(c, nil)

	c = st.won("x", noRenewal)
	st.wire.each("LeaseRevoke", late)
	ctx, cancel := context.WithCancel(t.Context())
	released := make(chan error, 1)
	revoked := st.wire.count("LeaseRevoke")
	go func() { released <- c.Release(ctx) }()
	st.eventually("the revocation has failed", func() bool { return st.wire.count("LeaseRevoke") > revoked })
	cancel()
	if err := <-released; err == nil {
		t.Fatal("Release has ended well, but the lease is not revoked")
	}
	st.wire.faults(nil)
	st.release(c, nil)
	if st.exists(c.lease) {
		t.Error("the lease is still there")
	}
}

func testRefusedFixedTermWritesNothing(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	st.won("x", nil)
	before := st.wire.count("Txn") + st.wire.count("LeaseGrant")
	st.held(st.claim("x", func(r *driver.Request) { r.NoWait, r.NoRenewal = true, true }))
	if after := st.wire.count("Txn") + st.wire.count("LeaseGrant"); after != before {
		t.Errorf("%d requests that write", after-before)
	}
}

// A waiter without a lease is out of the queue: it is told so, and those behind it
// do not wait for it.
func testLeaseDiesUnderWaiter(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	others := storeAt(t, s, st.prefix)
	holder := others.won("x", nil)
	c := st.claim("x", nil)
	st.held(c)
	next := others.claim("x", nil)
	others.held(next)

	theirs := others.waiting(next)
	st.revokeAsAdmin(c.lease)
	if _, err := c.Try(t.Context()); !errors.Is(err, errDequeued) || driver.FateOf(err) != driver.Answered {
		t.Fatalf("Try: %v, want %v", err, errDequeued)
	}
	others.woken(theirs)
	others.held(next)
	theirs = others.waiting(next)
	others.release(holder, nil)
	others.woken(theirs)
	others.grant(next)

	// The shared lease is replaced within the same Try.
	st.release(c, nil)
	st.grant(st.claim("y", nil))
}

// It is noticed at the next Try, whether or not the claim waits for another key.
func testDeletedWaiter(t *testing.T, s *servers.Server) {
	for _, watching := range []bool{false, true} {
		st := newStore(t, s)
		st.watches.limit = time.Hour
		st.won("x", nil)
		c := st.claim("x", nil)
		st.held(c)
		if watching {
			ctx, cancel := context.WithCancel(t.Context())
			waited := make(chan error, 1)
			go func() { waited <- c.Wait(ctx) }()
			st.eventually("there is a watch", func() bool { return st.wire.count("WatchCreate") > 0 })
			cancel()
			if err := <-waited; !errors.Is(err, context.Canceled) {
				t.Fatalf("Wait: %v, want %v", err, context.Canceled)
			}
		}
		if _, err := st.admin.Delete(t.Context(), c.key); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Try(t.Context()); !errors.Is(err, errDequeued) || driver.FateOf(err) != driver.Answered {
			t.Fatalf("Try: %v, want %v", err, errDequeued)
		}
	}
}

// A lease has gone before a key could move to it. The lock is not lost: it lives by the
// present lease.
func testMoveToDeadLease(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.won("x", nil)
	st.wire.next("Txn", late)
	if _, err := c.Renew(t.Context(), 2*time.Minute); err == nil {
		t.Fatal("Renew has moved the key without its request")
	}
	st.revokeAsAdmin(c.next)
	if _, err := c.Renew(t.Context(), 2*time.Minute); err != nil { // with yet another lease
		t.Error("Renew:", err)
	}
	st.release(c, nil)

	// If the key was on the dead lease already, it has gone with it. The server must say that, and
	// not that the lease is gone.
	c = st.won("x", nil)
	st.wire.next("Txn", loseReply)
	if _, err := c.Renew(t.Context(), 2*time.Minute); err == nil {
		t.Fatal("Renew has not failed")
	}
	st.revokeAsAdmin(c.next)
	if _, err := c.Renew(t.Context(), 2*time.Minute); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Renew: %v, want ErrLost", err)
	}
	st.release(c, distlock.ErrLost)
}

// A request has moved the key, and its outcome is unknown. What the next one is told says
// nothing of the first: the lease that the key may be on must stay.
func testMoveRefusedLater(t *testing.T, s *servers.Server) {
	for _, first := range []fault{loseReply, overQuota, garbled} {
		st := newStore(t, s)
		c := st.won("x", nil)
		for _, f := range []fault{first, denied} {
			st.wire.faults(func(method string) fault { return map[string]fault{"Txn": f, "Range": denied}[method] })
			if _, err := c.Renew(t.Context(), 2*time.Minute); err == nil || errors.Is(err, distlock.ErrLost) {
				t.Fatalf("fault %d, then %d: Renew: %v, want the client's error", first, f, err)
			}
		}
		st.wire.faults(nil)
		if g, err := c.Renew(t.Context(), 2*time.Minute); err != nil || g.TTL < 2*time.Minute {
			t.Fatalf("fault %d: Renew: %+v, %v", first, g, err)
		}
		if kvs := st.keys(); len(kvs) != 1 || clientv3.LeaseID(kvs[0].Lease) != c.lease.id {
			t.Errorf("fault %d: the keys are %v, want one on %x", first, kvs, c.lease.id)
		}
		st.release(c, nil)
	}
}

// An Extend beyond what the lease gives moves the key, whether or not the first
// request for it is answered; the token stays, and the old lease goes.
func testMoveToLongerLease(t *testing.T, s *servers.Server) {
	for name, f := range map[string]fault{"answered": pass, "reply lost": loseReply} {
		for _, with := range []func(*driver.Request){nil, noRenewal} {
			st := newStore(t, s)
			c := st.won("x", with)
			token, old := c.rev, c.lease
			st.wire.next("Txn", f)
			g, err := c.Renew(t.Context(), 2*time.Minute)
			if f != pass {
				if err == nil || errors.Is(err, distlock.ErrLost) {
					t.Fatalf("%s: Renew: %v, want the client's error", name, err)
				}
				// A renewal for the old TTL must first find out where the key is.
				if err := st.renew(c)[0]; err != nil {
					t.Fatalf("%s: the renewal after it: %v", name, err)
				}
				g, err = c.Renew(t.Context(), 2*time.Minute)
			}
			if err != nil || g.Token != token || g.TTL < 2*time.Minute {
				t.Fatalf("%s: Renew: %+v, %v", name, g, err)
			}
			if kvs := st.keys(); len(kvs) != 1 || clientv3.LeaseID(kvs[0].Lease) != c.lease.id || string(kvs[0].Value) != "tester" {
				t.Errorf("%s: the keys are %v, want one on %x", name, kvs, c.lease.id)
			}
			if !old.shared {
				st.eventually("the old lease goes", func() bool { return !st.exists(old) })
			}
			if err := st.renew(c)[0]; err != nil {
				t.Errorf("%s: the next renewal: %v", name, err)
			}
			st.release(c, nil)
			st.wantKeys(0)
		}
	}
}

// A late request must not move the key back to the lease it has left: its holder
// believes in the longer one.
func testLateMove(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.won("x", nil)
	st.wire.next("Txn", late)
	if _, err := c.Renew(t.Context(), 2*time.Minute); err == nil {
		t.Fatal("Renew has moved the key without its request")
	}
	for _, ttl := range []time.Duration{2 * time.Minute, 4 * time.Minute} {
		if _, err := c.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
	}
	st.wire.deliver()
	if kvs := st.keys(); clientv3.LeaseID(kvs[0].Lease) != c.lease.id {
		t.Errorf("the key is on the lease %x, want %x", kvs[0].Lease, c.lease.id)
	}
}

func testMoveOfLostLock(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.won("x", nil)
	testkit.Must(t, breakSeen(t.Context(), st, "x"))
	if _, err := c.Renew(t.Context(), 2*time.Minute); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Renew: %v, want ErrLost", err)
	}
	st.wantKeys(0)
	st.release(c, distlock.ErrLost)
}

// However many wait, and whatever their callers put into their contexts, the
// watches of a process share one stream.
func testOneStreamForAllWaiters(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	st.watches.limit = time.Hour // after it, there would be another stream
	var waiters sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	var claims []*claim
	for _, name := range []string{"a", "b", "c", "d"} {
		st.won(name, nil)
		c := st.claim(name, nil)
		st.held(c)
		claims = append(claims, c)
	}
	streams, watches := st.wire.count("Watch"), st.wire.count("WatchCreate")
	for _, c := range claims {
		waiters.Go(func() {
			if err := c.Wait(metadata.AppendToOutgoingContext(ctx, "request", c.key)); !errors.Is(err, context.Canceled) {
				t.Errorf("Wait: %v, want %v", err, context.Canceled)
			}
		})
	}
	st.eventually("four waiters watch a key each", func() bool { return st.wire.count("WatchCreate") == watches+4 })
	cancel()
	waiters.Wait()
	if n := st.wire.count("Watch") - streams; n != 1 {
		t.Errorf("%d streams of watches, want 1", n)
	}
	// The watches stay for the next Wait: it needs no request then.
	c := claims[0]
	wait := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Wait: %v, want %v", err, context.DeadlineExceeded)
		}
	}
	st.eventually("the watch has begun", func() bool { wait(); return c.watch.key != "" })
	watches, reads := st.wire.count("WatchCreate"), st.wire.count("Range")
	wait()
	if st.wire.count("WatchCreate") != watches || st.wire.count("Range") != reads {
		t.Error("the next Wait has sent requests")
	}
}
