package mysqllock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

// MinTTL is the shortest lease: a commit may take tens of milliseconds on a busy
// disk, and a renewal every third of the TTL must get through in time.
const MinTTL = 100 * time.Millisecond

// driver sends the statements. It is safe for concurrent use.
type driver struct {
	db                     *sql.DB
	closers                []io.Closer // pools that were opened here
	sql                    *statements
	acquire, take, release *prepared
	bells                  *bells // nil if waiters poll
	left                   left
}

var (
	_ distlock.Driver       = (*driver)(nil)
	_ distlock.BatchRenewer = (*driver)(nil)
	_ distlock.Inspector    = (*driver)(nil)
	_ distlock.Breaker      = (*driver)(nil)
	_ distlock.Sweeper      = (*driver)(nil)
	_ distlock.LockWrapper  = (*driver)(nil)
	_ distlock.Claim        = (*claim)(nil)
)

// start makes sure that the table can be used, and prepares what every lock needs.
func (d *driver) start(ctx context.Context, create bool) (err error) {
	if err := d.sql.ensure(ctx, d.db, create); err != nil {
		return err
	}
	for statement, p := range map[string]**prepared{"acquire": &d.acquire, "take": &d.take, "release": &d.release} {
		if *p, err = d.sql.prepare(ctx, d.db, statement); err != nil {
			return err
		}
	}
	return nil
}

