package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/patterns"
)

// Cmp lets a transaction through for as long as the lock is held, and not a moment
// longer, whatever the holder knows, and whatever is added to its token.
func testCmp(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	locker, err := New(st.client, &Options{Prefix: st.prefix, Options: distlock.Options{TokenBase: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := locker.Lock(t.Context(), "account")
	if err != nil {
		t.Fatal(err)
	}
	held := lock.(*Lock)
	write := func(balance string) bool {
		t.Helper()
		resp, err := st.admin.Txn(t.Context()).
			If(held.Cmp()).
			Then(clientv3.OpPut("balance of "+st.prefix, balance)).
			Commit()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Succeeded
	}
	if i := slices.IndexFunc(st.keys(), isKey(held.Key())); i < 0 || !write("900") {
		t.Error("the holder cannot write")
	}
	if err := distlock.Break(t.Context(), locker, "account", 0); err != nil {
		t.Fatal(err)
	}
	if err := held.Err(); err != nil {
		t.Fatal("the holder knows already:", err)
	}
	if write("800") {
		t.Error("a stale write was applied")
	}
	next, err := locker.Lock(t.Context(), "account")
	if err != nil {
		t.Fatal(err)
	}
	if write("700") {
		t.Error("a stale write was applied under the next holder")
	}
	if next.Token() <= held.Token() {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
	if err := locker.Close(); err != nil {
		t.Error(err)
	}
	st.wantKeys(0)
}

// What is kept on Close stays held, on a lease of its own or on a shared one; what is
// not kept is free.
func testKeptOnClose(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	first, err := New(st.client, &Options{Prefix: st.prefix})
	if err != nil {
		t.Fatal(err)
	}
	run := func(l *Locker) bool {
		t.Helper()
		ran, err := patterns.OncePer(t.Context(), l, "job", time.Minute, func(context.Context) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return ran
	}
	if !run(first) {
		t.Fatal("the first call has not run")
	}
	kept, err := first.Lock(t.Context(), "renewed")
	if err != nil {
		t.Fatal(err)
	}
	kept.(*Lock).KeepOnClose()
	if _, err := first.Lock(t.Context(), "free", distlock.TTL(7*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	st.wantKeys(2)

	second, err := New(st.client, &Options{Prefix: st.prefix})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if run(second) {
		t.Error("the job has run again within its period, after Close")
	}
	if _, err := second.TryLock(t.Context(), "renewed"); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("a lock that was kept on Close: %v, want ErrHeld", err)
	}
}

// A watch was cut off, and its revision was compacted in the meantime. It ends with an
// error. The waiter must look again, not fail, nor take it for a release.
func testCompaction(t *testing.T, s *servers.Server) {
	proxy, err := netfault.NewTCPProxy(s.Addr(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	st := newStore(t, s)
	holder := st.won("x", nil)
	w := newWire()
	through, err := New(w.client(t, proxy.Addr()), &Options{Prefix: st.prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = through.Close() })
	var released atomic.Bool
	done := make(chan error, 1)
	go func() {
		lock, err := through.Lock(t.Context(), "x")
		if err == nil && !released.Load() {
			err = errors.New("it has returned while the name was held")
		}
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		done <- err
	}()
	watches := 0
	watched := func() bool { // since the last time
		last := watches
		watches = w.count("WatchCreate")
		return watches > last
	}
	st.eventually("the waiter watches", watched)
	for range 3 {
		resp, err := st.admin.Put(t.Context(), "elsewhere of "+st.prefix, "x")
		if err != nil {
			t.Fatal(err)
		}
		// In two steps, so that the stream resumes from before the compaction, or
		// just finds it done: either way it must go on.
		proxy.CutAll()
		if _, err := st.admin.Compact(t.Context(), resp.Header.Revision); err != nil {
			t.Fatal(err)
		}
		st.eventually("the waiter watches again", watched)
	}
	released.Store(true)
	st.release(holder, nil)
	if err := <-done; err != nil {
		t.Error("Lock:", err)
	}
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

func testInspect(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	nested := storeAt(t, s, st.prefix+"jobs/") // its keys begin with our prefix
	nested.won("a", nil)
	if _, err := st.admin.Put(t.Context(), st.prefix+"foreign", "x"); err != nil {
		t.Fatal(err)
	}
	holders := make(map[string]*claim)
	began := time.Now()
	for _, name := range []string{"jobs/b", "jobs/a", "jobs", "käse", "jo!bs%"} {
		holders[name] = st.won(name, nil)
	}
	for range 2 {
		st.held(st.claim("jobs", nil))
	}
	got, err := st.Inspect(t.Context(), "jobs")
	want := distlock.Status{Name: "jobs", Held: true, Holder: "tester", Token: holders["jobs"].rev, Waiters: 2, Remaining: got.Remaining}
	// The server rounds down to whole seconds, and the lease is one of 32.
	if least := 31*time.Second - time.Since(began); err != nil || got != want || got.Remaining < least || got.Remaining > 32*time.Second {
		t.Errorf("Inspect: %+v, %v, want %+v", got, err, want)
	}
	const odd = "a\x00b\nc"
	st.won("odd", func(r *driver.Request) { r.Holder = odd })
	if got, err := st.Inspect(t.Context(), "odd"); err != nil || got.Holder != odd {
		t.Errorf("Inspect: the holder is %q, %v, want %q", got.Holder, err, odd)
	}
	if got, err := st.Inspect(t.Context(), "free"); err != nil || got != (distlock.Status{Name: "free"}) {
		t.Errorf("Inspect of a free name: %+v, %v", got, err)
	}
	for prefix, want := range map[string][]string{
		"": {"jo!bs%", "jobs", "jobs/a", "jobs/b", "käse", "odd"}, "jobs/": {"jobs/a", "jobs/b"}, "k\xc3": {"käse"}, "x": nil,
	} {
		list, err := st.List(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, status := range list {
			names = append(names, status.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("List(%q): %q, want %q", prefix, names, want)
		}
	}
}

// Break takes the lock away and leaves the queue as it is.
func testBreak(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	if err := breakSeen(t.Context(), st, "x"); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Break of a free name: %v, want ErrLost", err)
	}
	holder := st.won("x", nil)
	first, second := st.claim("x", nil), st.claim("x", nil)
	st.held(first)
	st.held(second)
	woken := st.waiting(first)
	if err := breakSeen(t.Context(), st, "x"); err != nil {
		t.Fatal(err)
	}
	st.woken(woken)
	st.grant(first)
	st.held(second)
	if errs := st.renew(holder, first); !errors.Is(errs[0], distlock.ErrLost) || errs[1] != nil {
		t.Errorf("the renewals: %v", errs)
	}
	st.release(holder, distlock.ErrLost)
	st.wantKeys(2)
}

// TestNothingLeft has a server of its own, so that it can count all leases.
func TestNothingLeft(t *testing.T) {
	t.Parallel()
	s := servers.ForTest(t, servers.Etcd)
	admin := newClient(t, s.Addr())
	a, err := Open(t.Context(), s.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	contended := make(chan struct{}, 16) // what b is told that it is held: by TryLock, and by Lock
	b, err := New(newClient(t, s.Addr()), &Options{Options: distlock.Options{Observer: &distlock.Observer{
		Contended: func(distlock.Contended) { contended <- struct{}{} },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	opts := [][]distlock.Option{nil, {distlock.NoRenewal()}, {distlock.TTL(3 * time.Second)}, {distlock.TTL(time.Second), distlock.NoRenewal()}}
	waiters := make(chan error, len(opts))
	cancelled, cancel := context.WithCancel(t.Context())
	for _, o := range opts {
		name := rand.Text()
		lock, err := a.Lock(t.Context(), name, o...)
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Extend(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Leases) != 0 {
		t.Errorf("%d leases are left", len(resp.Leases))
	}
}
