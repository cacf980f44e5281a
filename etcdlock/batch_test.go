package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// together makes n calls, each of which sends a transaction by b, and has them all wait for each
// other. Before they go, meanwhile is called.
func (st *fixture) together(b *batcher, n int, call func(i int), meanwhile func()) {
	st.t.Helper()
	b.mu.Lock()
	b.running, b.delay = b.running+maxUnderWay, time.Hour // as if so many were under way
	b.mu.Unlock()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { call(i) })
	}
	st.eventually("all wait", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.waiting) == n
	})
	meanwhile()
	b.mu.Lock()
	b.running -= maxUnderWay - 1
	b.mu.Unlock()
	b.leave() // as if one had its answer
	calls.Wait()
}

func nothing() {}

// tried tries claims on the names 0, 1, 2 and so on together, and returns them with their errors.
func (st *fixture) tried(n int, with func(i int, r *driver.Request), meanwhile func(claims []*claim)) (claims []*claim, errs []error) {
	st.t.Helper()
	for i := range n {
		claims = append(claims, st.claim(fmt.Sprint(i), func(r *driver.Request) {
			if with != nil {
				with(i, r)
			}
		}))
	}
	errs = make([]error, n)
	st.together(st.claims, n, func(i int) { _, errs[i] = claims[i].Try(st.t.Context()) }, func() { meanwhile(claims) })
	return claims, errs
}

// What of a batch is false, refused or unknown is so for those that it is about. The requests are
// the one for all, and those that are sent alone after it.
func testBatch(t *testing.T, s *servers.Server) {
	const n, bad = 8, 3 // bad is a claim that something is wrong with
	for what, tt := range map[string]struct {
		fault     fault
		with      func(st *fixture, i int, r *driver.Request)
		meanwhile func(st *fixture, claims []*claim)
		requests  int
		want      error       // of bad
		fates     driver.Fate // of all, if it is not Answered
		nobody    bool        // wins at once
	}{
		"all free": {requests: 1},
		"one held": {
			with: func(st *fixture, i int, r *driver.Request) {
				if i == bad {
					storeAt(t, s, st.prefix).won(r.Name, nil)
				}
				r.NoWait = i%2 == 1
			},
			requests: 1, want: distlock.ErrHeld,
		},
		"a lease is gone": {
			with:      func(_ *fixture, i int, r *driver.Request) { r.NoRenewal = i == bad },
			meanwhile: func(st *fixture, claims []*claim) { st.revokeAsAdmin(claims[bad].lease) },
			requests:  1 + n, want: errLeaseOver,
		},
		"refused for good": {fault: denied, requests: 1 + n},
		"no space":         {fault: full, requests: 1, fates: driver.NotNow, nobody: true},
		"filled the store": {fault: overQuota, requests: 1},
		"reply lost":       {fault: loseReply, requests: 1, fates: driver.Unknown, nobody: true},
		"late":             {fault: late, requests: 1, fates: driver.Unknown, nobody: true},
		"garbled":          {fault: garbled, requests: 1, fates: driver.Unknown, nobody: true},
		"hangs once":       {fault: hang, requests: 2},
		"breaks":           {fault: broken, requests: 2},
		"breaks and comes": {fault: brokenLate, requests: 2},
	} {
		st := newStore(t, s)
		sent := 0
		with := tt.with
		if with == nil {
			with = func(*fixture, int, *driver.Request) {}
		}
		claims, errs := st.tried(n, func(i int, r *driver.Request) { with(st, i, r) }, func(claims []*claim) {
			if sent = st.wire.count("Txn"); tt.meanwhile != nil {
				tt.meanwhile(st, claims)
			}
			st.wire.next("Txn", tt.fault)
		})
		if sent = st.wire.count("Txn") - sent; sent != tt.requests {
			t.Errorf("%s: %d requests, want %d", what, sent, tt.requests)
		}
		for i, err := range errs {
			switch {
			case tt.nobody && (err == nil || driver.FateOf(err) != tt.fates):
				t.Errorf("%s: Try of %d: %v (%v), want an error that is %v", what, i, err, driver.FateOf(err), tt.fates)
			case i == bad && !tt.nobody && !errors.Is(err, tt.want) || i != bad && !tt.nobody && err != nil:
				t.Errorf("%s: Try of %d: %v", what, i, err)
			}
			if err != nil && !errors.Is(err, distlock.ErrHeld) {
				st.grant(claims[i]) // its own request, whatever has become of the first
			}
		}
		for i, c := range claims {
			if errs[i] = nil; !errors.Is(tt.want, distlock.ErrHeld) || i != bad {
				st.release(c, nil)
			}
		}
		st.wire.deliver()
		want := 0
		if errors.Is(tt.want, distlock.ErrHeld) {
			want = 1
			st.release(claims[bad], nil)
		}
		st.wantKeys(want)
	}
}

