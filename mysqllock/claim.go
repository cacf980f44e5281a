package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/turns"
)

// MinTTL is the shortest lease: a commit may take tens of milliseconds on a busy
// disk, and a renewal every third of the TTL must get through in time.
const MinTTL = 100 * time.Millisecond

// maxReadingAge is how long a renewal may have waited for its row since it read the clock; see undo.sql.
const maxReadingAge = time.Minute

// store sends the statements. It is safe for concurrent use.
type store struct {
	db                     *sql.DB
	pools                  []*sql.DB // that were opened here
	lent                   bool      // none was: see on
	sql                    *statements
	acquire, take, release *prepared
	locks                  *namedLocks // nil if waiters poll
	renewals               *renewals
	turns                  *turns.Turns
	log                    *slog.Logger // nil if there is none
	freed                  turns.Marks  // names that this driver was the last to give back
}

var (
	_ driver.Driver      = (*store)(nil)
	_ driver.Inspector   = (*store)(nil)
	_ driver.Breaker     = (*store)(nil)
	_ driver.Sweeper     = (*store)(nil)
	_ driver.LockWrapper = (*store)(nil)
	_ driver.Claim       = (*claim)(nil)
)

// Capabilities implements driver.Driver.
func (d *store) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Backend:    "mysql",
		Push:       d.locks != nil,
		Durability: driver.Restart,
		MinTTL:     MinTTL,
	}
}

// Claim implements driver.Driver.
func (d *store) Claim(r driver.Request) driver.Claim { return &claim{driver: d, request: r} }

// WrapLock implements driver.LockWrapper.
func (d *store) WrapLock(h *driver.Handle, c driver.Claim) distlock.Lock {
	return &Lock{Handle: h, claim: c.(*claim)}
}

// claim is one acquisition of a name. Its fields are used by one call at a time, but for
// those that sharedConn guards.
type claim struct {
	driver    *store
	request   driver.Request
	won       bool // a Try has returned a grant
	ambiguous bool // a Try has failed without an answer: its statement may be applied yet
	refused   bool // a Try has found the name held, so the claim waits

	waiting
}

// values returns what the statements about this claim are completed with.
func (c *claim) values() values {
	return values{name: hexOf(c.request.Name), owner: c.request.Owner, holder: hexOf(c.request.Holder)}
}

