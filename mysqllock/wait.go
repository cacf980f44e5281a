package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"time"

	"github.com/distlock-go/distlock/internal/turns"
)

// A table cannot tell a waiter that a name is free. A named lock (GET_LOCK) can: the
// holder of a name has it, the waiters sleep in GET_LOCK, and the server wakes them up
// in the order in which they came.
//
//	holder                        server                          waiter
//	acquire ───────────────────▶  row: held
//	  takeDelay later
//	GET_LOCK ──────────────────▶  lock: the holder's
//	                              row: held, waited = now  ◀───── acquire: held, wait for the lock
//	                              lock: queue of one       ◀───── GET_LOCK, on its own connection
//	release, RELEASE_LOCK ─────▶  lock: the waiter's  ─────────▶  wakes up
//	     (one statement)          row: free, committed
//	                              row: held            ◀───────── take, which may wait for that commit
//	                              lock: the waiter's still, so that its release wakes up the next
//
// The row is the truth, and only speed and order rest on the named lock: a waiter that has it
// and finds the name held polls, and one that does not get it tries all the same. So a named
// lock may end with its connection, stay with a frozen process, be another on each server of a
// cluster, or be refused by a proxy.
//
// A connection can wait for one named lock only. So each claim that waits, or holds its name
// after having waited, has one for that time, up to a limit; further claims poll. A claim that
// takes a free name has none: if it still holds the name after takeDelay, the named lock is
// taken on one connection that all such claims share. That, and the column wakes, are for speed:
// without them waiters poll at first.
//
// Where holds are shorter than takeDelay, a former holder would come back faster than the next
// in the queue wakes up. So the row says when a claim last had to wait: for a second, a free name
// is kept for claims with its named lock; see free.sql.
type namedLocks struct {
	db    *sql.DB
	lent  bool // the pool is the user's
	sql   *statements
	conns chan struct{} // one element per claim that has a connection

	shared sharedConn

	expelAfter time.Duration // the constant, but in tests

	// The named locks of these names are of no use: a process has them without holding the name.
	disabled turns.Marks
}

const (
	// takeDelay is how long a claim holds its name before the named lock is taken, so that
	// shorter holds cost nothing more. After lockTaken that has been done, or has failed:
	// claims that find the name held wait for the lock instead of polling. The time between
	// is for the first dial. A waiter polls for 13 ms of a new hold at the most: at 5 ms,
	// and once more.
	takeDelay = 2 * time.Millisecond
	lockTaken = 10 * time.Millisecond

	// maxYields is how often a waiter gives back a lock that nobody had. A slow holder may
	// be about to take it. After that the waiter keeps it, and polls.
	maxYields = 5

	// disabledFor is for how long claims do not wait for a named lock that a process keeps
	// without holding the name. It may be frozen, or its machine may have gone away without
	// a word: then the server may keep the connection for hours.
	disabledFor = time.Minute

	// rejoinAfter is how long a claim polls after its wait has failed, before it begins
	// another: all connections may have been taken, or its own was lost in an outage, and
	// the holder may stay for days.
	rejoinAfter = time.Second

	// expelAfter is for how long a connection may have a named lock after another claim got the name.
	expelAfter = time.Second
)

// newNamedLocks returns the named locks of a table. At most limit claims wait at a time.
func newNamedLocks(db *sql.DB, s *statements, limit int) *namedLocks {
	l := &namedLocks{db: db, sql: s, conns: make(chan struct{}, limit), expelAfter: expelAfter}
	l.shared.connect, l.shared.sql = l.conn, s
	return l
}

// conn returns a connection to wait on. The release of a name goes over it, too.
func (l *namedLocks) conn(ctx context.Context) (*sql.Conn, error) {
	if l.lent {
		return settled(ctx, l.db, l.sql.text["settle"])
	}
	return l.db.Conn(ctx)
}

// ask sends a statement about a named lock. Each answers with a number.
func (s *statements) ask(ctx context.Context, conn *sql.Conn, statement string, lock values) (answer int, err error) {
	err = conn.QueryRowContext(ctx, s.fill(statement, lock)).Scan(&answer)
	return answer, err
}

// discard closes a connection for good, and with it what it has on the server.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}

// waiting is what a claim knows and has of the named lock of its name.
type waiting struct {
	waiter  *waiter // nil until the claim waits for it
	came    int64   // how the claim came to its last Try
	invited bool    // the last Try said that it should
	without bool    // the named lock is disabled: the claim tries without
	yields  int     // how often it was given back

	onShared sharedState // guarded by sharedConn.mu, as is timer
	timer    *time.Timer // of takeDelay
}

// How a claim comes to its next Try; acquire.sql acts on it.
const (
	viaNothing  = iota // a TryLock, or the named lock is of no use
	viaWaiting         // on the way to the named lock, or waiting for it
	viaFreeLock        // with the named lock, which nobody had
	viaLock            // with the named lock, for which it has waited
)

