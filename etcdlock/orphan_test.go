package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A put that the server gets only after the clean-up behind it leaves nothing, though a
// shared lease lives on for others, and whether the put was repeated or given up.
func testLateTry(t *testing.T, s *servers.Server) {
	for name, tt := range map[string]struct {
		with func(*driver.Request)
		end  func(st *fixture, c *claim)
	}{
		"given up":   {noWait, func(*fixture, *claim) {}},
		"repeated":   {noWait, func(st *fixture, c *claim) { st.grant(c) }},
		"fixed term": {noRenewal, func(*fixture, *claim) {}},
		"moved": {nil, func(st *fixture, c *claim) {
			st.grant(c)
			if _, err := c.Renew(st.t.Context(), time.Hour); err != nil {
				st.t.Error("Extend:", err)
			}
		}},
	} {
		st := newStore(t, s).counted() // a lease that was asked for twice could not be revoked
		other := st.won("other", nil)
		c := st.claim("x", tt.with)
		st.unheard(c, late)
		tt.end(st, c)
		l := c.lease
		st.release(c, nil)
		if st.exists(l) != l.shared {
			t.Errorf("%s: the lease is there: %v", name, !l.shared)
		}
		st.wire.deliver()
		st.wantKeys(1)
		st.grant(st.claim("x", noWait))
		if err := st.renew(other)[0]; err != nil {
			t.Errorf("%s: what the others want went with it: %v", name, err)
		}
	}
}

// Nobody calls Release after a refusal, even if a put without an answer has come before
// it.
func testLateTryThatWasRefused(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	rival := storeAt(t, s, st.prefix).won("x", nil)
	c := st.claim("x", noWait)
	st.unheard(c, late)
	st.held(c)
	st.release(rival, nil)
	st.wire.deliver()
	st.wantKeys(0)
}

// A put was not answered. The lease of its key may be gone at the release.
func testReleaseWithoutLease(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.claim("x", nil)
	st.unheard(c, loseReply)
	st.grant(c)
	st.revokeAsAdmin(c.lease)
	st.release(c, distlock.ErrLost)
	st.wantKeys(0)
}

// What is on a lease though nobody wants it ends when another lease takes the place of that
// one: holders and waiters leave it, also one that waits for the orphan.
func testOrphan(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	of := func(r *driver.Request) { r.TTL = 2 * time.Second }
	holder := st.won("other", of)
	old := holder.lease
	if _, err := st.admin.Put(t.Context(), st.queue("x")+"orphan", "", clientv3.WithLease(old.id)); err != nil {
		t.Fatal(err)
	}
	waiter := st.claim("x", of)
	st.held(waiter)
	if holder.rev == 0 || waiter.lease != old {
		t.Fatal("the waiter has another lease")
	}
	old.mu.Lock()
	old.change = time.Now()
	old.mu.Unlock()
	token := waiter.rev
	st.eventually("the waiter has the name", func() bool {
		st.lasts(holder)
		g, err := st.try(waiter)
		if err != nil && !errors.Is(err, distlock.ErrHeld) {
			t.Fatal("the waiter:", err)
		}
		return err == nil && g.Token == token
	})
	if holder.lease == old || waiter.lease != holder.lease {
		t.Error("the next lease is not that of both")
	}
	st.wantKeys(2)
	st.eventually("the lease is gone", func() bool { return !st.exists(old) })
	st.release(holder, nil)
	st.release(waiter, nil)
}

// A lease is replaced at once if the clean-up behind a put without an answer has failed.
func testOrphanAfterCleanUp(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	holder := st.won("other", nil)
	c := st.claim("x", nil)
	st.unheard(c, late)
	st.wire.next("Txn", denied)
	if err := c.Release(t.Context()); err == nil {
		t.Fatal("Release has ended well without its request")
	}
	st.wire.deliver()
	st.wantKeys(2)
	old := holder.lease
	if err := st.renew(holder)[0]; err != nil || holder.lease == old {
		t.Errorf("the renewal: %v; on the same lease: %v", err, holder.lease == old)
	}
	if old.used() {
		t.Error("a claim still wants the lease")
	}
	st.release(holder, nil)
}

