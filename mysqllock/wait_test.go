package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
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
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Should(t, l.Close()) })
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
		testkit.Should(t, err)
		got <- l
	}()
	ready()
	return func() distlock.Lock {
		testkit.Should(t, held.Unlock(t.Context()))
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

// driverOf returns the driver of a Locker.
func (l *Locker) driverOf(t testing.TB) *store {
	t.Helper()
	lock, err := l.TryLock(t.Context(), testkit.Owner())
	testkit.Must(t, err)
	testkit.Must(t, lock.Unlock(t.Context()))
	return lock.(*Lock).claim.driver
}

// openSpoiled opens a Locker and tampers with its named locks before their first use.
func openSpoiled(t *testing.T, table string, spoil func(*namedLocks)) *Locker {
	t.Helper()
	d := &store{db: pool(t, nil)}
	testkit.Must(t, d.prepare(&Options{Table: table, WaitDB: pool(t, nil)}))
	testkit.Must(t, d.start(t.Context(), true))
	spoil(d.locks)
	c, err := driver.New(d, nil)
	testkit.Must(t, err)
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
		{"each process has a server of its own", func(t *testing.T, b *namedLocks) { b.sql.schema = testkit.Owner() }},
		{"no connection is left", func(t *testing.T, b *namedLocks) { b.conns = nil }},
	} {
		t.Run(c.what, func(t *testing.T) {
			table := freshTable(t)
			var lockers []*Locker
			for range 2 {
				l := openSpoiled(t, table, func(b *namedLocks) { c.spoil(t, b) })
				defer func() { testkit.Should(t, l.Close()) }()
				lockers = append(lockers, l)
			}
			held, err := lockers[0].Lock(t.Context(), "n")
			testkit.Must(t, err)
			turn := 0
			for range 6 {
				testkit.WithinFresh(t, patience, func() func() {
					turn++
					rest := startHandOff(t, held, lockers[turn%2], func() { time.Sleep(rand.N(200 * time.Millisecond)) })
					return func() { held = rest() }
				})
			}
			testkit.Should(t, held.Unlock(t.Context()))
		})
	}
}

// TestWaitsAgain ends the connection of a claim that waits: it does not poll for ever.
func TestWaitsAgain(t *testing.T) {
	t.Parallel()
	l, db := openLockers(t, 2, Options{}), pool(t, nil)
	held, err := l[0].Lock(t.Context(), "n")
	testkit.Must(t, err)
	takesLock(t, held.(*Lock).claim)
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
	testkit.Should(t, next.Unlock(t.Context()))
}

