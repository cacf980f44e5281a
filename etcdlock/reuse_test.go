package etcdlock

import (
	"errors"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
)

func TestKeys(t *testing.T) {
	k := newKeys()
	taken := make(map[string]int)
	for i := range 70 {
		key := k.take("a!")
		if n, twice := taken[key]; twice {
			t.Fatalf("the claims %d and %d have the key %s", n, i, key)
		}
		taken[key] = i
	}
	if key := k.take("b!"); key[2:] != k.series+"0" {
		t.Errorf("the first key of another queue is %s, the series %s", key, k.series)
	}
	for key := range taken {
		k.free("a!", key)
	}
	first := k.take("a!")
	if n, again := taken[first]; !again || n != 0 {
		t.Errorf("the next key is %s, want the first one again", first)
	}
	second := k.take("a!")
	k.retire("a!", first)
	next := k.take("a!")
	k.retire("a!", second) // its series has been given up already
	k.free("a!", first)
	k.free("a!", second)
	if last := k.take("a!"); taken[next] != 0 || taken[last] != 0 || next == last {
		t.Errorf("%s and %s after the series was given up", next, last)
	}
	k.free("a!", next)
	if key := k.take("a!"); key != next {
		t.Errorf("the key is %s, want %s again", key, next)
	}
}

// However often a name is locked, the server has seen few keys: it would go through
// all of them with every request about the name.
func testKeyIsUsedAgain(t *testing.T, s *servers.Server) {
	st := newStore(t, s).counted() // the key of a put that was sent twice is used no more
	seen := make(map[string]bool)
	var token int64
	for i := range 30 {
		c := st.claim("x", func(r *driver.Request) { r.NoRenewal, r.NoWait = i%3 == 0, i%2 == 0 })
		g := st.grant(c)
		if g.Token <= token {
			t.Errorf("token %d after %d", g.Token, token)
		}
		st.held(st.claim("x", noWait)) // gives its key back without a release
		waiter := st.claim("x", nil)
		st.held(waiter)
		for _, kv := range st.keys() {
			seen[string(kv.Key)] = true
		}
		st.release(c, nil)
		token = st.grant(waiter).Token
		st.release(waiter, nil)
	}
	if len(seen) != 2 {
		t.Errorf("%d keys, want 2: %v", len(seen), seen)
	}
	if len(st.store.keys.used) != 0 {
		t.Errorf("in use: %v", st.store.keys.used)
	}
}

// A write that comes after its caller has given it up meets no later claim on the
// name: either none has the same key, or the write depends on a revision.
func testLateWritesMeetNobody(t *testing.T, s *servers.Server) {
	faults := map[string]func(st *fixture, c *claim){
		"Try": func(st *fixture, c *claim) {
			st.unheard(c, late)
			st.release(c, nil)
		},
		"Renew": func(st *fixture, c *claim) {
			st.grant(c)
			st.wire.next("Txn", late)
			if _, err := c.Renew(t.Context(), time.Hour); err == nil {
				t.Fatal("Renew has moved the key without its request")
			}
			st.release(c, nil)
		},
		"Release": func(st *fixture, c *claim) {
			st.grant(c)
			st.wire.next("Txn", late)
			if err := c.Release(t.Context()); err == nil || errors.Is(err, distlock.ErrLost) {
				t.Fatalf("Release: %v, want the client's error", err)
			}
			st.release(c, nil)
		},
	}
	for name, fault := range faults {
		st := newStore(t, s)
		fault(st, st.claim("x", nil))
		next := st.won("x", nil)
		before := st.keys()[0]
		st.wire.deliver()
		kvs := st.keys()
		i := slices.IndexFunc(kvs, isKey(next.key))
		if i < 0 || kvs[i].ModRevision != before.ModRevision || kvs[i].Lease != before.Lease {
			t.Errorf("%s: it has met the next claim: %v, was %v", name, kvs, before)
		}
		if errs := st.renew(next); errs[0] != nil {
			t.Errorf("%s: the renewal: %v", name, errs[0])
		}
		st.release(next, nil)
	}
}

// A machine is copied while it runs, so two processes have the same random numbers.
// Neither may take the key of the other for its own.
func testCopiedProcess(t *testing.T, s *servers.Server) {
	for name, with := range map[string]func(*driver.Request){"wait": nil, "no-wait": noWait, "fixed": noRenewal} {
		st := newStore(t, s)
		twin := storeAt(t, s, st.prefix)
		twin.store.keys.series = st.store.keys.series
		holder := st.won("x", nil)
		c := twin.claim("x", with)
		twin.held(c)
		if c.request.NoWait {
			c = twin.claim("x", with)
		}
		st.release(holder, nil)
		twin.grant(c)
		if c.key == holder.key {
			t.Errorf("%s: both have the key %s", name, c.key)
		}
		twin.release(c, nil)
		st.wantKeys(0)
	}
}

// Nor does a copy remove what the original holds when its own claim has come to
// nothing, whether its request has been answered or not, or has not even been sent.
func testCopiedProcessFails(t *testing.T, s *servers.Server) {
	for _, method := range []string{"Txn", "LeaseGrant"} {
		st := newStore(t, s)
		twin := storeAt(t, s, st.prefix)
		twin.store.keys.series = st.store.keys.series
		holder := st.won("x", nil)
		c := twin.claim("x", nil)
		twin.wire.next(method, late)
		if _, err := c.Try(t.Context()); err == nil {
			t.Fatal("Try has won without its request")
		}
		twin.release(c, nil)
		twin.wire.deliver()
		if errs := st.renew(holder); errs[0] != nil {
			t.Errorf("%s: the renewal: %v", method, errs[0])
		}
		st.release(holder, nil)
	}
}

// A key was deleted and made anew. It is not the hold any more, though it is the same
// key on the same lease. The release says so.
func testKeyMadeAnew(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.won("x", nil)
	if _, err := st.admin.Delete(t.Context(), c.key); err != nil {
		t.Fatal(err)
	}
	if _, err := st.admin.Put(t.Context(), c.key, "tester", clientv3.WithLease(c.lease.id)); err != nil {
		t.Fatal(err)
	}
	st.release(c, distlock.ErrLost)
}

// The copy of a machine has its leases, too: neither claim of the copy deletes what the original holds on one of them.
func testCopiedLease(t *testing.T, s *servers.Server) {
	for name, with := range map[string]func(*driver.Request){"wait": nil, "no-wait": noWait} {
		st := newStore(t, s)
		twin := storeAt(t, s, st.prefix)
		shared := st.won("other", nil).lease
		twin.store.keys.series = st.store.keys.series
		theirs := newLease(twin.store, shared.kind)
		theirs.id = shared.id
		theirs.granted.Store(true)
		theirs.sent, theirs.ttl = shared.sent, shared.ttl
		twin.store.leases = append(twin.store.leases, theirs)
		holder := st.won("x", nil)
		c := twin.claim("x", with)
		twin.held(c)
		if err := st.renew(holder)[0]; err != nil {
			t.Errorf("%s: the renewal of the original: %v", name, err)
		}
		twin.release(c, nil)
		st.release(holder, nil)
	}
}
