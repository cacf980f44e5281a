package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A request that hangs with one member is sent to the next one while there is time,
// whatever it is.
func testHungRequests(t *testing.T, s *servers.Server) {
	answered := func(what string, f func(context.Context) error) {
		t.Helper()
		// The deadline is what a request has its part of: without one, it is ten seconds.
		ctx, cancel := context.WithTimeout(t.Context(), 2*maxRequest)
		defer cancel()
		if err := f(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, method := range []string{"LeaseGrant", "LeaseKeepAlive", "LeaseTimeToLive", "Range", "Txn", "Peek"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			st := newStore(t, s)
			c := st.claim("x", nil)
			try := func(ctx context.Context) error { _, err := c.Try(ctx); return err }
			st.wire.next(method, hang)
			answered("Try", try)
			answered("another Try", try)
			c.lease.age(20 * time.Second)
			st.wire.next(method, hang)
			answered("the renewal", func(ctx context.Context) error {
				batch := []driver.Renewal{{Claim: c, TTL: c.request.TTL}}
				st.Renew(ctx, batch)
				return batch[0].Err
			})
			st.wire.next(method, hang)
			answered("Inspect", func(ctx context.Context) error { _, err := st.Inspect(ctx, "x"); return err })
			st.wire.faults(nil)
			st.release(c, nil)
			st.wantKeys(0)
		})
	}
}

// A server that says itself that the time of a put is over is not the last one asked.
func testTimedOutTry(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.claim("x", noWait)
	st.wire.next("Txn", timedOut)
	st.grant(c)
	st.release(c, nil)
}

// A member is killed while it has a put: another one tells what has become of that, and the lock is taken by the same call.
// The put of the first must not come later, nor be taken for another's. If the next breaks the connection, too, it ends.
func testBrokenTry(t *testing.T, s *servers.Server) {
	for _, f := range []fault{broken, brokenLate} {
		for what, with := range map[string]func(*driver.Request){"wait": nil, "no-wait": noWait, "fixed": noRenewal} {
			st := newStore(t, s)
			st.won("other", with) // the lease is there
			before := st.wire.count("Txn")
			c := st.claim("x", with)
			st.wire.next("Txn", f)
			g := st.grant(c)
			if n := st.wire.count("Txn") - before; n > 3 {
				t.Errorf("%s: %d requests, want the put, another and a read at the most", what, n)
			}
			st.held(storeAt(t, s, st.prefix).claim("x", noWait))
			if kvs := st.keys(); len(kvs) != 2 || g.Token != kvs[slices.IndexFunc(kvs, isKey(c.key))].CreateRevision {
				t.Errorf("%s: token %d, keys %v", what, g.Token, kvs)
			}
			st.release(c, nil)
			st.wire.deliver()
			st.wantKeys(1)
		}
	}
	st := newStore(t, s)
	c := st.claim("x", nil)
	before := st.wire.count("Txn")
	st.wire.each("Txn", brokenLate)
	if _, err := c.Try(t.Context()); err == nil || driver.FateOf(err) != driver.Unknown {
		t.Errorf("Try: %v (%v), want one that is unknown", err, driver.FateOf(err))
	}
	if n := st.wire.count("Txn") - before; n != 2 {
		t.Errorf("%d requests, want 2: whatever answers so may do it without end", n)
	}
	st.wire.faults(nil)
	st.release(c, nil)
	st.wire.deliver()
	st.wantKeys(0)
}

// A member is killed while it has the read of a renewal, or what moves a key.
func testBrokenRenewal(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.won("x", nil)
	st.wire.next("Peek", broken)
	if err := st.renew(c)[0]; err != nil {
		t.Error("the renewal:", err)
	}
	for i, f := range []fault{broken, brokenLate} {
		ttl := time.Duration(i+2) * time.Minute
		st.wire.next("Txn", f)
		if g, err := c.Renew(t.Context(), ttl); err != nil || g.TTL < ttl {
			t.Errorf("fault %d: Extend: %+v, %v", f, g, err)
		}
		st.wire.deliver()
	}
	if kvs := st.keys(); len(kvs) != 1 || clientv3.LeaseID(kvs[0].Lease) != c.lease.id {
		t.Errorf("the keys are %v, want one on %x", kvs, c.lease.id)
	}
	st.release(c, nil)
	st.wantKeys(0)
}

