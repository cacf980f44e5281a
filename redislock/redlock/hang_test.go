package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/testkit"
)

// withStore is open, with what a Locker does not show.
func withStore(t *testing.T, url string) (*Locker, *store) {
	t.Helper()
	u, err := openurl.Parse(url, "redlock")
	testkit.Must(t, err)
	var o Options
	nodes, err := configure(u, &o)
	testkit.Must(t, err)
	d := newStore(nodes, &o)
	c, err := driver.New(d, &o.Options)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, c.Close()) })
	return &Locker{c}, d
}

// A majority hangs for a moment while many want locks. When it goes on, all get theirs: no request
// is held back to spare servers that there is no majority without.
func TestMajorityHangs(t *testing.T) {
	t.Parallel()
	g := five(t)
	l, d := withStore(t, g.url()+"&request_timeout=3s")
	for _, s := range g.servers[:3] {
		testkit.Must(t, s.Pause(t.Context()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.TryLock(ctx, "x"); err == nil {
		t.Fatal("granted by two of five servers")
	}
	testkit.Until(t, "the servers are known to hang", func() bool {
		return d.nodes[0].silent.Load() && d.nodes[1].silent.Load() && d.nodes[2].silent.Load()
	})
	const many = 3 * maxSilent
	errs := make(chan error, many)
	for i := range many {
		go func() {
			held, err := l.Lock(t.Context(), fmt.Sprint("y", i))
			if err == nil {
				err = held.Unlock(t.Context())
			}
			errs <- err
		}()
	}
	testkit.Until(t, "all have sent what they want to", func() bool {
		return d.nodes[3].running.Load() == 0 && (d.nodes[0].running.Load() >= maxSilent || len(errs) > 0)
	})
	for _, s := range g.servers[:3] {
		testkit.Must(t, s.Resume(t.Context()))
	}
	for range many {
		testkit.Should(t, <-errs)
	}
}

// A server hangs while it has the entry of a waiter. The waiter's later tries do not wait for it.
func TestWaiterBesideHangingServer(t *testing.T) {
	t.Parallel()
	g := five(t)
	first := lock(t, open(t, g.url()), "x", distlock.TTL(time.Minute), distlock.NoRenewal())
	testkit.Must(t, g.admins[4].Del(t.Context(), keyOf(defaultPrefix, "x").entry()).Err())
	addrs, via := linksTo(t, g)
	l, d := withStore(t, urlOf(addrs)+"&request_timeout=3s")
	via[4].Delay(time.Second, 0) // so that the undo comes after the pause
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := l.Lock(ctx, "x")
		done <- err
	}()
	testkit.Until(t, "the waiter has the entry", func() bool { return len(g.entries(t, "x")) == 5 })
	testkit.Must(t, g.servers[4].Pause(t.Context()))
	testkit.Until(t, "the server is known to hang", func() bool { return d.nodes[4].silent.Load() })
	testkit.Within(t, 9*time.Second, func() { // three timeouts of a request
		asked := via[0].Requests()
		testkit.Until(t, "six more tries", func() bool { return via[0].Requests() >= asked+6 })
	})
	cancel()
	<-done
	testkit.Must(t, g.servers[4].Resume(t.Context()))
	via.Heal()
	testkit.Must(t, first.Unlock(t.Context()))
	testkit.Until(t, "nothing is left", func() bool { return len(g.entries(t, "x")) == 0 })
}

// Two servers have lost the entries of many locks, and one of them hangs. The other gets all back
// at once.
func TestRepairBesideHangingServer(t *testing.T) {
	t.Parallel()
	g := five(t)
	_, d := withStore(t, g.url()+"&request_timeout=2s")
	const many = 10
	var keys []string
	batch := make([]driver.Renewal, many)
	v := newRenewVotes(d, many)
	for i := range batch {
		name := fmt.Sprint("x", i)
		c := d.Claim(driver.Request{Name: name, Owner: fmt.Sprintf("%032x", i), TTL: time.Minute, NoWait: true})
		_, err := c.Try(t.Context())
		testkit.Must(t, err)
		testkit.Until(t, "it is on all servers", func() bool { return len(g.entries(t, name)) == 5 })
		for _, a := range g.admins[3:] {
			testkit.Must(t, a.Del(t.Context(), keyOf(defaultPrefix, name).entry()).Err())
		}
		keys = append(keys, keyOf(defaultPrefix, name).entry())
		batch[i] = driver.Renewal{Claim: c, TTL: time.Minute}
		v.votes[i].yes, v.votes[i].no, v.votes[i].told = 3, 2, 5
		v.votes[i].over, v.votes[i].lacking = true, []int{3, 4}
	}
	testkit.Must(t, g.servers[3].Pause(t.Context()))
	testkit.Within(t, 10*time.Second, func() { // half of a timeout for each lock
		testkit.Must(t, g.admins[4].Del(t.Context(), keys...).Err())
		d.repairLater(nil, 5, v, batch)
		testkit.Until(t, "the other server has all entries", func() bool {
			n, err := g.admins[4].Exists(t.Context(), keys...).Result()
			return err == nil && n == many
		})
	})
	testkit.Must(t, g.servers[3].Resume(t.Context()))
	for _, r := range batch {
		testkit.Must(t, r.Claim.Release(t.Context()))
	}
}

// A lock is broken by a client that does not reach one of its servers, while two others are about to
// get its entry back. What was broken does not get its majority back.
func TestBreakBesideRepair(t *testing.T) {
	t.Parallel()
	g := five(t)
	addrs, via := linksTo(t, g)
	l, d := withStore(t, urlOf(addrs)+"&request_timeout=10s")
	held := lock(t, l, "x", distlock.TTL(time.Minute), distlock.NoRenewal())
	testkit.Until(t, "all servers have its token", func() bool { // or they still have phase 2 to come
		for _, a := range g.admins {
			text, _ := a.Get(t.Context(), keyOf(defaultPrefix, "x").entry()).Result()
			if e, _ := parseEntry(text); e.Token != held.Token() {
				return false
			}
		}
		return true
	})
	for _, i := range []int{3, 4} {
		testkit.Must(t, g.admins[i].Del(t.Context(), keyOf(defaultPrefix, "x").entry()).Err())
		via[i].HoldRequest(2) // after that of the renewal
	}
	testkit.Must(t, held.Extend(t.Context(), time.Minute))
	testkit.Until(t, "the repairs are held up", func() bool { return via[3].Fired() > 0 && via[4].Fired() > 0 })
	ways, _ := linksTo(t, g)
	ways[2] = testkit.Serve(t, nil, func(net.Conn) {}) // ends each connection at once
	operator := open(t, urlOf(ways)+"&request_timeout=10s")
	testkit.Must(t, operator.Break(t.Context(), "x", held.Token()))
	via.Release()
	testkit.Until(t, "the repairs have their answer", func() bool { return d.nodes[3].running.Load()+d.nodes[4].running.Load() == 0 })
	if err := held.Extend(t.Context(), time.Minute); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Extend of a lock that was broken: %v, want ErrLost", err)
	}
}

// Calls are cancelled while two servers lag behind the others, so their requests to these pile up.
// They share connections.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	l, via := proxied(t, five(t), "&request_timeout=10s")
	for _, p := range via[3:] {
		p.Delay(20*time.Millisecond, 0)
	}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				if held, err := l.Lock(ctx, fmt.Sprint("x", i/2)); err == nil {
					_ = held.Unlock(ctx)
				}
				cancel()
			}
		})
	}
	all.Wait()
	// None of them is closed: no request takes as long as its timeout.
	if n := via.Connections(); n > maxConns {
		t.Errorf("%d connections to one server, want %d at the most", n, maxConns)
	}
}

