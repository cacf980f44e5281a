package zklock

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestDeletedByHand: what an administrator takes away before the first renewal is lost by that, and not when it has run out. What
// goes later is examined by the suite.
func TestDeletedByHand(t *testing.T) {
	t.Parallel()
	l, conn := open(t, nil, freshPrefix(), 30*time.Second), connect(t)
	held := lock(t, l, "x", distlock.TTL(9*time.Second))
	testkit.Must(t, conn.Delete(held.Path(), -1))
	if <-held.Done(); !errors.Is(held.Err(), distlock.ErrLost) || !strings.Contains(held.Err().Error(), "was removed") {
		t.Error(held.Err())
	}
}

// renewedOnce returns a claim with a lock and a watch, its proxy, and another
// connection. The next renewal needs a write.
func renewedOnce(t *testing.T) (*proxy, *claim, *zk.Conn) {
	t.Helper()
	w, byHand := newProxy(t), connect(t)
	c := claimOn(t, w.connect(), freshPrefix(), "x", false)
	grants(t, c)
	if _, err := c.Renew(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	c.session.confirmed = confirmation{}
	return w, c, byHand
}

// TestDeletedWhileRenewed: what goes away before the write is not confirmed by it.
func TestDeletedWhileRenewed(t *testing.T) {
	t.Parallel()
	w, c, byHand := renewedOnce(t)
	w.before(opMulti, func() { testkit.Should(t, byHand.Delete(c.path, -1)) })
	if _, err := c.Renew(t.Context(), time.Second); !errors.Is(err, distlock.ErrLost) {
		t.Error("a renewal of what was gone when it was confirmed:", err)
	}
	if err := c.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
		t.Error("Release:", err)
	}
}

// TestLessIsGranted: a connection breaks while a lock is renewed, and the next server grants a shorter session, as its
// maxSessionTimeout has been lowered. It would expire the session before the lease that the first one allowed.
func TestLessIsGranted(t *testing.T) {
	t.Parallel()
	t.Run("New", func(t *testing.T) {
		t.Parallel()
		w, c, _ := renewedOnce(t)
		lessIsGranted(t, w, c)
	})
	t.Run("Open", func(t *testing.T) {
		t.Parallel()
		w := newProxy(t)
		d := openDriver(t, server(t).URLVia(w.addr)+freshPrefix()+"?tick_time=200ms&ttl=10s")
		c := d.Claim(driver.Request{Name: "x", Owner: testkit.Owner(), TTL: 10 * time.Second, Holder: "me"}).(*claim)
		grants(t, c)
		_, err := c.Renew(t.Context(), 10*time.Second)
		testkit.Must(t, err)
		c.session.confirmed = confirmation{}
		lessIsGranted(t, w, c)
	})
}

func lessIsGranted(t *testing.T, w *proxy, c *claim) {
	t.Helper()
	conn := c.session.conn
	const less = 3 * time.Second
	w.grants.Store(uint32(less / time.Millisecond))
	w.on(once(opMulti, 1, loseRequest))
	quit := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() { // for the race detector
		for {
			select {
			case <-quit:
				return
			default:
				_ = conn.Timeout()
			}
		}
	})
	grant, err := c.Renew(t.Context(), 10*time.Second)
	close(quit)
	reading.Wait()
	testkit.Must(t, err)
	if most := longestTTL(less, tick); grant.TTL > most {
		t.Errorf("a lock was renewed for %v by a session of %v, which allows %v", grant.TTL, less, most)
	}
	testkit.Must(t, c.Release(t.Context()))
	w.away.Store(true)
	w.cut() // without a connection, what was granted last still counts
	testkit.Until(t, "the connection is away", func() bool { return conn.State() != zk.StateHasSession })
	if got := conn.Timeout(); got != less {
		t.Errorf("without a connection, the timeout is %v", got)
	}
}

// TestRenewalIsShared: locks are renewed by the request for their session, however
// many they are.
func TestRenewalIsShared(t *testing.T) {
	t.Parallel()
	const ttl = 9 * time.Second // a machine that is late by seconds costs none
	w, prefix := newProxy(t), freshPrefix()
	l := open(t, w, prefix, 30*time.Second)
	locks := make([]*Lock, 100)
	for i := range locks {
		locks[i] = lock(t, l, fmt.Sprint(i), distlock.TTL(ttl))
	}
	renewed := func() {
		t.Helper()
		before := make([]time.Time, len(locks))
		for i, l := range locks {
			before[i] = l.Deadline()
		}
		eventually(t, func() string {
			for i, l := range locks {
				if !l.Deadline().After(before[i]) {
					return "not all were renewed"
				}
			}
			return ""
		})
	}
	var got map[int32]int
	var periods int
	for connections := -1; connections != w.connections(); { // one that was made anew sets its watches anew
		renewed()
		connections = w.connections()
		w.count()
		began := time.Now()
		for range 2 {
			renewed()
		}
		// All are due together, about once in a third of the TTL, but not to the millisecond.
		got, periods = w.count(), int(time.Since(began)/(ttl/3))+1
	}
	if got[opMulti] > 3*periods || len(got) != 1 {
		t.Errorf("%d locks were renewed by the requests %v in %d periods", len(locks), got, periods)
	}
	for _, l := range locks {
		unlock(t, l)
	}
}

// TestSlowRenewalIsShared: a write that takes longer than its answer may be shared with
// later batches is still the only one of its own batch.
func TestSlowRenewalIsShared(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	w := newProxy(t)
	first := claimOn(t, w.connect(), freshPrefix(), "0", false)
	batch := make([]driver.Renewal, 20)
	for i := range batch {
		batch[i] = driver.Renewal{TTL: ttl, Claim: first.class.store.Claim(driver.Request{
			Name: fmt.Sprint(i), Owner: testkit.Owner(), TTL: ttl, Holder: "me"})}
		grants(t, batch[i].Claim)
	}
	w.count()
	w.before(opMulti, func() { time.Sleep(2 * ttl / sharing) })
	time.Sleep(2 * ttl / sharing) // since the last Try: it has confirmed the session
	first.class.store.Renew(t.Context(), batch)
	for i := range batch {
		if err := batch[i].Err; err != nil {
			t.Errorf("renewal %d: %v", i, err)
		}
	}
	if n := w.count()[opMulti]; n != 1 {
		t.Errorf("%d locks were renewed by %d writes", len(batch), n)
	}
}