// Releases go together as well, and one that comes too late is so alone.
func testBatchOfReleases(t *testing.T, s *servers.Server) {
	const n, lost = 8, 3
	st := newStore(t, s)
	claims := make([]*claim, n)
	for i := range claims {
		claims[i] = st.won(fmt.Sprint(i), nil)
	}
	testkit.Must(t, breakSeen(t.Context(), st, fmt.Sprint(lost)))
	errs := make([]error, n)
	st.wantRequests("the releases", "map[Txn:1]", func() {
		st.together(st.releases, n, func(i int) { errs[i] = claims[i].Release(t.Context()) }, nothing)
	})
	for i, err := range errs {
		if errors.Is(err, distlock.ErrLost) != (i == lost) || i != lost && err != nil {
			t.Errorf("Release of %d: %v", i, err)
		}
	}
	st.wantKeys(0)

	// A second copy would take the work of the first for a loss: there is none, whatever becomes of the connection.
	for i := range claims {
		claims[i] = st.won(fmt.Sprint(i), nil)
	}
	st.wantRequests("the releases without an answer", "map[Txn:1]", func() {
		st.together(st.releases, n, func(i int) { errs[i] = claims[i].Release(t.Context()) }, func() { st.wire.next("Txn", broken) })
	})
	for i, err := range errs {
		if err == nil || driver.FateOf(err) != driver.Unknown {
			t.Errorf("Release of %d without an answer: %v (%v)", i, err, driver.FateOf(err))
		}
	}
	st.wantKeys(0)
}

// Two transactions of one name do not go together, and a caller that leaves sends nothing.
func testBatchedNames(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	claims := []*claim{st.claim("x", noWait), st.claim("y", noWait), st.claim("x", noWait), st.claim("z", noWait)}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make([]error, len(claims))
	st.won("first", nil) // the lease is there
	st.wantRequests("the claims", "map[Txn:2]", func() {
		st.together(st.claims, len(claims), func(i int) {
			c := t.Context()
			if i == 3 {
				c = ctx
			}
			_, errs[i] = claims[i].Try(c)
		}, func() {
			cancel()
			st.eventually("one has left", func() bool {
				st.claims.mu.Lock()
				defer st.claims.mu.Unlock()
				return len(st.claims.waiting) == 3
			})
		})
	})
	if errs[1] != nil || (errs[0] == nil) == (errs[2] == nil) || !errors.Is(errors.Join(errs[0], errs[2]), distlock.ErrHeld) {
		t.Errorf("the claims: %v", errs)
	}
	if !errors.Is(errs[3], context.Canceled) || driver.FateOf(errs[3]) != driver.NotSent {
		t.Errorf("one that has left: %v (%v), want that it was not sent", errs[3], driver.FateOf(errs[3]))
	}
	st.wantKeys(3)
}