// A server hangs with the entries of many locks that have been released. What is left there waits
// without a goroutine for each, and is removed once the server goes on.
func TestLeftoversAreBounded(t *testing.T) { // not in parallel: it counts goroutines
	g := five(t)
	l, d := withStore(t, g.url()+"&request_timeout=1s&max_ttl=10m")
	const many = 200
	var held []distlock.Lock
	var entries []string
	for i := range many {
		held = append(held, lock(t, l, fmt.Sprint("x", i), distlock.TTL(10*time.Minute), distlock.NoRenewal()))
		entries = append(entries, keyOf(defaultPrefix, held[i].Name()).entry())
	}
	there := func() int64 { return g.admins[4].Exists(t.Context(), entries...).Val() }
	testkit.Until(t, "all are on the server", func() bool { return there() == many })
	testkit.Must(t, g.servers[4].Pause(t.Context()))
	before := runtime.NumGoroutine()
	for _, h := range held {
		testkit.Must(t, h.Unlock(t.Context()))
	}
	waiting := func() int {
		d.nodes[4].mu.Lock()
		defer d.nodes[4].mu.Unlock()
		return len(d.nodes[4].left)
	}
	testkit.Until(t, "the releases wait for the server", func() bool { return waiting() >= many-maxSideBySide })
	testkit.AtMost(t, "goroutines that wait for it", before+2*maxSilent, runtime.NumGoroutine)
	testkit.Must(t, g.servers[4].Resume(t.Context()))
	testkit.Until(t, "nothing is left", func() bool { return waiting() == 0 && there() == 0 })
}

