package redlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/testkit"
)

func open(t *testing.T, url string) *Locker {
	t.Helper()
	l, err := Open(t.Context(), url, nil)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Should(t, l.Close()) })
	return l
}

func lock(t *testing.T, l distlock.Locker, name string, opts ...distlock.Option) distlock.Lock {
	t.Helper()
	held, err := l.Lock(t.Context(), name, opts...)
	testkit.Must(t, err)
	return held
}

// entries returns on how many servers there is an entry of a name, and the nodes.
func (g *group) entries(t *testing.T, name string) (at []int) {
	t.Helper()
	for i, a := range g.admins {
		n, err := a.Exists(t.Context(), keyOf(defaultPrefix, name).entry()).Result()
		if err == nil && n == 1 {
			at = append(at, i)
		}
	}
	return at
}

// proxied is a client of g, with a link to each server.
func proxied(t *testing.T, g *group, params string) (*Locker, pin.Links) {
	t.Helper()
	addrs, l := linksTo(t, g)
	return open(t, urlOf(addrs)+params), l
}

func linksTo(t *testing.T, g *group) (addrs []string, l pin.Links) {
	t.Helper()
	for i, s := range g.servers {
		p, err := netfault.NewTCPProxy(s.Addr(), uint64(i+1))
		testkit.Must(t, err)
		t.Cleanup(func() { _ = p.Close() })
		l, addrs = append(l, p), append(addrs, p.Addr())
	}
	return addrs, l
}

// Two servers are down: locks go on. A lock that was taken meanwhile gets its entries on them when
// they are back, or it would lose its majority with the next fault.
func TestMinorityDown(t *testing.T) {
	t.Parallel()
	const ttl = 20 * time.Second
	g := five(t)
	l := open(t, g.url())
	for _, s := range g.servers[:2] {
		testkit.Must(t, s.Kill(t.Context()))
	}
	held := lock(t, l, "x", distlock.TTL(ttl))
	extended := func() bool {
		err := held.Extend(t.Context(), ttl)
		if errors.Is(err, distlock.ErrLost) {
			t.Fatal(err)
		}
		return err == nil
	}
	if _, err := open(t, g.url()).TryLock(t.Context(), "x"); !errors.Is(err, distlock.ErrHeld) {
		t.Fatalf("%v, want ErrHeld", err)
	}
	for _, s := range g.servers[:2] {
		testkit.Must(t, s.Restart(t.Context()))
	}
	testkit.Until(t, "the restarted servers have the entry", func() bool { return len(g.entries(t, "x")) == 5 }) // by a renewal
	for _, s := range g.servers[3:] {
		testkit.Must(t, s.Kill(t.Context()))
	}
	testkit.Until(t, "the lock is extended", extended)
	testkit.Must(t, held.Unlock(t.Context()))
	testkit.Must(t, lock(t, l, "x").Unlock(t.Context()))
}

// A claim that has begun on a server does not keep the holder from getting its entry back there: waiters try all the time.
// That claim is then not granted there.
func TestRepairBesideClaims(t *testing.T) {
	t.Parallel()
	g := five(t)
	held := lock(t, open(t, g.url()), "x", distlock.TTL(20*time.Second))
	k := keyOf(defaultPrefix, "x")
	testkit.Must(t, g.admins[4].Set(t.Context(), k.entry(), strings.Repeat("ab", 16)+" 1 0 1 other", time.Minute).Err())
	testkit.Must(t, held.Extend(t.Context(), 20*time.Second))
	owner := func() string {
		entry, err := g.admins[4].Get(t.Context(), k.entry()).Result()
		testkit.Must(t, err)
		return strings.Fields(entry)[0]
	}
	testkit.Until(t, "the holder's entry is back", func() bool { return owner() != strings.Repeat("ab", 16) })
	answer, err := g.admins[4].Eval(t.Context(), confirmLua, []string{k.entry(), k.token(), "tombstone"},
		strings.Repeat("ab", 16), 1, held.Token()+1, 1, 60_000, "other", 60_000, 0).Result()
	if err != nil || answer != int64(0) {
		t.Errorf("the claim was confirmed: %v, %v", answer, err)
	}
	testkit.Must(t, held.Unlock(t.Context()))
}

