package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// Cmp lets a transaction through for as long as the lock is held, and not a moment
// longer, whatever the holder knows, and whatever is added to its token.
func testCmp(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	locker, err := New(st.client, &Options{Prefix: st.prefix, Options: distlock.Options{TokenBase: 1000}})
	testkit.Must(t, err)
	lock, err := locker.Lock(t.Context(), "account")
	testkit.Must(t, err)
	held := lock.(*Lock)
	write := func(balance string) bool {
		t.Helper()
		resp, err := st.admin.Txn(t.Context()).
			If(held.Cmp()).
			Then(clientv3.OpPut("balance of "+st.prefix, balance)).
			Commit()
		testkit.Must(t, err)
		return resp.Succeeded
	}
	if i := slices.IndexFunc(st.keys(), isKey(held.Key())); i < 0 || !write("900") {
		t.Error("the holder cannot write")
	}
	testkit.Must(t, distlock.Break(t.Context(), locker, "account", 0))
	if err := held.Err(); err != nil {
		t.Fatal("the holder knows already:", err)
	}
	if write("800") {
		t.Error("a stale write was applied")
	}
	next, err := locker.Lock(t.Context(), "account")
	testkit.Must(t, err)
	if write("700") {
		t.Error("a stale write was applied under the next holder")
	}
	if next.Token() <= held.Token() {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
	testkit.Should(t, locker.Close())
	st.wantKeys(0)
}

// What is kept on Close stays held, though on a shared lease; what is not kept is free.
func testKeptOnClose(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	first, err := New(st.client, &Options{Prefix: st.prefix})
	testkit.Must(t, err)
	kept, err := first.Lock(t.Context(), "renewed")
	testkit.Must(t, err)
	kept.(*Lock).KeepOnClose()
	if _, err := first.Lock(t.Context(), "free", distlock.TTL(7*time.Second)); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, first.Close())
	st.wantKeys(1)
	st.held(st.claim("renewed", nil))
}

// A watch of a past revision is served by a loop that runs every 100 ms. On a store
// that others write to, a waiter must not depend on it: its watches begin now.
func testWatchBeginsNow(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	for _, name := range []string{"x", "y", "z"} { // each with a watch of its own
		holder := st.won(name, nil)
		c := st.claim(name, nil)
		st.held(c)
		// The other writer may not have held the lock since.
		if _, err := st.admin.Put(t.Context(), "noise of "+st.prefix, "y"); err != nil {
			t.Fatal(err)
		}
		watches := st.wire.count("WatchCreate")
		woken := st.waiting(c)
		st.eventually("there is a watch", func() bool { return st.wire.count("WatchCreate") > watches })
		st.release(holder, nil)
		st.woken(woken)
		st.grant(c)
		st.release(c, nil)
	}
	if n := st.wire.count("WatchPast"); n != 0 {
		t.Errorf("%d watches begin at a revision of the past", n)
	}
}

