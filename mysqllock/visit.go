package mysqllock

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"
)

// visit is what a claim does about the bell of its name.
type visit struct {
	bell     *bell         // nil until it waits for it
	willRing bool          // the last Try was told to wait for the bell
	late     bool          // it need not wait for the bell any longer
	looks    int           // Tries for which nobody has rung
	pause    time.Duration // before the latest of them

	ringing ringing // guarded by bells.mu, as is granted
	granted time.Time
}

// via is how the claim comes to its next Try; acquire.sql has the numbers.
func (c *claim) via() int64 {
	switch {
	case c.driver.bells == nil || c.request.NoWait || c.late:
		return 0
	case c.bell == nil:
		return 1
	case c.bell.over() && c.bell.conn != nil:
		return 2
	}
	return 0
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
// known to have been done. Nothing is lost otherwise: a release can be repeated.
func (c *claim) releaseAndRing(ctx context.Context) bool {
	if c.bell == nil || !c.bell.over() || c.bell.conn == nil {
		return false
	}
	v := c.values()
	v.bell = c.bell.name.bell
	text := c.driver.sql.fill("release-and-ring", v)
	_, rows, err := c.driver.exec(ctx, func(ctx context.Context) (sql.Result, error) {
		return c.bell.conn.ExecContext(ctx, text)
	})
	c.bell.rung = err == nil && rows == 1
	return c.bell.rung
}

// leave is called when the claim neither has nor wants its name any more.
func (c *claim) leave() {
	if c.bell != nil {
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
	c.late = b.suspects(c.request.Name)
	if c.bell == nil && !c.late && (c.willRing || c.looks >= bellPolls) {
		c.bell = b.queue(c.request.Name)
	}
	if c.bell != nil && !c.bell.over() {
		select {
		case <-c.bell.done:
			return nil
		case <-ctx.Done():
			c.late = true
			return ctx.Err()
		}
	}
	c.looks++
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
		var got sql.NullBool
		err = conn.QueryRowContext(ctx, w.bells.sql.fill("await-bell", w.name)).Scan(&got)
		if err == nil && got.Bool {
			w.conn = conn
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
