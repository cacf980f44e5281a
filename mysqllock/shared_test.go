package mysqllock

import (
	"database/sql"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// takesLock waits until the named lock of a claim that holds its name is taken. A server that did not answer for lockTimeout, as on a
// machine that was late, is asked again: the driver would let waiters poll.
func takesLock(t *testing.T, c *claim) {
	t.Helper()
	s := &c.driver.locks.shared
	testkit.Until(t, "the named lock is taken", func() bool {
		s.mu.Lock()
		state, given := c.onShared, c.timer == nil && !s.works && len(s.takes) == 0
		s.mu.Unlock()
		if state == toBeTaken && given {
			t.Log("the named lock was not taken: asked again")
			s.enqueueTake(c)
		}
		return state == taken
	})
}

// givesBack waits until the connection that named locks share is back in its pool.
func givesBack(t *testing.T, l *namedLocks) {
	t.Helper()
	testkit.Until(t, "the connection is given back", func() bool {
		l.shared.mu.Lock()
		defer l.shared.mu.Unlock()
		return !l.shared.works && l.shared.conn == nil
	})
}

// stalls has requests on the connection that named locks share wait for resume, as behind one
// that hangs.
func stalls(t *testing.T, l *namedLocks) (resume func()) {
	t.Helper()
	testkit.Until(t, "nothing is asked about named locks", func() bool {
		l.shared.mu.Lock()
		defer l.shared.mu.Unlock()
		was := l.shared.works
		l.shared.works = true
		return !was
	})
	return func() { l.shared.background(l.shared.work) }
}

// TestSharedConnIsCheap has the connection that named locks share hang, while many claims want
// theirs taken, and then released: they wait in a list, and not in a goroutine each.
func TestSharedConnIsCheap(t *testing.T) {
	l := openLockers(t, 1, Options{})[0]
	locks := l.driverOf(t).locks
	resume := stalls(t, locks)
	queued := func() int {
		locks.shared.mu.Lock()
		defer locks.shared.mu.Unlock()
		return len(locks.shared.takes) + len(locks.shared.ends)
	}
	var held []distlock.Lock
	for i := range 100 {
		h, err := l.Lock(t.Context(), fmt.Sprint(i))
		testkit.Must(t, err)
		held = append(held, h)
	}
	testkit.Until(t, "every claim has asked for its named lock", func() bool { return queued() == len(held) })
	testkit.AtMost(t, "goroutines that wait for the connection", 0, func() int {
		var all strings.Builder
		testkit.Must(t, pprof.Lookup("goroutine").WriteTo(&all, 2))
		return strings.Count(all.String(), "(*sharedConn).")
	})
	resume()
	for _, h := range held {
		takesLock(t, h.(*Lock).claim)
	}
	resume = stalls(t, locks)
	for _, h := range held {
		testkit.Should(t, h.Unlock(t.Context()))
	}
	if n := queued(); n != len(held) {
		t.Errorf("%d named locks are to be released, want %d", n, len(held))
	}
	resume()
	givesBack(t, locks)
}

// TestCloseEndsLocks closes the named locks of a driver while a claim has one and its release has
// not returned. The pool goes on, and must not keep it.
func TestCloseEndsLocks(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	holdsWithLock(t, d)
	locks := d.locks
	d.locks = nil
	locks.shared.close()
	lockIsFree(t, d.db, locks.sql.namedLock("n").lock)
}

// usesLock returns the connection that has the named lock of a name, 0 if there is none.
func usesLock(t *testing.T, d *store, name string) int64 {
	t.Helper()
	conn, err := d.connOf(name)
	testkit.Must(t, err)
	return conn
}

// lockIsFree waits until nobody has a named lock.
func lockIsFree(t *testing.T, db *sql.DB, lock string) {
	t.Helper()
	testkit.Until(t, "the named lock is free", func() bool {
		var free bool
		testkit.Must(t, db.QueryRow("SELECT IS_FREE_LOCK(x'"+lock+"')").Scan(&free))
		return free
	})
}
