package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// age makes the driver believe that it has not heard of a lease for d longer.
func (l *lease) age(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = l.sent.Add(-d)
}

// heard makes the driver believe that it has last heard of a lease so long ago.
func (l *lease) heard(ago time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = time.Now().Add(-ago)
}

// requests counts what is sent while f runs.
func (st *fixture) requests(f func()) map[string]int {
	before := make(map[string]int)
	methods := []string{"Txn", "Peek", "Range", "DeleteRange", "LeaseGrant", "LeaseKeepAlive", "LeaseTimeToLive", "LeaseRevoke"}
	for _, m := range methods {
		before[m] = st.wire.count(m)
	}
	f()
	for _, m := range methods {
		if before[m] = st.wire.count(m) - before[m]; before[m] == 0 {
			delete(before, m)
		}
	}
	return before
}

func (st *fixture) wantRequests(what string, want string, f func()) {
	st.t.Helper()
	if got := fmt.Sprint(st.requests(f)); got != want {
		st.t.Errorf("%s: the requests are %s, want %s", what, got, want)
	}
}

// A free lock costs one request, a renewal two for up to 64 locks, a release one.
func testRequests(t *testing.T, s *servers.Server) {
	st := newStore(t, s).counted()
	first := st.won("first", nil)
	var second *claim
	const fresh = -time.Hour // so that it stays so however slow the machine is
	first.lease.heard(fresh)
	st.wantRequests("a lock", "map[Txn:1]", func() { second = st.won("second", nil) })
	for _, err := range st.renew(first, second) {
		testkit.Should(t, err)
	}
	first.lease.heard(3 * time.Second)
	st.wantRequests("a lock, the lease being 3 s old", "map[LeaseKeepAlive:1 Txn:1]", func() { st.won("third", nil) })
	first.lease.heard(10 * time.Second)
	st.wantRequests("a renewal", "map[LeaseKeepAlive:1 Peek:1]", func() {
		for _, err := range st.renew(first, second) {
			testkit.Should(t, err)
		}
	})
	first.lease.heard(fresh)
	st.wantRequests("an Extend within the lease", "map[Peek:1]", func() {
		if _, err := first.Renew(t.Context(), 20*time.Second); err != nil {
			t.Error(err)
		}
	})
	st.wantRequests("a release", "map[Txn:1]", func() { st.release(first, nil) })
	st.wantRequests("a refused TryLock", "map[Txn:1]", func() { st.held(st.claim("second", noWait)) })
	var fixed *claim
	st.wantRequests("a fixed term", "map[LeaseGrant:1 Txn:1]", func() { fixed = st.won("fixed", noRenewal) })
	st.wantRequests("its release", "map[LeaseRevoke:1 Txn:1]", func() { st.release(fixed, nil) })
	waiter := st.claim("second", nil)
	st.held(waiter)
	st.wantRequests("a look of a waiter", "map[Peek:1]", func() { st.held(waiter) })
}