// A caller with little time has the next member asked soon. Those with more of it do not go with it: a slow answer would
// come after a second copy, and what each of them has put would be unsure.
func TestBatchedByPatience(t *testing.T) {
	t.Parallel()
	b := newBatcher(new(store), false)
	b.delay = time.Hour
	b.running = 1
	for i, left := range []time.Duration{10, 9, 1, 10, 2, 1, 5} {
		b.waiting = append(b.waiting, &item{queue: fmt.Sprint(i), until: time.Now().Add(left * time.Hour)})
	}
	for _, want := range []string{"0 1 3 6", "2 4 5", ""} {
		var got []string
		for _, it := range b.take() {
			got = append(got, it.queue)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v go together, want %s", got, want)
		}
	}
	if b.running != 0 {
		t.Errorf("%d requests run", b.running)
	}
	if b.overdue != nil {
		b.overdue.Stop()
	}
}

// A fixed term that has left while it waited has a lease, which nobody releases. It ends with Close.
func testBatchedFixedTerm(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	c := st.claim("x", noRenewal)
	var l *lease
	st.together(st.claims, 1, func(int) {
		if _, err := c.Try(ctx); driver.FateOf(err) != driver.NotSent || c.lease != nil {
			t.Errorf("Try: %v (%v), want that it was not sent", err, driver.FateOf(err))
		}
	}, func() {
		l = c.lease
		cancel()
		st.eventually("it has left", func() bool {
			st.claims.mu.Lock()
			defer st.claims.mu.Unlock()
			return len(st.claims.waiting) == 0
		})
	})
	if err := st.Close(); err != nil || st.exists(l) {
		t.Errorf("Close: %v; the lease is there: %v", err, st.exists(l))
	}
}

// Requests that hang do not stop those that come after them.
func testBatchBehindHung(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	st.won("first", nil)
	for _, b := range []*batcher{st.claims, st.releases} {
		b.mu.Lock()
		b.running = maxUnderWay // and none returns
		b.mu.Unlock()
	}
	c := st.won("x", nil)
	st.release(c, nil)
}

// A server may allow fewer operations than it does by default. Then what is too much together goes alone, and
// the keys of a renewal are read in parts.
func TestFewOperations(t *testing.T) {
	t.Parallel()
	e := servers.EnsembleForTest(t, servers.Etcd, 1, servers.Setup{Extra: []string{"--max-txn-ops=8"}})
	w := newWire()
	d, err := newDriver(w.client(t, e.Addrs()[0]), "few", false)
	testkit.Must(t, err)
	st := &fixture{t: t, store: d, wire: w, admin: newClient(t, e.Addrs()[0])}
	for round := range 2 {
		claims, errs := st.tried(20, nil, func([]*claim) {})
		for i, err := range errs {
			if err != nil {
				t.Fatalf("round %d: Try of %d: %v", round, i, err)
			}
		}
		claims[0].lease.heard(20 * time.Second)
		for i, err := range st.renew(claims...) {
			if err != nil {
				t.Fatalf("round %d: the renewal of %d: %v", round, i, err)
			}
		}
		st.together(st.releases, len(claims), func(i int) { errs[i] = claims[i].Release(t.Context()) }, nothing)
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: the releases: %v", round, err)
		}
	}
	st.wantKeys(0)
	testkit.Should(t, d.Close())
}

// BenchmarkBatcher compares 64 goroutines, each with a name of its own, with the batcher and without it, in turns.
func BenchmarkBatcher(b *testing.B) {
	const goroutines, locks = 64, 25
	s := servers.ForTest(b, servers.Etcd)
	var took [2]time.Duration
	var stores [2]*fixture
	for i := range stores {
		stores[i] = newStore(b, s)
		stores[i].release(stores[i].won("first", nil), nil)
	}
	stores[1].claims.running, stores[1].releases.running = math.MinInt, math.MinInt // none ever waits
	for b.Loop() {
		for i, st := range stores {
			began := time.Now()
			var users sync.WaitGroup
			for name := range goroutines {
				users.Go(func() {
					for range locks {
						c := st.claim(fmt.Sprint(name), nil)
						_, err := c.Try(b.Context())
						testkit.Should(b, errors.Join(err, c.Release(b.Context())))
					}
				})
			}
			users.Wait()
			took[i] += time.Since(began)
		}
	}
	for i, unit := range []string{"batched/s", "alone/s"} {
		b.ReportMetric(float64(b.N*goroutines*locks)/took[i].Seconds(), unit)
	}
}