// A release that hangs is repeated while its caller waits, and the caller learns that
// the name is free, whether or not the first one was applied.
func testHungRelease(t *testing.T, s *servers.Server) {
	for _, f := range []fault{hang, silent} {
		for _, method := range []string{"Txn", "LeaseRevoke"} {
			st := newStore(t, s)
			locker, err := New(st.client, &Options{Prefix: st.prefix})
			testkit.Must(t, err)
			lock, err := locker.Lock(t.Context(), "x", distlock.NoRenewal())
			testkit.Must(t, err)
			st.wire.next(method, f)
			if err := lock.Unlock(t.Context()); err != nil {
				t.Errorf("%s: Unlock: %v", method, err)
			}
			st.wantKeys(0)
			testkit.Should(t, locker.Close())
		}
	}
}

// The part of its time that a release gives to one member is not the caller's context.
func testUnansweredRelease(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.won("x", nil)
	st.wire.next("Txn", hang)
	var late *driver.NoAnswer
	if err := c.Release(t.Context()); !errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Release: %v, want that there was no answer", err)
	}
	st.release(c, nil)
}

// Close is over in time if the servers do not answer.
func testHungClose(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	testkit.WithinFresh(t, closeLimit+time.Second, func() func() {
		st.wire.faults(nil)
		d, err := newDriver(st.client, st.prefix, false)
		testkit.Must(t, err)
		hanging := &fixture{t: t, store: d}
		hanging.release(hanging.won("x", nil), nil)
		hanging.release(hanging.won("x", noRenewal), nil)
		st.wire.faults(func(string) fault { return hang })
		return func() {
			if err := d.Close(); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close: %v, want that there was no answer", err)
			}
		}
	})
	st.wire.faults(nil)
}

// A renewal does not wait for the keep-alive of a caller that has much more time.
func testHungKeepAliveOfAnother(t *testing.T, s *servers.Server) {
	for _, method := range []string{"LeaseKeepAlive"} {
		tried := make(chan error, 1)
		testkit.WithinFresh(t, 6*time.Second, func() func() {
			st := newStore(t, s)
			c := st.won("x", nil)
			c.lease.age(20 * time.Second)
			n := st.wire.count(method)
			st.wire.next(method, hang)
			go func() {
				_, err := st.claim("free", nil).Try(t.Context())
				tried <- err
			}()
			st.eventually("the request hangs", func() bool { return st.wire.count(method) > n })
			return func() {
				if err := st.renew(c)[0]; err != nil {
					t.Errorf("%s: the renewal: %v", method, err)
				}
				if err := <-tried; err != nil {
					t.Errorf("%s: Try: %v", method, err)
				}
			}
		})
	}
}

// The reads of a renewal do not wait for each other, nor for those of waiters: one that hangs with a
// member takes a part of the time that there is, and so would the next.
func testReadsOfRenewal(t *testing.T, s *servers.Server) {
	testkit.WithinFresh(t, 5*time.Second, func() func() {
		st := newStore(t, s).counted()
		batch := make([]driver.Renewal, 2*maxReads+1)
		for i := range batch {
			c := st.won(fmt.Sprint(i), nil)
			batch[i] = driver.Renewal{Claim: c, TTL: c.request.TTL}
		}
		st.wire.each("Peek", hang)
		ctx, cancel := context.WithCancel(t.Context())
		var renewal sync.WaitGroup
		return func() {
			renewal.Go(func() { st.Renew(ctx, batch) })
			st.eventually("all reads hang", func() bool { return st.wire.count("Peek") == 3 })
			cancel()
			renewal.Wait()
		}
	})
}

// A claim that cannot be moved to another lease keeps no other from being renewed,
// and the answers are there when the context ends.
func testHungMove(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	moved, stays := st.won("moved", nil), st.won("stays", nil)
	st.wire.each("Txn", hang)
	ctx, cancel := context.WithTimeout(t.Context(), maxRequest)
	defer cancel()
	batch := []driver.Renewal{{Claim: moved, TTL: time.Hour}, {Claim: stays, TTL: stays.request.TTL}}
	st.Renew(ctx, batch)
	if batch[0].Err == nil || errors.Is(batch[0].Err, distlock.ErrLost) || batch[1].Err != nil {
		t.Errorf("the renewals: %v, %v, want that the first was not answered", batch[0].Err, batch[1].Err)
	}
	st.wire.faults(nil)
	st.release(moved, nil)
	st.release(stays, nil)
}