// A thousand locks with the longest names are too much for one lease. They live by two, and are
// renewed by a keep-alive for each, although the batches come in pieces and at the same
// time. Their keys are read by many at a time.
func testManyLocks(t *testing.T, s *servers.Server) {
	const locks, pieces = 1000, 10
	st := newStore(t, s).counted()
	claims := make([]*claim, locks)
	var takers sync.WaitGroup
	for g := range pieces {
		takers.Go(func() {
			for i := g; i < locks; i += pieces {
				// Each byte is three of the key.
				claims[i] = st.claim(strings.Repeat("/", 508)+fmt.Sprintf("%04d", i), nil)
				if _, err := claims[i].Try(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	takers.Wait()
	if t.Failed() {
		return
	}
	if n := st.wire.count("LeaseGrant"); n != 2 {
		t.Errorf("%d leases, want 2", n)
	}
	for _, l := range st.leases {
		l.heard(20 * time.Second) // however long it took to take them
	}
	first := time.Now()
	sent := st.requests(func() {
		for g := range pieces {
			takers.Go(func() {
				began := time.Now()
				batch := make([]driver.Renewal, 0, locks/pieces)
				for _, c := range claims[g*locks/pieces : (g+1)*locks/pieces] {
					batch = append(batch, driver.Renewal{Claim: c, TTL: c.request.TTL})
				}
				st.Renew(t.Context(), batch)
				for _, r := range batch {
					if r.Err != nil || r.Grant.Sent.Add(r.Grant.TTL).Before(began.Add(r.TTL)) {
						t.Errorf("the renewal of %s: %+v, %v", r.Claim.(*claim).request.Name, r.Grant, r.Err)
						return
					}
				}
			})
		}
		takers.Wait()
	})
	// A piece that begins more than a second after another needs a keep-alive of its own. The
	// first read of a lease goes alone, as may that of a piece that finds none under way.
	most := 2 * (1 + int(time.Since(first)/time.Second))
	if n := sent["LeaseKeepAlive"]; len(sent) != 2 || n < 2 || n > most || sent["Peek"] > locks/maxReads+2*pieces {
		t.Errorf("the renewal: the requests are %v, want %d keep-alives and up to %d reads", sent, most, locks/maxReads+2*pieces)
	}
	// A crash of this process leaves them to their leases; here that is faster.
	for _, l := range st.leases {
		st.revokeAsAdmin(l)
	}
	st.wantKeys(0)
}

// A lease is full by the number of its keys, and by their length. A key makes room when
// it leaves.
func TestFullLease(t *testing.T) {
	for _, length := range []int{8, 2000} {
		l := newLease(&store{change: time.Hour}, kind{seconds: 10, shared: true})
		name := func(i int) string { return fmt.Sprintf("%0*d", length, i) }
		n := 0
		for l.join(name(n)) {
			n++
		}
		if want := min(maxMembers, maxBytes/length); n != want {
			t.Errorf("%d keys of %d bytes, want %d", n, length, want)
		}
		l.leave(name(n)) // was none
		if l.join(name(n)) {
			t.Error("a full lease has taken another key")
		}
		l.leave(name(0))
		if !l.join(name(n)) {
			t.Error("there is no room after one has left")
		}
	}
}

// When an administrator revokes a lease, what lives by it is lost at its next
// renewal, and a new lock gets a new lease without noticing.
func testLeaseDiesUnderHolders(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	a, b := st.won("a", nil), st.won("b", nil)
	elsewhere := st.won("c", noRenewal)
	st.revokeAsAdmin(a.lease)
	c := st.won("a", nil)
	if c.lease == a.lease || c.rev <= a.rev {
		t.Errorf("the next lock has token %d after %d, same lease: %v", c.rev, a.rev, c.lease == a.lease)
	}
	errs := st.renew(a, b, c, elsewhere)
	for i, want := range []error{distlock.ErrLost, distlock.ErrLost, nil, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("renewal %d: %v, want %v", i, errs[i], want)
		}
	}
	if _, err := a.Renew(t.Context(), time.Second); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Renew: %v, want ErrLost", err)
	}
	st.release(a, distlock.ErrLost)
	st.release(b, distlock.ErrLost)
	st.wantKeys(2)
}

// The lease may live on when a key is deleted, or is made to live by another lease,
// or by none.
func testTamperedKeys(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	intact := st.won("intact", nil)
	tampered := map[string]func(key string){
		"deleted": func(key string) {
			if _, err := st.admin.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		},
		"overwritten": func(key string) {
			if _, err := st.admin.Put(t.Context(), key, "mine"); err != nil {
				t.Fatal(err)
			}
		},
		"made anew": func(key string) {
			txn := st.admin.Txn(t.Context())
			if _, err := txn.Then(clientv3.OpDelete(key)).Commit(); err != nil {
				t.Fatal(err)
			}
			if _, err := st.admin.Put(t.Context(), key, "mine", clientv3.WithLease(intact.lease.id)); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, tamper := range tampered {
		c := st.won(name, nil)
		if errs := st.renew(intact, c); errs[0] != nil || errs[1] != nil {
			t.Fatal(errs)
		}
		tamper(c.key)
		if _, err := c.Renew(t.Context(), time.Second); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("%s: Renew: %v, want ErrLost", name, err)
		}
		intact.lease.age(20 * time.Second)
		errs := st.renew(intact, c)
		if errs[0] != nil {
			t.Errorf("%s: the other lock: %v", name, errs[0])
		}
		if name != "made anew" && !errors.Is(errs[1], distlock.ErrLost) {
			t.Errorf("%s: batch: %v, want ErrLost", name, errs[1])
		}
	}
}

// A grant without an answer is no reason to fail: another lease is granted. A fixed term revokes the first, which would stay
// for as long.
func testLostReplyOfGrant(t *testing.T, s *servers.Server) {
	st := newStore(t, s).counted()
	st.wire.next("LeaseGrant", loseReply)
	st.wantRequests("a lock, the reply to the grant being lost", "map[LeaseGrant:2 Txn:1]", func() { st.won("x", nil) })
	st.wire.next("LeaseGrant", loseReply)
	st.wantRequests("a fixed term, the same", "map[LeaseGrant:2 LeaseRevoke:1 Txn:1]", func() { st.won("y", noRenewal) })
}

// A grant outlives the call that needs it. Calls that come meanwhile wait for the same, and Close revokes the
// lease.
func testGrantOfLeavers(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	st.wire.next("LeaseGrant", hang)
	leases := make(map[*lease]bool)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		c := st.claim("x", nil)
		_, _ = c.Try(ctx)
		cancel()
		leases[c.lease] = true
		st.release(c, nil)
	}
	if len(leases) != 1 {
		t.Errorf("%d leases, want one", len(leases))
	}
	testkit.Should(t, st.Close())
	for l := range leases {
		if st.exists(l) {
			t.Error("a lease is there after Close")
		}
	}
}

// What was asked for is rounded up to what etcd can do, and a holder believes in what
// was asked for.
func testGrantedTTL(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	tests := []struct {
		ttl   time.Duration
		fixed bool
		want  time.Duration
	}{
		{time.Second, true, 2 * time.Second}, // the server's minimum
		{time.Second, false, 2 * time.Second},
		{2 * time.Second, true, 2 * time.Second},
		{2*time.Second + 1, true, 3 * time.Second},
		{2 * time.Second, false, 3 * time.Second},
		{3100 * time.Millisecond, false, 6 * time.Second},
		{30 * time.Second, true, 30 * time.Second},
		{30 * time.Second, false, 32 * time.Second},
		{distlock.MaxTTL, false, distlock.MaxTTL + 2*time.Second},
	}
	for i, tt := range tests {
		began := time.Now()
		c := st.claim(fmt.Sprint(i), func(r *driver.Request) { r.TTL, r.NoRenewal = tt.ttl, tt.fixed })
		g := st.grant(c)
		resp, err := st.admin.TimeToLive(t.Context(), c.lease.id)
		testkit.Must(t, err)
		server := time.Duration(resp.GrantedTTL) * time.Second
		if server != tt.want {
			t.Errorf("%v (fixed: %v): the server says %v, want %v", tt.ttl, tt.fixed, server, tt.want)
		}
		if end := g.Sent.Add(g.TTL); end.Before(began.Add(tt.ttl)) || end.After(time.Now().Add(tt.ttl)) {
			t.Errorf("%v: the grant ends %v after the start", tt.ttl, end.Sub(began))
		}
		if lag := server - tt.ttl; lag > expiryLag-time.Second {
			t.Errorf("%v: granted %v longer than asked for, more than the lag has room for", tt.ttl, lag)
		}
		st.release(c, nil)
	}
}

// A key lives by a lease kept alive for the TTL of its lock, and not for a longer one.
// It does not matter whether the lock was extended by more once, or what others of the
// process have asked for.
func testLeaseOfOwnTTL(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	of := func(ttl time.Duration, fixed bool) func(*driver.Request) {
		return func(r *driver.Request) { r.TTL, r.NoRenewal = ttl, fixed }
	}
	granted := func(c *claim) time.Duration {
		t.Helper()
		kvs := st.keys()
		resp, err := st.admin.TimeToLive(t.Context(), clientv3.LeaseID(kvs[slices.IndexFunc(kvs, isKey(c.key))].Lease))
		testkit.Must(t, err)
		return time.Duration(resp.GrantedTTL) * time.Second
	}
	long := st.won("long", of(20*time.Second, false))
	short := st.won("short", of(4*time.Second, false))
	for range 2 {
		if _, err := short.Renew(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if short.lease == long.lease {
			t.Error("an extended lock lives by a lease that others keep alive")
		}
		// The extension holds, and is not renewed.
		short.lease.heard(30 * time.Second)
		st.wantRequests("a renewal under an extension", "map[Peek:1]", func() {
			testkit.Should(t, st.renew(short)[0])
		})
		if got := granted(short); got != time.Minute {
			t.Errorf("the lease of the extension is one of %v", got)
		}
		// And when it is nearly over, the lock goes back to the lease of its TTL.
		short.lease.heard(57 * time.Second)
		testkit.Should(t, st.renew(short)[0])
		if got := granted(short); got > 4*time.Second+expiryLag-time.Second {
			t.Errorf("after the extension the lease is one of %v, the TTL 4s", got)
		}
	}
	fixed := st.won("fixed", of(20*time.Second, true))
	fixed.lease.heard(18 * time.Second)
	if _, err := fixed.Renew(t.Context(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if got := granted(fixed); got != 5*time.Second {
		t.Errorf("a fixed term that was extended by 5s lives by a lease of %v", got)
	}
}