// What is not a claim's is no name, and a prefix is taken literally.
func testInspect(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	storeAt(t, s, st.prefix+"jobs/").won("a", nil) // its keys begin with our prefix
	if _, err := st.admin.Put(t.Context(), st.prefix+"foreign", "x"); err != nil {
		t.Fatal(err)
	}
	buried := st.claim("buried", nil)
	st.unheard(buried, loseReply)
	st.release(buried, nil)
	for _, name := range []string{"jobs/b", "jobs/a", "jobs", "käse", "jo!bs%"} {
		st.won(name, nil)
	}
	for prefix, want := range map[string][]string{
		"": {"jo!bs%", "jobs", "jobs/a", "jobs/b", "käse"}, "jobs/": {"jobs/a", "jobs/b"}, "k\xc3": {"käse"}, "x": nil,
	} {
		list, err := st.List(t.Context(), prefix)
		testkit.Must(t, err)
		var names []string
		for _, status := range list {
			names = append(names, status.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("List(%q): %q, want %q", prefix, names, want)
		}
	}
}

// A long list comes in pages. A name may have keys on two of them, and the holder's on the second.
func testLongList(t *testing.T, s *servers.Server) {
	st := newStore(t, s).counted()
	last := fmt.Sprintf("%04d", listPage-1)
	var puts []clientv3.Op
	for i := range listPage - 1 {
		puts = append(puts, clientv3.OpPut(st.queue(fmt.Sprintf("%04d", i)), "many"))
	}
	for some := range slices.Chunk(puts, 100) {
		if _, err := st.admin.Txn(t.Context()).Then(some...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []string{"b", "a"} {
		if _, err := st.admin.Put(t.Context(), st.queue(last)+end, end); err != nil {
			t.Fatal(err)
		}
	}
	ranges := 0
	st.wire.faults(func(method string) fault {
		if method != "Range" {
			return pass
		}
		if ranges++; ranges%2 == 1 {
			return pass
		}
		_, err := st.admin.Put(t.Context(), st.queue(fmt.Sprint("later", ranges)), "between the pages")
		testkit.Should(t, err)
		if ranges == 2 {
			return compacted
		}
		return pass
	})
	defer st.wire.faults(nil)
	st.wantRequests("List", "map[LeaseTimeToLive:1 Range:4]", func() {
		list, err := st.List(t.Context(), "")
		if n := len(list); err != nil || n != listPage+1 || list[n-2].Name != last || list[n-2].Holder != "b" || list[n-2].Waiters != 1 || list[n-1].Name != "later2" {
			t.Errorf("List: %d names, %v, the last are %+v", n, err, list[max(n, 2)-2:])
		}
	})
}

// TestNothingLeft has a server of its own, so that it can count all leases.
func TestNothingLeft(t *testing.T) {
	t.Parallel()
	s := servers.ForTest(t, servers.Etcd)
	admin := newClient(t, s.Addr())
	a, err := Open(t.Context(), s.URL(), nil)
	testkit.Must(t, err)
	contended := make(chan struct{}, 16) // what b is told that it is held: by TryLock, and by Lock
	b, err := New(newClient(t, s.Addr()), &Options{Options: distlock.Options{Observer: &distlock.Observer{
		Contended: func(distlock.Contended) { contended <- struct{}{} },
	}}})
	testkit.Must(t, err)
	opts := [][]distlock.Option{nil, {distlock.NoRenewal()}, {distlock.TTL(20 * time.Second)}, {distlock.TTL(20 * time.Second), distlock.NoRenewal()}}
	waiters := make(chan error, len(opts))
	cancelled, cancel := context.WithCancel(t.Context())
	for _, o := range opts {
		name := rand.Text()
		lock, err := a.Lock(t.Context(), name, o...)
		testkit.Must(t, err)
		testkit.Should(t, lock.Extend(t.Context(), time.Minute))
		if _, err := b.TryLock(t.Context(), name, o...); !errors.Is(err, distlock.ErrHeld) {
			t.Errorf("TryLock: %v, want ErrHeld", err)
		}
		go func() {
			_, err := b.Lock(cancelled, name, o...)
			waiters <- err
		}()
	}
	st := &fixture{t: t, store: &store{prefix: DefaultPrefix}, admin: admin}
	st.eventually("all are queued", func() bool { return len(st.keys()) == 2*len(opts) })
	for range 2 * len(opts) {
		<-contended // a key is there before the reply that tells its owner of the holder
	}
	cancel()
	for range opts {
		if err := <-waiters; !errors.Is(err, distlock.ErrHeld) || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v, want ErrHeld and %v", err, context.Canceled)
		}
	}
	for _, l := range []*Locker{b, a} {
		if err := l.Close(); err != nil {
			t.Error("Close:", err)
		}
	}
	st.wantKeys(0)
	resp, err := admin.Leases(t.Context())
	testkit.Must(t, err)
	if len(resp.Leases) != 0 {
		t.Errorf("%d leases are left", len(resp.Leases))
	}
}