// What is for one claim alone ends with its call: else claims on a store that hangs would leave
// as many goroutines as there were calls in ten seconds.
func testNothingGoesOn(t *testing.T, s *servers.Server) {
	testkit.WithinFresh(t, time.Second, func() func() {
		st := newStore(t, s)
		held := st.won("held", noRenewal)
		st.wire.faults(func(string) fault { return hang })
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() { _, _ = st.claim("x", noRenewal).Try(ctx) })
		calls.Go(func() { st.Renew(ctx, []driver.Renewal{{Claim: held, TTL: held.request.TTL}}) })
		st.eventually("three requests hang", func() bool {
			return st.wire.count("LeaseGrant") >= 2 && st.wire.count("LeaseKeepAlive") > 0 && st.wire.count("Peek") > 0
		})
		cancel()
		calls.Wait()
		return func() {
			st.background.Wait()
			st.wire.faults(nil)
		}
	})
}

// While a cluster elects, a member may say that it is not the one to ask.
func testDeposed(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	c := st.won("x", nil)
	c.lease.age(20 * time.Second)
	st.wire.next("LeaseKeepAlive", deposed)
	if err := st.renew(c)[0]; err != nil {
		t.Errorf("the renewal: %v", err)
	}
}

// The write that fills the store up is applied, and answered as if it were not: a Try and an Extend look,
// and have what they want. One of which the answer was garbled is applied, too.
func testOverQuota(t *testing.T, s *servers.Server) {
	appliedInSecret(t, s, overQuota, false)
	appliedInSecret(t, s, garbled, true)
}

func appliedInSecret(t *testing.T, s *servers.Server, f fault, fails bool) {
	st := newStore(t, s)
	c := st.claim("x", nil)
	st.wire.next("Txn", f)
	if fails {
		if _, err := c.Try(t.Context()); driver.FateOf(err) != driver.Unknown {
			t.Fatalf("Try: %v, want an error that says nothing", err)
		}
	}
	st.grant(c)
	st.wire.next("Txn", f)
	if _, err := c.Renew(t.Context(), time.Hour); (err == nil) == fails || errors.Is(err, distlock.ErrLost) {
		t.Fatalf("Renew: %v, want an error: %v", err, fails)
	}
	if err := st.renew(c)[0]; err != nil {
		t.Errorf("the renewal after it: %v", err)
	}
	st.release(c, nil)
	st.wantKeys(0)
}

// Once its owner has closed the client, every method says so, at once and for good.
func testClosedClient(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	testkit.WithinFresh(t, time.Second, func() func() {
		client := newClient(t, s.Addr())
		d, err := newDriver(client, st.prefix, false)
		testkit.Must(t, err)
		closing := &fixture{t: t, store: d}
		name := rand.Text()
		held, waiter := closing.won(name, nil), closing.claim(name, nil)
		closing.held(waiter)
		woken := closing.waiting(waiter)
		testkit.Must(t, client.Close())
		closing.woken(woken)
		return func() { wantClosed(t, d, held, waiter) }
	})
}

// wantClosed calls every method of a store with a closed client.
func wantClosed(t *testing.T, d *store, held, waiter *claim) {
	t.Helper()
	ctx, name := t.Context(), held.request.Name
	batch := []driver.Renewal{{Claim: held, TTL: held.request.TTL}}
	d.Renew(ctx, batch)
	answers := map[string]error{"Renew": batch[0].Err, "Break": d.Break(ctx, name, held.rev), "Release": held.Release(ctx)}
	_, answers["Renew"] = held.Renew(ctx, time.Minute)
	_, answers["Try"] = waiter.Try(ctx)
	first := d.Claim(driver.Request{Name: "y", Owner: testkit.Owner(), TTL: 30 * time.Second}).(*claim)
	_, answers["the first Try"] = first.Try(ctx)
	if err := first.Release(ctx); err != nil {
		t.Errorf("Release after it: %v, but nothing was sent", err)
	}
	answers["Release of a waiter"] = waiter.Release(ctx)
	_, answers["Inspect"] = d.Inspect(ctx, name)
	_, answers["List"] = d.List(ctx, "")
	answers["Close"] = d.Close()
	for what, err := range answers {
		if !errors.Is(err, distlock.ErrClosed) || errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want ErrClosed, and no error of a context", what, err)
		}
	}
}
