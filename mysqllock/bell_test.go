package mysqllock

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
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

// handOff has next wait for what held holds, until ready says so, and returns the new
// lock and how long that took from the release on.
func handOff(t *testing.T, held distlock.Lock, next *Locker, ready func()) (distlock.Lock, time.Duration) {
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
	start := time.Now()
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	l := <-got
	lag := time.Since(start)
	if l == nil {
		t.FailNow()
	}
	return l, lag
}

// patience is how late a hand-off may be that nobody rings for: more than a stalled
// machine takes over a poll, and less than the 9 s after which a waiter looks that
// relies on its bell.
const patience = 7 * time.Second

// takesBells waits until the bells of n names that a Locker has taken without them are
// taken.
func takesBells(t *testing.T, b *bells, n int) {
	t.Helper()
	eventually(t, "the bells are taken", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.taken == n
	})
}

// TestHandOff passes a name to and fro between two processes and counts how often
// the one that waits has to ask: once to be sent to the bell, and once when it rings.
func TestHandOff(t *testing.T) {
	var tries int
	lockers := openLockers(t, 2, Options{Options: distlock.Options{
		Observer: &distlock.Observer{Acquired: func(a distlock.Acquired) { tries = a.Tries }},
	}})
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	d := lockers[0].driverOf(t)
	queued := atBell(t, d)
	takesBells(t, d.bells, 1)
	for i := range 20 {
		held, _ = handOff(t, held, lockers[(i+1)%2], func() {
			eventually(t, "the other waits for the bell", func() bool { return queued() == 1 })
			if i == 1 {
				time.Sleep(time.Second) // in which a poller asks ten times
			}
		})
		// The first holder has come without its bell, so that the first waiter polls
		// until that can be expected to have been taken.
		if i > 0 && tries != 2 {
			t.Errorf("hand-off %d took the waiter %d requests", i, tries)
		}
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLongHold has somebody wait for a name that was taken without its bell, once the
// bell has been taken.
func TestLongHold(t *testing.T) {
	lockers := openLockers(t, 2, Options{})
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	bells := lockers[0].driverOf(t).bells
	takesBells(t, bells, 1)
	waiter := lockers[1].driverOf(t).bid("n", 30*time.Second)
	eventually(t, "the waiter is sent to the bell", func() bool {
		refuses(t, waiter)
		return waiter.invited
	})
	rung := goesToBell(t, waiter)
	if err := held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	isRung(t, "the waiter", rung)
	grants(t, waiter)
	releases(t, waiter)
	eventually(t, "the connection is given back", func() bool {
		bells.line.Lock()
		defer bells.line.Unlock()
		return bells.shared == nil
	})
}

// driverOf returns the driver of a Locker.
func (l *Locker) driverOf(t testing.TB) *driver {
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

// openSpoiled opens a Locker whose bells are tampered with before their first use.
func openSpoiled(t *testing.T, table string, spoil func(*bells)) *Locker {
	t.Helper()
	d := &driver{db: pool(t, nil)}
	c, err := d.client(&Options{Table: table, Waiting: pool(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.start(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	spoil(d.bells)
	return &Locker{c}
}

// TestBellsOfNoUse takes away what bells rest on, one way at a time; the names must
// be passed on all the same.
func TestBellsOfNoUse(t *testing.T) {
	for _, c := range []struct {
		what  string
		spoil func(*testing.T, *bells)
	}{
		{"named locks do not work", func(t *testing.T, b *bells) {
			dead := config(t, server(t).URL())
			dead.Addr = "127.0.0.1:1"
			b.db = poolOf(t, dead)
		}},
		{"each process has a server of its own", func(t *testing.T, b *bells) { b.sql.schema = randomText() }},
		{"no connection is left", func(t *testing.T, b *bells) { b.slots = nil }},
	} {
		t.Run(c.what, func(t *testing.T) {
			table := freshTable(t)
			var lockers []*Locker
			for range 2 {
				l := openSpoiled(t, table, func(b *bells) { c.spoil(t, b) })
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
			for i := range 6 {
				var lag time.Duration
				held, lag = handOff(t, held, lockers[(i+1)%2], func() { time.Sleep(rand.N(200 * time.Millisecond)) })
				if lag > patience {
					t.Errorf("hand-off %d took %v", i, lag)
				}
			}
			if err := held.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBellsLeaveNothing cancels waiters, closes Lockers, and counts connections.
func TestBellsLeaveNothing(t *testing.T) {
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
	bells := lockers[0].driverOf(t).bells
	bell := bells.name("n").bell
	waits := func() {
		t.Helper()
		eventually(t, "somebody waits for the bell", func() bool { return statementsWith(t, db, bell) > 0 })
	}
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	takesBells(t, bells, 1)
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := lockers[1].Lock(ctx, "n")
			failed <- err
		}()
		waits()
		cancel()
		wantError(t, "the cancelled Lock", <-failed, context.Canceled)
	}
	// What waits in the server for clients that have gone must not be rung for in
	// their place for long.
	held, lag := handOff(t, held, lockers[1], waits)
	if lag > patience {
		t.Errorf("hand-off past cancelled waiters: %v", lag)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := lockers[0].Lock(context.Background(), "n")
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
	eventually(t, "all connections are closed", func() bool { return threads() <= before })
}

// TestCloseEndsBells closes the bells of a driver while somebody has one whose release
// has not returned: the pool, which goes on, must not keep it.
func TestCloseEndsBells(t *testing.T) {
	d := bellDriver(t)
	holdsWithBell(t, d)
	bells := d.bells
	d.bells = nil
	bells.close()
	eventually(t, "the bell is free", func() bool {
		var free bool
		if err := d.db.QueryRow("SELECT IS_FREE_LOCK(x'" + bells.name("n").bell + "')").Scan(&free); err != nil {
			t.Fatal(err)
		}
		return free
	})
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

// TestReplyToReleaseIsLost releases a name together with its bell, and has the next one
// take it before the holder learns that the reply does not come: that is no loss.
func TestReplyToReleaseIsLost(t *testing.T) {
	table := freshTable(t)
	var lost atomic.Pointer[func()]
	c := config(t, server(t).URL())
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return replyLost{conn, &lost}, err
	}
	l := openSpoiled(t, table, func(b *bells) { b.db = poolOf(t, c) })
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
	takesBells(t, d.bells, 1)
	queued := atBell(t, d)
	held, _ := handOff(t, first, l, func() {
		eventually(t, "the next waits for the bell", func() bool { return queued() == 1 })
	})
	next := d.bid("n", time.Minute)
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
