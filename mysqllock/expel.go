package mysqllock

import (
	"context"
	"database/sql"
	"strconv"
	"time"
)

// expel ends the connection that keeps the named lock of a name without holding the name: its process has died, or is frozen,
// and all that wait behind it would sleep on. Until then, or where that is not allowed, claims of this process do without the
// named lock. Mostly the lease of its holder has just ended, and it is about to be released: its connection may have
// the named locks of a thousand other names, so it has a second for that.
func (d *store) expel(w *waiter, name string) {
	l := d.locks
	l.disabled.Set(name, disabledFor)
	l.shared.background(func() {
		conn, err := d.connOf(name)
		if err == nil && conn > 0 && !w.comesWithin(l.expelAfter) {
			err = d.endLockOf(conn, name)
		}
		if err == nil {
			l.disabled.Remove(name)
		}
	})
}

// comesWithin reports whether the named lock comes to w in the time d. It returns sooner only if it does.
func (w *waiter) comesWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.done:
		if w.conn != nil {
			return true
		}
		<-timer.C
	case <-timer.C:
	}
	return false
}

// connOf asks which connection has the named lock of a name; 0 if there is none.
func (d *store) connOf(name string) (conn int64, err error) {
	err = d.ask(context.Background(), lockTimeout, d.sql.fill("used-lock", d.sql.namedLock(name)), func(row *sql.Rows) error { return row.Scan(&conn) })
	return conn, err
}

// endLockOf ends a connection if that has the named lock of a name.
func (d *store) endLockOf(conn int64, name string) error {
	lock := d.sql.namedLock(name)
	lock.number = strconv.FormatInt(conn, 10)
	_, err := d.change(context.Background(), lockTimeout, "end-lock-of", lock)
	if hasNumber(err, errNoThread) {
		return nil // another has it by now
	}
	return err
}

// endLock ends whatever connection has the named lock of a name. It takes no more than named locks away: waiters of
// other names, for which it has some, wake up, too, and poll.
func (d *store) endLock(ctx context.Context, name string) {
	_, _ = d.change(ctx, lockTimeout, "end-lock", d.sql.namedLock(name))
}