// Without a majority, the error says so, and never that another has the name.
func TestMajorityDown(t *testing.T) {
	t.Parallel()
	g := five(t)
	l := open(t, g.url())
	held := lock(t, l, "x", distlock.TTL(20*time.Second))
	for _, s := range g.servers[:3] {
		testkit.Must(t, s.Kill(t.Context()))
	}
	for _, name := range []string{"x", "y"} {
		if _, err := l.TryLock(t.Context(), name); err == nil || errors.Is(err, distlock.ErrHeld) || !strings.Contains(err.Error(), "no majority") {
			t.Errorf("%s: %v, want no majority", name, err)
		}
	}
	if err := held.Extend(t.Context(), 20*time.Second); err == nil || errors.Is(err, distlock.ErrLost) {
		t.Errorf("%v: an Extend without a majority is neither a success nor a loss", err)
	}
	if _, err := Open(t.Context(), g.url(), nil); err == nil || !strings.Contains(err.Error(), "2 of 5 servers answer") {
		t.Errorf("Open: %v", err)
	}
	for _, s := range g.servers[:3] {
		testkit.Must(t, s.Restart(t.Context()))
	}
	back := time.Now()
	testkit.Until(t, "the lock is extended", func() bool { return held.Extend(t.Context(), 20*time.Second) == nil || held.Err() != nil })
	if held.Err() != nil && held.Deadline().Before(back) {
		t.Fatal("inconclusive: the machine was late: the lease was over when the servers were back")
	}
	testkit.Must(t, held.Unlock(t.Context()))
}

// Two servers hang: after the first requests to them nothing waits for them, and what they execute
// when they go on leaves nothing behind.
func TestMinorityHangs(t *testing.T) {
	t.Parallel()
	g := five(t)
	l, d := withStore(t, g.url()+"&request_timeout=2s")
	use := func() {
		held := lock(t, l, "x")
		testkit.Must(t, held.Extend(t.Context(), 20*time.Second))
		testkit.Must(t, held.Unlock(t.Context()))
	}
	use()
	for _, s := range g.servers[1:3] {
		testkit.Must(t, s.Pause(t.Context()))
	}
	use()
	testkit.Until(t, "the servers are known to hang", func() bool { return d.nodes[1].silent.Load() && d.nodes[2].silent.Load() })
	for range 10 {
		testkit.Within(t, time.Second, use) // half of a request's timeout
	}
	for _, s := range g.servers[1:3] {
		testkit.Must(t, s.Resume(t.Context()))
	}
	for _, a := range g.admins { // its commands come after those that wait in the sockets
		testkit.Until(t, "the server answers", func() bool { return a.Ping(t.Context()).Err() == nil })
	}
	testkit.Until(t, "nothing is left", func() bool { return len(g.entries(t, "x")) == 0 })
	testkit.Must(t, lock(t, l, "x").Unlock(t.Context()))
}

// Whichever minority hangs, tokens rise: what one majority has granted, each other knows.
func TestTokensRiseOverAnyMajority(t *testing.T) {
	t.Parallel()
	g := five(t)
	random := rand.New(rand.NewPCG(1, 2))
	clients := []*Locker{open(t, g.url()), open(t, g.url())}
	// Clocks that differ, as far as tokens go: one server has seen one of tomorrow.
	tomorrow := time.Now().Add(24 * time.Hour).UnixMicro()
	testkit.Must(t, g.admins[4].Set(t.Context(), keyOf(defaultPrefix, "x").token(), tomorrow, 0).Err())
	var last int64
	for round := range 60 {
		down := random.Perm(5)[:2]
		if round == 0 {
			down = []int{0, 1} // the majority has the one of tomorrow, and so all that follow must
		}
		for _, i := range down {
			testkit.Must(t, g.servers[i].Pause(t.Context()))
		}
		var held distlock.Lock
		testkit.Until(t, "a majority answers", func() bool { // a server that has just gone on may still count as silent
			var err error
			held, err = clients[round%2].Lock(t.Context(), "x")
			return err == nil
		})
		if held.Token() <= last || held.Token() <= tomorrow {
			t.Fatalf("round %d, without %v: token %d after %d", round, down, held.Token(), last)
		}
		last = held.Token()
		testkit.Must(t, held.Unlock(t.Context()))
		for _, i := range down {
			testkit.Must(t, g.servers[i].Resume(t.Context()))
		}
	}
}

