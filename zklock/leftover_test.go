package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// count returns how many are left, and -1 if nothing is done about them.
func (l *leftovers) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running {
		return -1
	}
	return len(l.claims)
}

// TestGivenUp: the servers refuse to delete the node of a lock until its release is given
// up, and its Locker closed. The session goes on, and ends when nothing is left.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	prefix, admin := freshPrefix(), connect(t)
	testkit.Must(t, admin.AddAuth("digest", []byte("admin:pw")))
	gaveUp := make(chan error, 1)
	opts, err := (&Options{Prefix: prefix, TickTime: tick, Options: distlock.Options{
		TTL: 3 * time.Second, Observer: &distlock.Observer{Released: func(r distlock.Released) { gaveUp <- r.Err }}}}).checked()
	testkit.Must(t, err)
	d := newStoreOn(connect(t), opts, 30*time.Second)
	d.caps.ExpiryLag = 0 // and so a release is given up soon
	l, err := newLocker(d)
	testkit.Must(t, err)
	held := lock(t, l, "x")
	parent := prefix + "/x"
	if _, err := admin.SetACL(parent, zk.DigestACL(zk.PermAll, "admin", "pw"), -1); err != nil {
		t.Fatal(err)
	}
	if err := held.Unlock(t.Context()); err == nil {
		t.Fatal("unlocked, without the right to")
	}
	if err := <-gaveUp; err == nil {
		t.Fatal("released, without the right to")
	}
	if err := l.Close(); err != nil {
		t.Log(err)
	}
	if there, _, err := admin.Exists(held.Path()); err != nil || !there {
		t.Fatal("the node is gone, which nobody may delete:", err)
	}
	left := &d.main.session.leftovers
	if n := left.count(); n != 1 {
		t.Errorf("%d claims are left, want 1", n)
	}
	if _, err := admin.SetACL(parent, zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the node is gone", func() bool {
		there, _, err := admin.Exists(held.Path())
		return err == nil && !there
	})
	testkit.Until(t, "nothing is left", func() bool { return left.count() < 0 })
}

// TestRecordAfterClose: what is kept on Close stays for its term, and not for as long as
// the user's connection.
func TestRecordAfterClose(t *testing.T) {
	t.Parallel()
	prefix, conn, admin := freshPrefix(), connect(t), connect(t)
	l, err := New(conn, &Options{Prefix: prefix, TickTime: tick})
	testkit.Must(t, err)
	held := lock(t, l, "x", distlock.NoRenewal(), distlock.TTL(1500*time.Millisecond))
	held.KeepOnClose()
	testkit.Must(t, l.Close())
	there := true
	for there {
		asked := time.Now()
		if there, _, err = admin.Exists(held.Path()); err != nil {
			t.Fatal(err)
		}
		if !there && asked.Before(held.Deadline().Add(-time.Second)) {
			t.Error("the record was deleted before its term was over")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestLeftoversEnd: leftovers end with the connection, and with their session.
func TestLeftoversEnd(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*proxy, *zk.Conn){
		"the connection": func(_ *proxy, conn *zk.Conn) { conn.Close() },
		"the session":    func(w *proxy, _ *zk.Conn) { w.expire() },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newProxy(t)
			conn := w.connect()
			c := claimOn(t, conn, freshPrefix(), "x", false)
			grants(t, c)
			s, users := c.session, c.class.users
			w.each(refuse, opDelete)
			for range 3 { // by the engine, which repeats it
				if err := c.Release(t.Context()); err == nil {
					t.Fatal("released")
				}
			}
			if n := s.leftovers.count(); n != 1 {
				t.Errorf("%d claims are left, want 1", n)
			}
			end(w, conn)
			testkit.Until(t, "nothing is left", func() bool { return s.leftovers.count() < 0 })
			if c.class.mu.Lock(); how == "the session" && c.class.users != users-1 {
				t.Errorf("the session has %d users, want %d", c.class.users, users-1)
			}
			c.class.mu.Unlock()
		})
	}
}