// A member has stopped with a grant, and another has granted the lease. Then the put of the key had no answer, and all was
// given back. When the first goes on, and the put comes, no key is left.
func testLateGrant(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	for name, end := range map[string]func(*claim){
		"released": func(c *claim) { st.release(c, nil) },
		"refused": func(c *claim) {
			rival := storeAt(t, s, st.prefix).won("x", nil)
			st.held(c)
			st.release(rival, nil)
		},
		"moved": func(c *claim) {
			st.grant(c)
			if _, err := c.Renew(t.Context(), 2*time.Minute); err != nil {
				t.Error("Extend:", err)
			}
			st.release(c, nil)
		},
	} {
		c := st.claim("x", func(r *driver.Request) { r.NoRenewal, r.NoWait = true, name == "refused" })
		seen := make(map[string]bool)
		st.wire.faults(func(method string) fault {
			f := map[string]fault{"LeaseGrant": stopped, "Txn": late}[method]
			if seen[method] {
				f = pass
			}
			seen[method] = true
			return f
		})
		if _, err := c.Try(t.Context()); driver.FateOf(err) != driver.Unknown {
			t.Fatalf("%s: Try: %v, want an unknown fate", name, err)
		}
		end(c)
		st.wire.deliver()
		if n := len(st.keys()); n != 0 {
			t.Errorf("%s: %d keys, want none", name, n)
		}
	}
}

// A put had no answer, the next attempt was refused, and the clean-up as well: the engine is told, and calls Release.
func testRefusedWithoutCleanUp(t *testing.T, s *servers.Server) {
	for name, with := range map[string]func(*driver.Request){"shared": noWait, "fixed term": noRenewal} {
		st := newStore(t, s)
		c := st.claim("x", with)
		c.request.NoWait = true
		st.unheard(c, late)
		rival := storeAt(t, s, st.prefix).won("x", nil)
		tries := 0
		st.wire.faults(func(method string) fault {
			if method == "Txn" {
				tries++
			}
			if tries > 1 {
				return denied
			}
			return pass
		})
		if _, err := st.try(c); errors.Is(err, distlock.ErrHeld) || driver.FateOf(err) != driver.Unknown {
			t.Errorf("%s: Try: %v, want an unknown fate", name, err)
		}
		st.wire.faults(nil)
		st.release(c, nil)
		st.release(rival, nil)
		st.wire.deliver()
		st.wantKeys(0)
	}
}

// A key does not stay for as long as others keep its lease alive once its deletion was given up. The lease stays until then.
func testStuckKey(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	of := func(r *driver.Request) { r.TTL = time.Second }
	other, c := st.won("other", of), st.won("x", of)
	st.wire.next("Txn", denied)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), ended} {
		if other.lease.toBeReplaced() {
			t.Error("the lease is to be replaced after one call to Release")
		}
		if err := c.Release(ctx); err == nil {
			t.Fatal("Release has ended well without its request")
		}
	}
	st.eventually("the key is gone", func() bool {
		st.lasts(other)
		return len(st.keys()) == 1
	})
	if c = st.won("x", of); c.key == other.key {
		t.Error("two claims have one key")
	}
	st.release(c, nil)
	st.release(other, nil)
}

// A release that has filled the store up is applied, and refused all the same.
func testReleaseFillsStore(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.claim("x", nil)
	st.unheard(c, loseReply)
	st.grant(c)
	st.wire.next("Txn", overQuota)
	st.release(c, nil)
	st.wantKeys(0)
}

// A full store deletes all the same, even a key from a put without an answer. It renews what another
// lease cannot take, whether or not that lease is there, and so for waiters.
func TestReleaseOnFullStore(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	st := newStore(t, s)
	c := st.claim("x", nil)
	st.unheard(c, loseReply)
	st.grant(c)
	other := st.won("other", nil)
	moving := st.won("moving", func(r *driver.Request) { r.TTL = 20 * time.Second })
	waiter := st.claim("moving", func(r *driver.Request) { r.TTL = 20 * time.Second })
	st.held(waiter)
	moving.lease.replace()
	next := st.won("next", func(r *driver.Request) { r.TTL = 20 * time.Second })
	members, err := st.admin.MemberList(t.Context())
	testkit.Must(t, err)
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: members.Members[0].ID}
	if _, err := pb.NewMaintenanceClient(st.admin.ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	if _, err := st.admin.Put(t.Context(), "x", ""); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("Put: %v, want %v", err, rpctypes.ErrNoSpace)
	}
	st.release(c, nil)
	other.lease.replace()
	for range 2 {
		if err := errors.Join(st.renew(other, moving, next)...); err != nil || moving.lease == next.lease {
			t.Error("the renewals:", err)
		}
		st.held(waiter)
	}
	if _, err := other.Renew(t.Context(), time.Hour); driver.FateOf(err) != driver.NotNow {
		t.Errorf("Extend: %v, want %v", err, rpctypes.ErrNoSpace)
	}
	if err := st.renew(other)[0]; err != nil {
		t.Error("the renewal after it:", err)
	}
	for _, c := range []*claim{other, moving, waiter, next} {
		st.release(c, nil)
	}
	st.wantKeys(0)
}