// TestWaitsAgainWithLock ends the connection of a claim that has the named lock and polls, for the name is held without it. The
// claim waits for the named lock again, as another has that now.
func TestWaitsAgainWithLock(t *testing.T) {
	t.Parallel()
	d, db := lockDriver(t), pool(t, nil)
	ends := func(conn int64) {
		t.Helper()
		_, err := db.Exec(fmt.Sprintf("KILL %d", conn))
		testkit.Must(t, err)
	}
	holder, c := holdsWithLock(t, d), d.claimOn("n", time.Minute)
	age(t, d, "acquired", time.Second)
	woken := goesToLock(t, t.Context(), c)
	ends(usesLock(t, d, "n"))
	isWoken(t, "the claim, for the holder has lost the named lock", woken)
	polls(t, c)
	ends(usesLock(t, d, "n"))
	lockIsFree(t, db, d.sql.namedLock("n").lock)
	other, err := db.Conn(t.Context())
	testkit.Must(t, err)
	_, err = d.sql.ask(t.Context(), other, "await-lock", d.sql.namedLock("n"))
	testkit.Must(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	queued := atLock(t, d)
	testkit.Until(t, "the claim waits for the named lock again", func() bool {
		refuses(t, c)
		_ = c.Wait(over)
		return queued() == 1
	})
	discard(other)
	testkit.Until(t, "the named lock comes", c.waiter.over)
	releases(t, holder)
	grants(t, c)
	releases(t, c)
}

// TestReplyToReleaseIsLost releases a name together with its named lock. Another acquires it before
// the holder learns that the reply does not come. The holder must not be told of a lost lock.
func TestReplyToReleaseIsLost(t *testing.T) {
	t.Parallel()
	p, url := link(t)
	l := openSpoiled(t, freshTable(t), func(b *namedLocks) { b.db = poolOf(t, config(t, url)) })
	defer func() { testkit.Should(t, l.Close()) }()
	d := l.driverOf(t)
	first, err := l.Lock(t.Context(), "n")
	testkit.Must(t, err)
	takesLock(t, first.(*Lock).claim)
	queued := atLock(t, d)
	held := handOff(t, first, l, func() {
		testkit.Until(t, "the next waits for the named lock", func() bool { return queued() == 1 })
	})
	givesBack(t, d.locks)
	p.DropReply(1)
	unlocked := make(chan error, 1)
	go func() { unlocked <- held.Unlock(context.Background()) }()
	next := d.claimOn("n", time.Minute)
	next.request.NoWait = true
	testkit.Until(t, "another has the name", func() bool {
		_, err := next.Try(t.Context())
		return err == nil
	})
	// The server has the name free before its reply is at the proxy.
	testkit.Until(t, "the reply is lost", func() bool { return p.Fired() == 1 })
	p.CutAll()
	if err := <-unlocked; err != nil {
		t.Errorf("Unlock whose reply was lost: %v", err)
	}
	releases(t, next)
}

// TestOwnConnectionHangs has the connection of a claim that has waited say nothing more. Its release goes through the pool then,
// whatever time it has.
func TestOwnConnectionHangs(t *testing.T) {
	t.Parallel()
	p, url := link(t)
	d := lockDriver(t)
	d.locks = newNamedLocks(poolOf(t, config(t, url)), d.sql, 16)
	holder := holdsWithLock(t, d)
	age(t, d, "acquired", time.Second)
	c := d.claimOn("n", time.Minute)
	woken := goesToLock(t, t.Context(), c)
	releases(t, holder)
	isWoken(t, "the waiter", woken)
	grants(t, c)
	givesBack(t, d.locks)
	p.DropRequest(1)
	err := c.Release(context.Background())
	if driver.FateOf(err) != driver.Unknown || p.Fired() != 1 {
		t.Errorf("Release by a connection that hangs: %v, want one that says that the outcome is not known", err)
	}
	releases(t, c)
}

// testStatementTime has a server end statements that take long: a claim waits for a named lock all the same. That is shown by a
// statement that begins later, and is ended.
func testStatementTime(t *testing.T, s *servers.Server) {
	limit, none := "max_execution_time = 300", "max_execution_time = 0"
	if strings.Contains(s.Version(), "MariaDB") {
		limit, none = "max_statement_time = 0.3", "max_statement_time = 0"
	}
	admin := poolOf(t, config(t, s.AdminURL()))
	exec := func(statement string) {
		_, err := admin.Exec(statement)
		testkit.Must(t, err)
	}
	l, err := Open(t.Context(), s.URL(), &Options{Create: true})
	testkit.Must(t, err)
	defer l.Close()
	d := l.driverOf(t)
	a := holdsWithLock(t, d)
	closeIdle(d.locks.db) // the next connection has the limit
	exec("SET GLOBAL " + limit)
	defer exec("SET GLOBAL " + none)
	w := d.locks.join("n")
	defer w.leave()
	testkit.Until(t, "the claim waits", func() bool { return statementsWith(t, admin, "31536000") > 0 || w.over() })
	db := poolOf(t, config(t, s.URL()))
	for range 2 {
		var got sql.NullInt64
		err := db.QueryRow("SELECT GET_LOCK(x'" + d.sql.namedLock("n").lock + "', 60)").Scan(&got)
		if got.Int64 == 1 {
			t.Fatalf("the named lock is free; %v", err)
		}
	}
	if w.over() {
		t.Error("the server has ended the wait")
	}
	releases(t, a)
}