// TestDeletedOnce: the session deletes what a release has left. The engine repeats the
// release, which fails again. The use of the session ends once, and the lock was not lost.
func TestDeletedOnce(t *testing.T) {
	t.Parallel()
	w := newProxy(t)
	c := claimOn(t, w.connect(), freshPrefix(), "x", false)
	grants(t, c)
	s, users := c.session, c.class.users
	w.each(refuse, opDelete)
	if err := c.Release(t.Context()); err == nil {
		t.Fatal("released")
	}
	w.on(nil)
	testkit.Until(t, "nothing is left", func() bool { return s.leftovers.count() < 0 })
	w.each(refuse, opDelete)
	if err := c.Release(t.Context()); err == nil {
		t.Fatal("released")
	}
	if n := s.leftovers.count(); n >= 0 {
		t.Errorf("%d claims are left once more", n)
	}
	w.on(nil)
	if err := c.Release(t.Context()); err != nil {
		t.Error("the release of what the session has deleted:", err)
	}
	c.class.mu.Lock()
	defer c.class.mu.Unlock()
	if c.class.users != users-1 {
		t.Errorf("the session has %d users, want %d", c.class.users, users-1)
	}
}

// TestEmptyName: an acquisition is given up when the node of a new name is there, and no claim was ever in it. The servers
// remove a container only after its last child, so we remove it. What an administrator has made stays.
func TestEmptyName(t *testing.T) {
	t.Parallel()
	w, prefix, admin := newProxy(t), freshPrefix(), connect(t)
	l := open(t, w, prefix, 30*time.Second)
	unlock(t, lock(t, l, "another")) // makes the prefix
	gone := func(name string) {
		t.Helper()
		testkit.Until(t, "the node of "+name+" is gone", func() bool {
			there, _, err := admin.Exists(prefix + "/" + name)
			return err == nil && !there
		})
	}
	t.Run("refused", func(t *testing.T) {
		keep(t, admin, prefix, "kept")
		w.each(refuse, opMulti)
		defer w.on(nil)
		for _, name := range []string{"kept", "x"} {
			if _, err := l.TryLock(t.Context(), name); err == nil || errors.Is(err, distlock.ErrHeld) {
				t.Error("TryLock:", err)
			}
		}
		gone("x")
		if there, _, err := admin.Exists(prefix + "/kept"); err != nil || !there {
			t.Error("the node of an administrator is gone:", err)
		}
	})
	t.Run("left", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		first := once(opContainer, 1, loseReply)
		w.on(func(op int32) fault {
			verdict := first(op)
			if verdict != pass {
				w.away.Store(true)
				leave()
			}
			return verdict
		})
		defer w.on(nil)
		if _, err := l.Lock(ctx, "y"); !errors.Is(err, context.Canceled) {
			t.Error("Lock:", err)
		}
		w.away.Store(false)
		gone("y")
	})
}

// TestBrokenBeforeRelease: the lock was broken, and the request of the release does not leave this process. The clean-up has
// sent none yet, so the holder hears of it with the next.
func TestBrokenBeforeRelease(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c := claimOn(t, conn, freshPrefix(), "x", false)
	grants(t, c)
	c.left = true
	c.session.addLeftover(copyOf(c), time.Now().Add(time.Hour))
	testkit.Must(t, conn.Delete(c.path, -1))
	if err := c.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
		t.Error("the release of a lock that was broken:", err)
	}
}

// TestDeletedJustNow: the session has deleted the node, and has not dropped the claim yet.
func TestDeletedJustNow(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c := claimOn(t, conn, freshPrefix(), "x", false)
	grants(t, c)
	c.left = true
	l := &c.session.leftovers
	l.running = true // and so nothing but this test does it
	c.session.addLeftover(copyOf(c), time.Now())
	if due, _ := l.some(); len(due) != 1 {
		t.Fatalf("%d claims are due", len(due))
	}
	testkit.Must(t, conn.Delete(c.path, -1))
	if err := c.Release(t.Context()); err != nil {
		t.Error("the release of what the session has deleted:", err)
	}
}
