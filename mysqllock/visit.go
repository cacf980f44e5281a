package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"
)

// visit is what a claim does about the bell of its name.
type visit struct {
	bell    *bell         // nil until it waits for it
	invited bool          // the last Try said that it should
	past    bool          // its bell is of no use: the claim tries without
	yields  int           // how often it has given the bell back
	pause   time.Duration // before the latest Try for which nobody rang

	ringing ringing // guarded by bells.mu, as is granted
	granted time.Time
}

// How a claim comes to its next Try; acquire.sql acts on it.
const (
	viaNothing  = iota // a TryLock, or the bell is of no use
	viaPath            // on the way to the bell
	viaFreeBell        // with the bell, which nobody had
	viaBell            // with the bell, for which it has waited
)

func (c *claim) via() int64 {
	switch {
	case c.driver.bells == nil || c.request.NoWait || c.past:
		return viaNothing
	case c.bell == nil || !c.bell.over():
		return viaPath
	case c.bell.conn == nil:
		return viaNothing
	case c.bell.waited:
		return viaBell
	}
	return viaFreeBell
}

// arrived is called when the claim has got its name.
func (c *claim) arrived() {
	switch b := c.driver.bells; {
	case b == nil:
	case c.bell == nil || c.bell.over() && c.bell.conn == nil:
		b.later(c)
	case !c.bell.over():
		b.suspect(c.request.Name) // the name was free, and its bell is not
	}
}

// releaseAndRing releases a name together with its bell, and reports whether that is
// known to have been done. An error says that it is not known: to release the name once
// more, at once, might find it with the next in line, and take that for a loss.
func (c *claim) releaseAndRing(ctx context.Context) (bool, error) {
	if c.bell == nil || !c.bell.over() || c.bell.conn == nil {
		return false, nil
	}
	v := c.values()
	v.bell = c.bell.name.bell
	text := c.driver.sql.fill("release-and-ring", v)
	_, rows, err := c.driver.exec(ctx, func(ctx context.Context) (sql.Result, error) {
		return c.bell.conn.ExecContext(ctx, text)
	})
	var refused *mysql.MySQLError
	if errors.Is(err, sqldriver.ErrBadConn) || errors.As(err, &refused) {
		return false, nil // not sent, or not carried out
	}
	c.bell.rung = err == nil && rows == 1
	return c.bell.rung, err
}

// leave is called when the claim neither has nor wants its name any more.
func (c *claim) leave() {
	if c.bell != nil {
		if c.bell.over() && c.bell.conn != nil {
			c.driver.bells.trust(c.request.Name)
		}
		c.bell.ring()
		c.bell = nil
	}
	if b := c.driver.bells; b != nil {
		b.ring(c)
	}
}

// Wait implements distlock.Claim.
func (c *claim) Wait(ctx context.Context) error {
	b := c.driver.bells
	if b == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	c.past = b.suspects(c.request.Name)
	switch {
	case c.bell == nil && !c.past && c.invited:
		c.bell = b.queue(c.request.Name)
	case c.via() == viaFreeBell && c.yields < maxYields:
		// The name is held, and nobody has its bell: it is as yet the holder's.
		c.yields++
		c.bell.ring()
		c.bell = nil
	}
	if c.bell != nil && !c.bell.over() {
		select {
		case <-c.bell.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.pause = min(max(c.pause*8/5, minPoll), maxPoll)
	timer := time.NewTimer(c.pause*3/4 + rand.N(c.pause/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bell is one claim's wait for the bell of its name, and then the bell.
type bell struct {
	bells  *bells
	name   values
	cancel context.CancelFunc
	done   chan struct{} // closed when the wait is over
	conn   *sql.Conn     // has the bell, once done; nil if it was not to be had
	waited bool          // somebody else had it before
	rung   bool          // it has been let go of
}

// queue begins to wait for the bell of a name.
func (b *bells) queue(lock string) *bell {
	ctx, cancel := context.WithCancel(context.Background())
	w := &bell{bells: b, name: b.name(lock), cancel: cancel, done: make(chan struct{})}
	select {
	case b.slots <- struct{}{}:
		go w.await(ctx)
	default:
		close(w.done)
	}
	return w
}

func (w *bell) await(ctx context.Context) {
	defer close(w.done)
	conn, err := w.bells.db.Conn(ctx)
	if err == nil {
		var got int
		err = conn.QueryRowContext(ctx, w.bells.sql.fill("await-bell", w.name)).Scan(&got)
		if err == nil && got > 0 {
			w.conn, w.waited = conn, got == viaBell
			return
		}
		discard(conn) // it may have the bell after all, should the answer be late
	}
	<-w.bells.slots
}

// over reports whether the wait is.
func (w *bell) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// ring ends the wait, or lets go of the bell.
func (w *bell) ring() {
	w.cancel()
	<-w.done // soon: the client library returns when its context ends
	if w.conn == nil {
		return
	}
	if w.rung || w.send() == nil {
		_ = w.conn.Close() // back to its pool
	} else {
		discard(w.conn)
	}
	<-w.bells.slots
}

func (w *bell) send() error {
	ctx, cancel := context.WithTimeout(context.Background(), bellTimeout)
	defer cancel()
	_, err := w.conn.ExecContext(ctx, w.bells.sql.fill("ring-bell", w.name))
	return err
}