func (c *claim) via() int64 {
	switch {
	case c.driver.locks == nil || c.request.NoWait || c.without:
		return viaNothing
	case c.waiter == nil || !c.waiter.over():
		return viaWaiting
	case c.waiter.conn == nil:
		return viaNothing
	case c.waiter.waited:
		return viaLock
	}
	return viaFreeLock
}

// granted is called when the claim has got its name.
func (c *claim) granted() {
	switch l := c.driver.locks; {
	case l == nil:
	case c.waiter == nil || c.waiter.over() && c.waiter.conn == nil:
		l.shared.takeLater(c)
	case !c.waiter.over() && !c.without:
		c.driver.expel(c.waiter, c.request.Name)
	}
}

// refusal is called when the name is held, and reports whether a release will wake the
// claim up.
func (c *claim) refusal(invited bool) (wakes bool) {
	l := c.driver.locks
	if l == nil {
		return false
	}
	c.invited, c.without = invited, l.disabled.Has(c.request.Name)
	if c.waiter == nil {
		return c.invited && !c.without && len(l.conns) < cap(l.conns)
	}
	return c.came == viaWaiting
}

// Wait implements driver.Claim.
func (c *claim) Wait(ctx context.Context) error {
	// A wait for the named lock that was over before the last Try wakes nobody any more.
	wakes := c.came == viaWaiting
	if w := c.waiter; w != nil && w.over() && w.conn != nil && alive(ctx, w.conn) != nil {
		c.leave() // the named lock has ended with its connection, and may be another's
	}
	switch {
	case c.invited && !c.without && (c.waiter == nil || c.waiter.mayRejoin()):
		c.waiter, wakes = c.driver.locks.join(c.request.Name), true
	case c.came == viaFreeLock && c.waiter != nil && c.yields < maxYields:
		// The name is held, and nobody has its lock: it is as yet the holder's.
		c.yields++
		c.leave()
	}
	var woken <-chan struct{}
	if c.waiter != nil && wakes {
		woken = c.waiter.done // closed already if the lock has come since that Try
	}
	select {
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave is called when the claim neither has nor wants its name any more.
func (c *claim) leave() {
	w := c.waiter
	if w == nil {
		return
	}
	if w.over() && w.conn != nil {
		// It has come: a process that was stopped may have found the name free before it saw that.
		c.driver.locks.disabled.Remove(c.request.Name)
	}
	w.leave()
	c.waiter = nil
}

// waiter is one claim's wait for the named lock, and then the lock.
type waiter struct {
	locks    *namedLocks
	name     values
	cancel   context.CancelFunc
	done     chan struct{} // closed when the wait is over
	conn     *sql.Conn     // has the named lock, once done; nil if it was not to be had
	waited   bool          // another had it before
	released bool
	joined   time.Time
}

// join begins to wait for the named lock of a name. The goroutine outlives the call to Wait: the
// next call finds the claim still in the server's queue.
func (l *namedLocks) join(name string) *waiter {
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiter{locks: l, name: l.sql.namedLock(name), cancel: cancel, done: make(chan struct{}), joined: time.Now()}
	select {
	case l.conns <- struct{}{}:
		go w.wait(ctx)
	default:
		// No connection is left: the wait has failed at once, and the claim polls.
		close(w.done)
	}
	return w
}

func (w *waiter) wait(ctx context.Context) {
	defer close(w.done)
	conn, err := w.locks.conn(ctx)
	if err == nil {
		var got int
		if got, err = w.locks.sql.ask(ctx, conn, "await-lock", w.name); err == nil && got > 0 {
			w.conn, w.waited = conn, got == viaLock
			return
		}
		discard(conn) // it may have the lock after all, should the answer be late
	}
	<-w.locks.conns
}

// over reports whether the wait is.
func (w *waiter) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// mayRejoin reports whether the wait has failed, and rejoinAfter has passed.
func (w *waiter) mayRejoin() bool {
	return w.over() && w.conn == nil && time.Since(w.joined) > rejoinAfter
}

// leave ends the wait, or releases the named lock, in the background. A connection that
// has been told that, or has nothing to release, goes back to its pool at once.
func (w *waiter) leave() {
	w.cancel()
	if w.over() && (w.conn == nil || w.released) {
		w.end()
	} else {
		w.locks.shared.background(w.end)
	}
}

func (w *waiter) end() {
	<-w.done // soon: the client library returns when its context ends
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	var err error
	if !w.released {
		_, err = w.locks.sql.ask(ctx, w.conn, "release-lock", w.name)
	}
	if err != nil {
		discard(w.conn)
	} else {
		_ = w.conn.Close() // back to its pool
	}
	<-w.locks.conns
}