// Try implements driver.Claim.
//
// The server reads its clock at the start of the statement, which may then wait for the row.
// So a grant that took long has a lease that is partly over, and its token may be too low: others
// may have held the name meanwhile, and a sweep removed their row. Such a grant is asked for
// again. A sweep leaves rows that are younger than minIdle, so the token of a quick one is not
// old. What a Try has left that had no answer may be as old as that Try.
//
//	acquire sent ── waits for a connection ── statement starts ── waits for the row ── granted
//	                                          └ token; lease, by the server's clock ─────▶
//	└ lease, as the caller believes: never later than the server's ──────────────────────▶
func (c *claim) Try(ctx context.Context) (driver.Grant, error) {
	sent := time.Now()
	grant, err := c.try(ctx)
	if err == nil && (c.ambiguous || time.Since(sent) > min(c.request.TTL/8, minIdle/2)) {
		grant, err = c.regrant(ctx, grant.Token)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	c.won = true
	c.granted()
	return grant, nil
}

// regrant starts the lease of a grant anew, and raises its token. It is done once: if it
// takes as long, then requests take that long. The token is right then, too, since nobody else
// has had the row.
func (c *claim) regrant(ctx context.Context, seen int64) (driver.Grant, error) {
	ttl := roundUp(c.request.TTL)
	v := c.values()
	v.number, v.seen = strconv.FormatInt(ttl.Microseconds(), 10), strconv.FormatInt(seen, 10)
	send := c.driver.plain(c.driver.db, c.driver.sql.fill("regrant", v))
	var token int64
	// Not repeated by the engine, for which Again means that the claim has left nothing: the
	// grant stands.
	err := driver.Insist(ctx, func() (err error) {
		token, _, err = c.exec(ctx, turns.Trying, send)
		return err
	})
	switch {
	case err != nil:
		c.ambiguous = true // the grant stands, whatever has become of this
		return driver.Grant{}, &driver.Fault{Fate: driver.Unknown, Err: err}
	case token == 0:
		c.ambiguous = true // Break may have ended it, as one that the claim has not heard of
		return driver.Grant{}, &driver.Fault{Fate: driver.Again, Err: errors.New("the lease has ended before the claim knew of it")}
	}
	return driver.Grant{Token: token, TTL: ttl}, nil
}

func (c *claim) try(ctx context.Context) (driver.Grant, error) {
	ttl := roundUp(c.request.TTL)
	answer, err := int64(0), error(nil)
	// take.sql answers 0 if it does not fit. Then acquire.sql decides, so a wrong guess costs
	// one request.
	if c.driver.freed.Remove(c.request.Name) || c.via() >= viaFreeLock {
		answer, err = c.send(ctx, c.driver.take, ttl)
	}
	if answer == 0 && err == nil {
		answer, err = c.send(ctx, c.driver.acquire, ttl)
	}
	switch {
	case c.refused && hasNumber(err, errNoTable): // it was there, so it may be being renamed or made anew
		return driver.Grant{}, &driver.Fault{Fate: driver.NotNow, Err: err}
	case hasNumber(err, errLockWait):
		return driver.Grant{}, c.behindTransaction(ctx, err)
	case err != nil:
		return driver.Grant{}, err
	case answer < 0:
		// The lowest bit says whether to wait for the named lock; see acquire.sql.
		c.refused = true
		return driver.Grant{}, &driver.Held{
			HeldError: distlock.HeldError{Remaining: micros(answer / -2)},
			NoWake:    !c.refusal(answer%2 != 0),
		}
	case answer == 0 && c.ambiguous:
		// Break has ended a hold that the claim has not heard of. What was sent for that owner is refused from now on, but
		// the claim may go on as another.
		c.request.Owner, c.ambiguous = newOwner(), false
		return driver.Grant{}, &driver.Fault{Fate: driver.Again, Err: errors.New("the hold was broken before the claim knew of it")}
	case answer == 0:
		c.ambiguous = true // it may have taken the row
		return driver.Grant{}, errors.New("the server refused the acquisition as undone, or what is between loses LAST_INSERT_ID")
	}
	return driver.Grant{Token: answer, TTL: ttl}, nil
}

// behindTransaction is the answer to a claim that has not got its row in time. A transaction may have it, such as that of a Guard,
// which may outlast the lease: then the name is not to be had, and a call of Lock is not to fail of that. Nothing tells when the
// transaction ends, so the claim polls. Where the lease is over, remaining.sql looks at the row as it was before that transaction, and
// locked.sql makes sure that it is the row which is locked: of a table that is locked whole, for a backup, names that nobody holds
// would count as held.
func (c *claim) behindTransaction(ctx context.Context, err error) error {
	left, found, failed := c.number(ctx, "remaining")
	if failed != nil || !found {
		return err
	}
	if left <= 0 && !c.rowLocked(ctx) {
		return err
	}
	c.refused = true
	return &driver.Held{HeldError: distlock.HeldError{Remaining: max(micros(left), 0)}, NoWake: true}
}

// rowLocked reports whether another transaction has the row, if the server can say so.
func (c *claim) rowLocked(ctx context.Context) bool {
	if !c.driver.renewals.skip {
		return false
	}
	_, free, err := c.number(ctx, "locked")
	return err == nil && !free
}

// number sends a statement that answers with a number, or with nothing.
func (c *claim) number(ctx context.Context, statement string) (n int64, found bool, err error) {
	err = c.driver.query(ctx, c.driver.db, c.driver.sql.fill(statement, c.values()), func(row *sql.Rows) error {
		found = true
		return row.Scan(&n)
	})
	return n, found, err
}

// send sends take.sql or acquire.sql.
func (c *claim) send(ctx context.Context, p *prepared, ttl time.Duration) (int64, error) {
	// Kept for Wait: the named lock may come while the request is under way.
	c.came = c.via()
	answer, _, err := c.exec(ctx, turns.Trying, p.with(c.values(), ttl.Microseconds(), c.came))
	c.ambiguous = c.ambiguous || driver.FateOf(err) == driver.Unknown
	return answer, err
}

// micros is a number of microseconds of an answer as a duration, or as near to it as one can be.
func micros(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(max(min(n, most), -most)) * time.Microsecond
}

// roundUp brings a TTL to the granularity that Capabilities state by default.
// A lease must not be shorter than the caller asked for.
func roundUp(ttl time.Duration) time.Duration {
	return (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
}

// Release implements driver.Claim. A claim that was told "held" at every Try has
// left nothing and sends nothing. Where a late request may come, undo.sql says what has become
// of the claim, and keeps that request from being applied.
//
//	"held" at every Try ──▶ nothing
//	has the named lock  ──▶ release-and-wake.sql ──▶ one row: done
//	                                             ──▶ none, or not sent: as below
//	won                 ──▶ release.sql ──▶ one row: done
//	                                    ──▶ none: lost
//	ambiguous           ──▶ undo.sql
func (c *claim) Release(ctx context.Context) error {
	d := c.driver
	defer c.leave() // after the row is free, so that waiters find it so
	if d.locks != nil {
		// Side by side with the release of the row: to wake a waiter up takes a round trip
		// longer, so that it finds the row free, or locked for that moment. If not, it polls.
		d.locks.shared.leave(c)
	}
	if !c.won && !c.ambiguous {
		return nil
	}
	if !c.ambiguous {
		if done, err := c.releaseBoth(ctx); done || err != nil {
			c.won = !done
			return err
		}
		_, rows, err := c.exec(ctx, turns.Releasing, d.release.with(c.values()))
		if err != nil {
			return err
		}
		if rows == 1 {
			c.won = false
			d.freed.Set(c.request.Name, freedFor)
			return nil
		}
		return distlock.ErrLost
	}
	answer, _, err := c.exec(ctx, turns.Releasing, d.plain(d.db, d.sql.fill("undo", c.values())))
	switch {
	case err != nil:
		return err
	case c.won && answer != 1:
		return distlock.ErrLost
	}
	c.won, c.ambiguous = false, false
	return nil
}

// releaseBoth releases a name together with its named lock, and reports whether it has done
// so. An error says that this is not known: to release the name once more, at once, might
// find it with the next in the queue, and take that for a loss.
func (c *claim) releaseBoth(ctx context.Context) (bool, error) {
	w := c.waiter
	if w == nil || !w.over() || w.conn == nil {
		return false, nil
	}
	v := c.values()
	v.lock = w.name.lock
	text := c.driver.sql.fill("release-and-wake", v)
	// This connection may hang alone, as it may have been idle for the whole hold. Then the next call to Release, through the
	// pool, is to have time.
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	_, rows, err := c.driver.exec(ctx, func(ctx context.Context) (sql.Result, error) {
		// After Break, the server has closed this connection. Then the release goes
		// through the pool.
		if err := alive(ctx, w.conn); err != nil {
			return nil, err
		}
		return w.conn.ExecContext(ctx, text)
	})
	if err != nil && driver.FateOf(err) != driver.Unknown {
		return false, nil // not sent, or not carried out
	}
	// RELEASE_LOCK runs only if the statement finds the row. If it does not, leave releases
	// the named lock.
	w.released = err == nil && rows == 1
	return w.released, err
}

// alive returns ErrBadConn if the server has closed a connection, as after Break. It sends
// nothing: if a request fails, it may have been carried out, and that would hide the loss of
// the lock. A pool looks before each use, but not at connections that it has given out.
func alive(ctx context.Context, conn *sql.Conn) error {
	return conn.Raw(func(c any) error {
		if r, ok := c.(sqldriver.SessionResetter); ok {
			return r.ResetSession(ctx)
		}
		return nil
	})
}

// request sends a statement.
type request func(context.Context) (sql.Result, error)

// plain is a request of a statement as text.
func (d *store) plain(db *sql.DB, text string) request {
	return func(ctx context.Context) (result sql.Result, err error) {
		err = d.on(ctx, db, func(s sender) error { result, err = s.ExecContext(ctx, text); return err })
		return result, err
	}
}

// exec sends a request about the name of the claim, when it is the claim's turn.
func (c *claim) exec(ctx context.Context, kind turns.Kind, send request) (answer, rows int64, err error) {
	d := c.driver
	err = d.turns.Run(ctx, c.request.Name, kind, func() error {
		began := time.Now()
		answer, rows, err = d.exec(ctx, send)
		d.closeIdleAfter(ctx, err, time.Since(began))
		return err
	})
	return answer, rows, err
}

// exec sends a request and returns what it put into LAST_INSERT_ID, and how many
// rows it changed (or matched: that depends on the connection).
func (d *store) exec(ctx context.Context, send request) (answer, rows int64, err error) {
	result, err := send(ctx)
	if err == nil {
		answer, err = result.LastInsertId()
	}
	if err == nil {
		rows, err = result.RowsAffected()
	}
	if hasNumber(err, readOnly...) {
		d.redial(ctx)
	}
	return answer, rows, fault(err)
}
