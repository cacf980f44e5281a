package mysqllock

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// openLockers opens Lockers with connections of their own, as if they were in
// different processes.
func openLockers(t testing.TB, n int, o Options) []*Locker {
	t.Helper()
	o.Table, o.Create = freshTable(t), true
	var lockers []*Locker
	for range n {
		l, err := Open(t.Context(), server(t).URL(), &o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		lockers = append(lockers, l)
	}
	return lockers
}

// handOff has next wait for what held holds, until ready says so, and returns the new lock.
func handOff(t *testing.T, held distlock.Lock, next *Locker, ready func()) distlock.Lock {
	t.Helper()
	return startHandOff(t, held, next, ready)()
}

// startHandOff is handOff up to the release. It returns the rest.
func startHandOff(t *testing.T, held distlock.Lock, next *Locker, ready func()) func() distlock.Lock {
	t.Helper()
	got := make(chan distlock.Lock)
	go func() {
		l, err := next.Lock(context.Background(), held.Name())
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	ready()
	return func() distlock.Lock {
		if err := held.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		l := <-got
		if l == nil {
			t.FailNow()
		}
		return l
	}
}

// patience is how late a hand-off may be if nothing wakes the waiter up. It is less than the 9 s
// until a waiter looks if it relies on its named lock.
const patience = 7 * time.Second

// TestHandOff passes a name to and fro between two processes and counts how often
// the one that waits has to ask: once to be sent to the named lock, and once when it has that.
func TestHandOff(t *testing.T) {
	t.Parallel()
	var tries int
	lockers := openLockers(t, 2, Options{Options: distlock.Options{
		Observer: &distlock.Observer{Acquired: func(a distlock.Acquired) { tries = a.Tries }},
	}})
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	d := lockers[0].driverOf(t)
	queued := atLock(t, d)
	takesLocks(t, d.locks, 1)
	for i := range 20 {
		held = handOff(t, held, lockers[(i+1)%2], func() {
			testkit.Until(t, "the other waits for the named lock", func() bool { return queued() == 1 })
			if i == 1 {
				time.Sleep(time.Second) // in which a poller asks ten times
			}
		})
		// The first holder has come without its named lock, so that the first waiter polls
		// until that can be expected to have been taken.
		if i > 0 && tries != 2 {
			t.Errorf("hand-off %d took the waiter %d requests", i, tries)
		}
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLongHold has a claim wait for a name that was taken without its named lock, once
// that has been taken.
func TestLongHold(t *testing.T) {
	t.Parallel()
	lockers := openLockers(t, 2, Options{})
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	locks := lockers[0].driverOf(t).locks
	takesLocks(t, locks, 1)
	waiter := lockers[1].driverOf(t).claimOn("n", 30*time.Second)
	testkit.Until(t, "the waiter is sent to the named lock", func() bool {
		refuses(t, waiter)
		return waiter.invited
	})
	woken := goesToLock(t, waiter)
	if err := held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	isWoken(t, "the waiter", woken)
	grants(t, waiter)
	releases(t, waiter)
	givesBack(t, locks)
}

// driverOf returns the driver of a Locker.
func (l *Locker) driverOf(t testing.TB) *store {
	t.Helper()
	lock, err := l.TryLock(t.Context(), randomText())
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	return lock.(*Lock).claim.driver
}

// openSpoiled opens a Locker and tampers with its named locks before their first use.
func openSpoiled(t *testing.T, table string, spoil func(*namedLocks)) *Locker {
	t.Helper()
	d := &store{db: pool(t, nil)}
	if err := d.prepare(&Options{Table: table, WaitDB: pool(t, nil)}); err != nil {
		t.Fatal(err)
	}
	if err := d.start(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	spoil(d.locks)
	c, err := driver.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Locker{c}
}

// TestLocksOfNoUse takes away what named locks rest on, one way at a time; the names must
// be passed on all the same.
func TestLocksOfNoUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		spoil func(*testing.T, *namedLocks)
	}{
		{"named locks do not work", func(t *testing.T, b *namedLocks) {
			dead := config(t, server(t).URL())
			dead.Addr = "127.0.0.1:1"
			b.db = poolOf(t, dead)
		}},
		{"each process has a server of its own", func(t *testing.T, b *namedLocks) { b.sql.schema = randomText() }},
		{"no connection is left", func(t *testing.T, b *namedLocks) { b.conns = nil }},
	} {
		t.Run(c.what, func(t *testing.T) {
			table := freshTable(t)
			var lockers []*Locker
			for range 2 {
				l := openSpoiled(t, table, func(b *namedLocks) { c.spoil(t, b) })
				defer func() {
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				}()
				lockers = append(lockers, l)
			}
			held, err := lockers[0].Lock(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			turn := 0
			for range 6 {
				testkit.WithinFresh(t, patience, func() func() {
					turn++
					rest := startHandOff(t, held, lockers[turn%2], func() { time.Sleep(rand.N(200 * time.Millisecond)) })
					return func() { held = rest() }
				})
			}
			if err := held.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLocksLeaveNothing cancels waiters, closes Lockers, and counts connections.
func TestLocksLeaveNothing(t *testing.T) {
	db := pool(t, nil)
	threads := func() (n int) {
		t.Helper()
		var name string
		if err := db.QueryRow("SHOW GLOBAL STATUS LIKE 'Threads_connected'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := threads()
	o := &Options{Table: freshTable(t), Create: true}
	var lockers []*Locker
	for range 2 {
		l, err := Open(t.Context(), server(t).URL(), o)
		if err != nil {
			t.Fatal(err)
		}
		lockers = append(lockers, l)
	}
	locks := lockers[0].driverOf(t).locks
	lock := locks.sql.namedLock("n").lock
	waits := func() {
		t.Helper()
		testkit.Until(t, "a claim waits for the named lock", func() bool { return statementsWith(t, db, lock) > 0 })
	}
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	takesLocks(t, locks, 1)
	// The statements of clients that have gone still wait in the server. They must not have
	// the lock for long.
	turn := 0
	testkit.WithinFresh(t, patience, func() func() {
		turn++
		next := lockers[turn%2]
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := next.Lock(ctx, "n")
				failed <- err
			}()
			waits()
			cancel()
			wantError(t, "the cancelled Lock", <-failed, context.Canceled)
		}
		rest := startHandOff(t, held, next, waits)
		return func() { held = rest() }
	})
	waiting := make(chan error, 1)
	go func() {
		_, err := lockers[(turn+1)%2].Lock(context.Background(), "n")
		waiting <- err
	}()
	waits()
	for _, l := range lockers {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	wantError(t, "the waiting Lock", <-waiting, distlock.ErrClosed)
	wantError(t, "the lock after Close", held.Err(), distlock.ErrUnlocked)
	testkit.Until(t, "all connections are closed", func() bool { return threads() <= before })
}

// replyLost is a connection that calls lost, if there is one, instead of handing on what
// has come, and then is broken.
type replyLost struct {
	net.Conn
	lost *atomic.Pointer[func()]
}

func (c replyLost) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if f := c.lost.Swap(nil); f != nil {
		(*f)()
		return 0, io.EOF
	}
	return n, err
}

// TestWaitsAgain ends the connection of a claim that waits: it does not poll for ever.
func TestWaitsAgain(t *testing.T) {
	t.Parallel()
	l, db := openLockers(t, 2, Options{}), pool(t, nil)
	held, err := l[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	takesLocks(t, l[0].driverOf(t).locks, 1)
	lock := l[1].driverOf(t).sql.namedLock("n").lock
	waits := func(after int) (id int) {
		testkit.Until(t, "the next waits on another connection", func() bool {
			return db.QueryRow("SELECT id FROM information_schema.processlist WHERE id NOT IN (CONNECTION_ID(), ?) AND LOCATE(?, info) > 0",
				after, lock).Scan(&id) == nil
		})
		return id
	}
	next := handOff(t, held, l[1], func() {
		id := waits(0)
		if _, err := db.Exec(fmt.Sprintf("KILL %d", id)); err != nil {
			t.Fatal(err)
		}
		waits(id)
	})
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReplyToReleaseIsLost releases a name together with its named lock. The next waiter acquires
// it before the holder learns that the reply does not come. The holder must not be told of a lost
// lock.
func TestReplyToReleaseIsLost(t *testing.T) {
	t.Parallel()
	table := freshTable(t)
	var lost atomic.Pointer[func()]
	c := config(t, server(t).URL())
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return replyLost{conn, &lost}, err
	}
	l := openSpoiled(t, table, func(b *namedLocks) { b.db = poolOf(t, c) })
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	d := l.driverOf(t)
	first, err := l.Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	takesLocks(t, d.locks, 1)
	queued := atLock(t, d)
	held := handOff(t, first, l, func() {
		testkit.Until(t, "the next waits for the named lock", func() bool { return queued() == 1 })
	})
	next := d.claimOn("n", time.Minute)
	next.request.NoWait = true
	var taken error
	take := func() { _, taken = next.Try(context.Background()) }
	lost.Store(&take)
	if err := held.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock whose reply was lost: %v", err)
	}
	if lost.Load() != nil || taken != nil {
		t.Errorf("the name was not taken meanwhile, so this test shows nothing: %v", taken)
	}
	releases(t, next)
}