// Two servers that hang may have the entries that make a majority. So the name counts as held, also
// when nobody waits for their answers any more.
func TestInspectBesideHangingServers(t *testing.T) {
	t.Parallel()
	g := five(t)
	l := open(t, g.url()+"&request_timeout=3s")
	held := lock(t, l, "x", distlock.TTL(time.Minute), distlock.NoRenewal())
	testkit.Until(t, "it is on all servers", func() bool { return len(g.entries(t, "x")) == 5 })
	for _, a := range g.admins[1:3] {
		testkit.Must(t, a.Del(t.Context(), keyOf(defaultPrefix, "x").entry()).Err())
	}
	for _, s := range g.servers[3:] {
		testkit.Must(t, s.Pause(t.Context()))
	}
	for range 3 {
		st, err := l.Inspect(t.Context(), "x")
		testkit.Must(t, err)
		if !st.Held || st.Token != held.Token() {
			t.Errorf("%+v, want held with token %d", st, held.Token())
		}
	}
	for _, s := range g.servers[3:] {
		testkit.Must(t, s.Resume(t.Context()))
	}
	testkit.Must(t, held.Unlock(t.Context()))
}

// The term of a lock was extended, and the servers are cut off during its release. The release goes
// on for as long as the entries last, not for the first term.
func TestReleaseAfterExtend(t *testing.T) {
	t.Parallel()
	g := five(t)
	l, via := proxied(t, g, "&request_timeout=2s")
	held := lock(t, l, "x", distlock.TTL(5*time.Second), distlock.NoRenewal())
	testkit.Until(t, "it is extended", func() bool { return held.Extend(t.Context(), time.Minute) == nil || held.Err() != nil })
	testkit.Must(t, held.Err())
	for _, p := range via[:3] {
		p.Drop(true, false)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := held.Unlock(ctx); err == nil {
		t.Error("released, said two of five servers")
	}
	<-time.After(6500 * time.Millisecond) // the first TTL, and some requests; more does no harm
	via.Heal()
	testkit.Until(t, "nothing is left", func() bool { return len(g.entries(t, "x")) == 0 })
}

// A server's restart is not forgotten when an older answer of it comes late. A server that is trusted
// stays so when a new connection has the same run start a second later, by rounding.
func TestStarts(t *testing.T) {
	now := time.Since(epoch)
	n := &node{wait: time.Minute}
	n.started("old", now-time.Minute-time.Second)
	n.started("old", now-time.Minute+time.Second)
	testkit.Should(t, n.young())
	n.started("new", now)
	n.started("old", now-time.Hour)
	n.started("new", now)
	if n.young() == nil {
		t.Error("a server that has just restarted counts")
	}
	n = &node{wait: time.Minute}
	n.started("one", now-time.Hour)
	n.heard.Store(int64(now - time.Minute))
	n.started("restarted", now-59*time.Second)
	if n.young() == nil {
		t.Error("a server that has restarted a minute ago counts")
	}
	n.trusted.Store(0)
	n.started("another", now-2*time.Hour)
	if n.young() == nil {
		t.Error("a server that has replaced another, with none of its locks, counts")
	}
}