// A server that has forgotten its locks grants none until those have ended: two holders would be
// possible with the votes of three servers, one of them empty.
func TestRestartedEmpty(t *testing.T) {
	t.Parallel()
	g := fiveForgetful(t)
	url := "redlock://" + strings.Join(g.addrs(), ",") + "?max_ttl=2s"
	a, b := open(t, url), open(t, url)
	for _, s := range g.servers[3:] {
		testkit.Must(t, s.Pause(t.Context()))
	}
	var held distlock.Lock
	var err error
	testkit.Until(t, "the servers are trusted", func() bool {
		held, err = a.TryLock(t.Context(), "x", distlock.TTL(2*time.Second), distlock.NoRenewal())
		return err == nil
	})
	testkit.Must(t, g.servers[0].Restart(t.Context())) // one of the three, empty
	for _, s := range g.servers[3:] {
		testkit.Must(t, s.Resume(t.Context()))
	}
	testkit.Until(t, "another has the name", func() bool {
		next, err := b.TryLock(t.Context(), "x", distlock.TTL(2*time.Second), distlock.NoRenewal())
		if err != nil {
			return false
		}
		if held.Err() == nil {
			t.Fatalf("two holders: %d believes until %v, %d is granted", held.Token(), held.Deadline(), next.Token())
		}
		if next.Token() <= held.Token() {
			t.Fatalf("token %d after %d", next.Token(), held.Token())
		}
		return true
	})
}

// Servers that have just started grant nothing, and the error says why and until when.
func TestJustStarted(t *testing.T) {
	t.Parallel()
	l := open(t, "redlock://"+strings.Join(five(t).addrs(), ",")+"?max_ttl=10m")
	_, err := l.TryLock(t.Context(), "x")
	if err == nil || errors.Is(err, distlock.ErrHeld) || !strings.Contains(err.Error(), "takes part again in") {
		t.Errorf("%v", err)
	}
}

// The replies of two servers are lost: what they have done is undone with the rest.
func TestRepliesLost(t *testing.T) {
	t.Parallel()
	g := five(t)
	l, via := proxied(t, g, "&request_timeout=6s") // time for the three to answer, also on a busy machine
	for _, p := range via[3:] {
		p.Drop(false, true)
	}
	for range 5 {
		testkit.Must(t, lock(t, l, "x", distlock.TTL(30*time.Second)).Unlock(t.Context()))
	}
	via.Heal() // before that, no new connection gets a reply, so none can release
	testkit.Until(t, "nothing is left", func() bool { return len(g.entries(t, "x")) == 0 })
	// Of three: no majority can be told of, so nothing is granted, and nothing may be left.
	for _, p := range via[2:] {
		p.Drop(false, true)
	}
	if _, err := l.TryLock(t.Context(), "x", distlock.TTL(30*time.Second)); err == nil || errors.Is(err, distlock.ErrHeld) {
		t.Fatalf("granted without a majority: %v", err)
	}
	via.Heal()
	testkit.Until(t, "nothing is left", func() bool { return len(g.entries(t, "x")) == 0 })
}

// Each request of a lock's life is held up on its way to one server, and arrives when the lock
// was released and has a successor. Nothing of the first holder may come back, and the successor
// keeps its lock.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	g := five(t)
	for k, what := range []string{"take", "confirm", "renew"} {
		t.Run(what, func(t *testing.T) {
			first, via := proxied(t, g, "&request_timeout=10s")
			second := open(t, g.url())
			via[4].HoldRequest(k + 1)
			held := lock(t, first, what, distlock.TTL(30*time.Second))
			if what == "renew" {
				testkit.Must(t, held.Extend(t.Context(), 30*time.Second))
			}
			testkit.Until(t, "the request is held", func() bool { return via[4].Fired() > 0 })
			testkit.Must(t, held.Unlock(t.Context()))
			testkit.Until(t, "it is released everywhere", func() bool { return len(g.entries(t, what)) == 0 })
			next := lock(t, second, what, distlock.TTL(30*time.Second))
			via[4].Release()
			testkit.Must(t, first.Close()) // when the late request has its answer
			testkit.Must(t, next.Extend(t.Context(), 30*time.Second))
			testkit.Must(t, next.Unlock(t.Context()))
			testkit.Until(t, "nothing is left", func() bool { return len(g.entries(t, what)) == 0 })
		})
	}
}