// Close gives back what the driver has on the server: its prepared statements, and
// the pools if they were opened here.
func (d *driver) Close() error {
	var errs []error
	if d.bells != nil {
		d.bells.close()
	}
	for _, p := range []*prepared{d.acquire, d.take, d.release} {
		if p != nil {
			errs = append(errs, p.stmt.Close())
		}
	}
	for _, c := range d.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Capabilities implements distlock.Driver.
func (d *driver) Capabilities() distlock.Capabilities {
	return distlock.Capabilities{
		Backend:    "mysql",
		Push:       d.bells != nil,
		Durability: distlock.Restart,
		MinTTL:     MinTTL,
	}
}

// Claim implements distlock.Driver.
func (d *driver) Claim(r distlock.Request) distlock.Claim { return &claim{driver: d, request: r} }

// WrapLock implements distlock.LockWrapper.
func (d *driver) WrapLock(h *distlock.Handle, c distlock.Claim) distlock.Lock {
	return &Lock{Handle: h, claim: c.(*claim)}
}

// claim is one bid. Its fields are used by one call at a time, but for those of its
// driver's bells.
type claim struct {
	driver  *driver
	request distlock.Request
	won     bool // a Try has returned a grant
	unsure  bool // a Try has failed without an answer: its statement may be applied yet

	visit
}

// values returns what the statements about this claim are completed with.
func (c *claim) values() values {
	return values{name: hexOf(c.request.Name), owner: c.request.Owner, holder: hexOf(c.request.Holder)}
}

// Try implements distlock.Claim.
//
// The server counts the lease from when the statement starts, but it may then wait
// for the row, as the call may before for a connection. A grant of which a good
// part is over already is asked for again, which starts the lease anew, or finds
// that it has been lost meanwhile. Once: if that takes as long, then this is how
// long requests take.
func (c *claim) Try(ctx context.Context) (distlock.Grant, error) {
	sent := time.Now()
	grant, err := c.take(ctx, sent)
	if err == nil && time.Since(sent) > c.request.TTL/8 {
		grant, err = c.take(ctx, time.Now())
	}
	if err == nil {
		c.won = true
		c.arrived()
	}
	return grant, err
}

func (c *claim) take(ctx context.Context, sent time.Time) (distlock.Grant, error) {
	ttl := roundUp(c.request.TTL)
	send := func(p *prepared) (answer int64, err error) {
		answer, _, err = c.driver.exec(ctx, p.with(c.values(), ttl.Microseconds(), c.via()))
		c.unsure = c.unsure || err != nil
		return answer, err
	}
	var answer int64
	var err error
	if c.driver.left.remove(c.request.Name) || c.via() >= viaFreeBell {
		answer, err = send(c.driver.take)
	}
	if answer == 0 && err == nil {
		answer, err = send(c.driver.acquire)
	}
	switch {
	case err != nil:
		return distlock.Grant{}, err
	case answer < 0:
		c.invited = answer%2 != 0
		return distlock.Grant{}, &distlock.HeldError{Remaining: time.Duration(-answer/2) * time.Microsecond}
	case answer == 0:
		return distlock.Grant{}, errors.New("the server refused the acquisition as undone, or what is between loses LAST_INSERT_ID")
	}
	return distlock.Grant{Token: answer, TTL: ttl, Sent: sent}, nil
}

// roundUp brings a TTL to the granularity that Capabilities state by default.
func roundUp(ttl time.Duration) time.Duration {
	return (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
}

// Renew implements distlock.Claim.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (distlock.Grant, error) {
	batch := []distlock.Renewal{{Claim: c, TTL: ttl}}
	c.driver.RenewBatch(ctx, batch)
	return batch[0].Grant, batch[0].Err
}

// Release implements distlock.Claim. A claim that was told "held" at every Try has
// left nothing and sends nothing; one that holds its name sends one statement, and
// any other a second one, which says what has become of it and keeps its late
// requests from being applied.
func (c *claim) Release(ctx context.Context) error {
	d := c.driver
	defer c.leave() // after the row is free, so that it is found so
	if !c.won && !c.unsure {
		return nil
	}
	if !c.unsure {
		if done, err := c.releaseAndRing(ctx); done || err != nil {
			c.won = !done
			return err
		}
		_, rows, err := d.exec(ctx, d.release.with(c.values()))
		if err != nil {
			return err
		}
		if rows == 1 {
			c.won = false
			d.left.add(c.request.Name)
			return nil
		}
	}
	answer, _, err := d.exec(ctx, d.plain("undo", c.values()))
	switch {
	case err != nil:
		return err
	case c.won && answer != 1:
		return distlock.ErrLost
	}
	c.won, c.unsure = false, false
	return nil
}

// RenewBatch implements distlock.BatchRenewer.
func (d *driver) RenewBatch(ctx context.Context, batch []distlock.Renewal) {
	running, err := d.renew(ctx, batch)
	for i := range batch {
		r := &batch[i]
		switch {
		case err != nil:
			r.Err = err
		case !running[r.Claim.(*claim).request.Owner]:
			r.Err = distlock.ErrLost
		default:
			r.Grant = distlock.Grant{TTL: roundUp(r.TTL)}
		}
	}
}

// renew prolongs the leases of the batch that run, and returns their owners. If the
// row count says that all do, that is known at once. If not, a second statement
// tells which; the count may also fall short because a lease reaches beyond its
// renewal, where the server reports changed rows, not matched ones. If the first has
// found none at all, it has no reading of the clock to answer with.
func (d *driver) renew(ctx context.Context, batch []distlock.Renewal) (map[string]bool, error) {
	var names, owners []string
	var ttls strings.Builder
	running := make(map[string]bool, len(batch))
	common := roundUp(batch[0].TTL)
	for _, r := range batch {
		request := &r.Claim.(*claim).request
		running[request.Owner] = true
		names = append(names, hexOf(request.Name))
		owners = append(owners, request.Owner)
		if ttl := roundUp(r.TTL); ttl != common {
			fmt.Fprintf(&ttls, " WHEN x'%s' THEN %d", request.Owner, ttl.Microseconds())
		}
	}
	v := values{
		name:   strings.Join(names, next),
		owner:  strings.Join(owners, next),
		number: strconv.FormatInt(common.Microseconds(), 10),
	}
	if ttls.Len() > 0 {
		v.number = "CASE owner" + ttls.String() + " ELSE " + v.number + " END"
	}
	at, rows, err := d.exec(ctx, d.plain("renew", v))
	if err != nil || rows == int64(len(batch)) {
		return running, err
	}
	clear(running)
	if at == 0 {
		return running, nil
	}
	v.number = strconv.FormatInt(at, 10)
	err = d.query(ctx, d.sql.fill("renewed", v), func(row *sql.Rows) error {
		var owner []byte
		err := row.Scan(&owner)
		running[hex.EncodeToString(owner)] = true
		return err
	})
	return running, err
}

// request sends a statement, and may be called again.
type request func(context.Context) (sql.Result, error)

// plain is a request of a statement as text.
func (d *driver) plain(statement string, v values) request {
	text := d.sql.fill(statement, v)
	return func(ctx context.Context) (sql.Result, error) { return d.db.ExecContext(ctx, text) }
}

// with is a request of a prepared statement.
func (p *prepared) with(v values, numbers ...int64) request {
	arguments := p.arguments(v, numbers...)
	return func(ctx context.Context) (sql.Result, error) { return p.stmt.ExecContext(ctx, arguments...) }
}

// exec sends a request and returns what it put into LAST_INSERT_ID, and how many
// rows it changed (or matched: that depends on the connection).
func (d *driver) exec(ctx context.Context, send request) (answer, rows int64, err error) {
	err = d.repeat(ctx, func() error {
		result, err := send(ctx)
		if err != nil {
			return err
		}
		if answer, err = result.LastInsertId(); err != nil {
			return err
		}
		rows, err = result.RowsAffected()
		return err
	})
	return answer, rows, err
}

// query calls scan for every row of the result.
func (d *driver) query(ctx context.Context, statement string, scan func(*sql.Rows) error) error {
	return d.repeat(ctx, func() error {
		rows, err := d.db.QueryContext(ctx, statement)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

const (
	firstPause = time.Millisecond
	maxPause   = 50 * time.Millisecond
)

// repeat calls f again, after a short random pause and while ctx lets it, if the
// server rolled its statement back for reasons that have nothing to do with it: a
// deadlock, a row lock that was not to be had in time, a duplicate that another
// transaction then took back. It is done here and not by the portable half because
// to that they would have to be either "held", which they do not say, or a failure,
// which they are not.
func (d *driver) repeat(ctx context.Context, f func() error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := f()
		if !hasNumber(err, errDeadlock, errLockWait, errDuplicate) {
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: the last answer was: %w", ctx.Err(), err)
		}
	}
}
