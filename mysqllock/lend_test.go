package mysqllock

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// lentDriver returns the driver of a Locker on a pool of the user's.
func lentDriver(t *testing.T, db *sql.DB, table string) *store {
	t.Helper()
	l, err := New(db, &Options{Table: table, Create: true})
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return l.driverOf(t)
}

// testSeen takes a lock, renews it, looks at it and gives it back; before is called before each of these. Another is told of it at
// once.
func testSeen(t *testing.T, held, rival *claim, before func()) {
	t.Helper()
	before()
	grants(t, held)
	_, err := rival.Try(t.Context())
	wantError(t, "Try of a held name", err, distlock.ErrHeld)
	before()
	_, err = held.Renew(t.Context(), time.Minute)
	testkit.Must(t, err)
	before()
	st, err := held.driver.Inspect(t.Context(), held.request.Name)
	if err != nil || !st.Held || st.Remaining > time.Minute || st.Remaining < 30*time.Second {
		t.Errorf("Inspect says %+v, %v", st, err)
	}
	before()
	releases(t, held)
	grants(t, rival)
	releases(t, rival)
}

// TestLentAsLeft takes a lock, renews it and gives it back on a pool with one connection that somebody has left in some state:
// others are told of it at once, and the server still knows of it when that connection is gone.
func TestLentAsLeft(t *testing.T) {
	t.Parallel()
	table := freshTable(t)
	for what, text := range map[string]string{
		"read-only":           "SET SESSION TRANSACTION READ ONLY",
		"an early clock":      "SET timestamp = UNIX_TIMESTAMP() - 3600",
		"a late clock":        "SET timestamp = UNIX_TIMESTAMP() + 3600",
		"chained":             "SET completion_type = 'CHAIN'",
		"a clock that stands": "SET timestamp = UNIX_TIMESTAMP()",
	} {
		t.Run(what, func(t *testing.T) {
			db := pool(t, nil)
			d, other := lentDriver(t, db, table), testDriver(t, adminPool(t), table)
			db.SetMaxOpenConns(1)
			spoil := func() { _, err := db.Exec(text); testkit.Must(t, err) }
			name := testkit.Owner()
			held, rival := d.claimOn(name, time.Minute), other.claimOn(name, time.Minute)
			testSeen(t, held, rival, spoil)
		})
	}
}

// TestOpenTransaction has somebody leave a transaction open on a connection of the pool, or autocommit off. It is passed over, and stays open;
// where there is no other, the error says so.
func TestOpenTransaction(t *testing.T) {
	t.Parallel()
	table := freshTable(t)
	for _, begin := range []string{"BEGIN", "XA START 'distlock'", "SET autocommit = 0"} {
		t.Run(begin, func(t *testing.T) {
			db := pool(t, nil)
			d, other := lentDriver(t, db, table), testDriver(t, adminPool(t), table)
			db.SetMaxOpenConns(1)
			_, err := db.Exec(begin)
			testkit.Must(t, err)
			var left, now int
			testkit.Must(t, db.QueryRow("SELECT CONNECTION_ID()").Scan(&left))

			name := testkit.Owner()
			held, rival := d.claimOn(name, time.Minute), other.claimOn(name, time.Minute)
			// It does not keep the only connection, which somebody may need for a COMMIT.
			if _, err = held.Try(t.Context()); driver.FateOf(err) != driver.NotSent || !strings.Contains(fmt.Sprint(err), "left open") {
				t.Errorf("Try on the only connection says %v, of the fate %v", err, driver.FateOf(err))
			}
			db.SetMaxOpenConns(2)
			testSeen(t, held, rival, func() {})
			// Each was given back in the order in which it was lent.
			for range 2 {
				if testkit.Must(t, db.QueryRow("SELECT CONNECTION_ID()").Scan(&now)); now == left {
					break
				}
				conn, err := db.Conn(t.Context())
				testkit.Must(t, err)
				defer conn.Close()
			}
			_, err = db.Exec(d.sql.text["settle"])
			if now != left || !hasNumber(err, errInTransaction, errInXA, errWrongValue) {
				t.Errorf("connection %d, left open on %d, answers %v", now, left, err)
			}
		})
	}
}

// TestWaitDBAsLeft has a claim wait, and hold, on connections of which one is in an open transaction: its release is seen by others.
func TestWaitDBAsLeft(t *testing.T) {
	t.Parallel()
	table, wait := freshTable(t), pool(t, nil)
	l, err := New(pool(t, nil), &Options{Table: table, Create: true, WaitDB: wait})
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	wait.SetMaxOpenConns(1)
	_, err = wait.Exec("BEGIN")
	testkit.Must(t, err)
	wait.SetMaxOpenConns(0)

	other, err := Open(t.Context(), server(t).URL(), &Options{Table: table})
	testkit.Must(t, err)
	t.Cleanup(func() { other.Close() })
	name := testkit.Owner()
	first, err := other.Lock(t.Context(), name)
	testkit.Must(t, err)
	held := handOff(t, first, l, func() { time.Sleep(50 * time.Millisecond) })
	testkit.Must(t, held.Extend(t.Context(), time.Minute))
	if _, err := other.TryLock(t.Context(), name); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("TryLock of a held name: %v", err)
	}
	testkit.Must(t, held.Unlock(t.Context()))
	last, err := other.TryLock(t.Context(), name)
	testkit.Must(t, err)
	testkit.Must(t, last.Unlock(t.Context()))
}

// TestNewWithoutAutocommit has a small pool on which every connection begins without autocommit, and no table yet: New says so, and
// does not wait for a connection that is otherwise.
func TestNewWithoutAutocommit(t *testing.T) {
	t.Parallel()
	db := pool(t, map[string]string{"autocommit": "0"})
	db.SetMaxOpenConns(2)
	if _, err := New(db, &Options{Table: freshTable(t), Create: true}); !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), "autocommit") {
		t.Errorf("New: %v", err)
	}
}

// TestRenewalsLeaveAnOpenTransaction has the only connection of WaitDB that is idle be in a transaction: locks are renewed on the pool.
func TestRenewalsLeaveAnOpenTransaction(t *testing.T) {
	t.Parallel()
	table, wait := freshTable(t), pool(t, nil)
	wait.SetMaxOpenConns(3) // so that renewals use one
	l, err := New(pool(t, nil), &Options{Table: table, Create: true, WaitDB: wait})
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	for range 2 {
		conn, err := wait.Conn(t.Context())
		testkit.Must(t, err)
		defer conn.Close()
	}
	_, err = wait.Exec("BEGIN")
	testkit.Must(t, err)
	lock, err := l.TryLock(t.Context(), testkit.Owner())
	testkit.Must(t, err)
	for range 3 { // it is renewed in the same way, and at once
		testkit.Must(t, lock.Extend(t.Context(), time.Minute))
	}
	testkit.Must(t, lock.Unlock(t.Context()))
}