// A process is stopped between the phases, for longer than its lease. Its phase 2 comes when
// another has the name: it gets nothing, and takes nothing away.
func TestStoppedBetweenPhases(t *testing.T) {
	t.Parallel()
	g := five(t)
	first, via := proxied(t, g, "&request_timeout=9s")
	second := open(t, g.url())
	via.HoldRequest(2)
	done := make(chan error, 1)
	go func() {
		_, err := first.TryLock(t.Context(), "x", distlock.TTL(2*time.Second))
		done <- err
	}()
	testkit.Until(t, "phase 2 is held up at all servers", func() bool {
		return !slices.ContainsFunc(via, func(p netfault.Link) bool { return p.Fired() == 0 }) || len(done) > 0
	})
	next := lock(t, second, "x", distlock.TTL(20*time.Second))
	via.Release()
	if err := <-done; err == nil {
		t.Fatal("two holders")
	}
	testkit.Must(t, next.Extend(t.Context(), 20*time.Second))
	testkit.Must(t, next.Unlock(t.Context()))
	if last := lock(t, first, "x"); last.Token() <= next.Token() {
		t.Errorf("token %d after %d", last.Token(), next.Token())
	}
}

// What a server answers instead of a script's result counts as no answer of that server.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	g := five(t)
	l := open(t, g.url())
	held := lock(t, l, "x", distlock.TTL(20*time.Second))
	passing := func(err error) bool { // the other two may not have answered when three have refused
		fate := driver.FateOf(err)
		return fate == driver.NotNow || fate == driver.Unknown
	}
	for _, a := range g.admins {
		testkit.Must(t, a.ScriptFlush(t.Context()).Err()) // NOSCRIPT
	}
	testkit.Must(t, held.Extend(t.Context(), 20*time.Second))
	for i, a := range g.admins[:3] {
		testkit.Must(t, a.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err()) // NOREPLICAS, as READONLY
		_, err := l.TryLock(t.Context(), fmt.Sprint("y", i))
		switch {
		case i < 2 && err != nil:
			t.Errorf("%d of 5 servers refuse writes: %v", i+1, err)
		case i == 2 && (err == nil || errors.Is(err, distlock.ErrHeld) || !strings.Contains(err.Error(), "NOREPLICAS") || !passing(err)):
			t.Errorf("3 of 5 servers refuse writes: %v (%v)", err, driver.FateOf(err))
		}
	}
	testkit.Until(t, "what was refused by a majority is left nowhere", func() bool { return len(g.entries(t, "y2")) == 0 })
	if err := held.Extend(t.Context(), 20*time.Second); err == nil || errors.Is(err, distlock.ErrLost) {
		t.Errorf("Extend while 3 of 5 servers refuse writes: %v", err)
	}
	for _, a := range g.admins[:3] {
		testkit.Must(t, a.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	}
	testkit.Must(t, held.Extend(t.Context(), 20*time.Second))
	testkit.Must(t, held.Unlock(t.Context()))
}

// The servers that have failed tell together what a call without a majority may have done.
func TestFateWithoutAMajority(t *testing.T) {
	t.Parallel()
	const unknown, notSent, again, notNow, answered = driver.Unknown, driver.NotSent, driver.Again, driver.NotNow, driver.Answered
	for _, tc := range []struct {
		failed []driver.Fate
		want   driver.Fate
	}{
		{[]driver.Fate{again, again}, again},
		{[]driver.Fate{answered, again}, again},
		{[]driver.Fate{notNow, again, notSent}, again},
		{[]driver.Fate{again, unknown, answered}, unknown},
		{[]driver.Fate{notSent, notNow, answered}, notNow},
		{[]driver.Fate{answered, notSent}, notSent},
		{[]driver.Fate{answered, answered}, answered},
	} {
		var b ballot
		for _, fate := range tc.failed {
			b.add(false, false, fmt.Errorf("a server: %w", &driver.Fault{Fate: fate, Err: errOver}))
		}
		if err := b.fault("no majority of %d", 3); driver.FateOf(err) != tc.want || !strings.HasPrefix(err.Error(), "no majority of 3: a server: ") {
			t.Errorf("%v: %v (%v), want %v", tc.failed, err, driver.FateOf(err), tc.want)
		}
	}
}
