package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// manyTimeout bounds an operator's statement about many rows. The engine bounds those about one.
const manyTimeout = time.Minute

// ask is query on the common pool, with a bound of its own.
func (d *store) ask(ctx context.Context, limit time.Duration, text string, scan func(*sql.Rows) error) error {
	return driver.Bounded(ctx, "the server", limit, func(ctx context.Context) error { return d.query(ctx, d.db, text, scan) })
}

// query sends a statement and calls scan for every row of the result.
func (d *store) query(ctx context.Context, db *sql.DB, text string, scan func(*sql.Rows) error) error {
	return fault(d.on(ctx, db, func(s sender) error {
		rows, err := s.QueryContext(ctx, text)
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
	}))
}

// change is exec on the common pool, with a bound of its own.
func (d *store) change(ctx context.Context, limit time.Duration, statement string, v values) (rows int64, err error) {
	err = driver.Bounded(ctx, "the server", limit, func(ctx context.Context) error {
		_, rows, err = d.exec(ctx, d.plain(d.db, d.sql.fill(statement, v)))
		return err
	})
	return rows, err
}

// Inspect implements driver.Inspector.
func (d *store) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	found, err := d.statuses(ctx, d.sql.fill("inspect", values{name: hexOf(name)}))
	if err != nil || len(found) == 0 {
		return distlock.Status{Name: name, Waiters: -1}, err
	}
	return found[0], nil
}

// List implements driver.Inspector.
func (d *store) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return d.statuses(ctx, d.sql.fill("list", values{name: hexOf(prefix)}))
}

// statuses reads the rows of inspect.sql or list.sql.
func (d *store) statuses(ctx context.Context, text string) ([]distlock.Status, error) {
	var found []distlock.Status
	err := d.ask(ctx, manyTimeout, text, func(row *sql.Rows) error {
		st := distlock.Status{Waiters: -1}
		var acquired, remaining int64
		var holder string
		if err := row.Scan(&st.Name, &st.Token, &acquired, &remaining, &holder, &st.Wanted); err != nil {
			return err
		}
		if remaining > 0 {
			st.Held = true
			st.Holder = holder
			st.AcquiredAt = time.UnixMicro(acquired)
			st.Remaining = micros(remaining)
		}
		found = append(found, st)
		return nil
	})
	return found, err
}

// Break implements driver.Breaker.
//
// The victim keeps its named lock until its next renewal, and the waiters sleep until
// then. So the connection that has it is ended. Where that is not allowed, the
// waiters look at the end of their bound.
func (d *store) Break(ctx context.Context, name string, token int64) error {
	v := values{name: hexOf(name), number: strconv.FormatInt(token, 10)}
	_, broken, err := d.exec(ctx, d.plain(d.db, d.sql.fill("break", v)))
	switch {
	case err != nil:
		return err
	case broken == 0:
		return distlock.ErrLost
	}
	d.endLock(ctx, name)
	return nil
}

// minIdle is the shortest idle time of a sweep. Tokens rest on it: see Try.
const minIdle = time.Second

// Sweep implements driver.Sweeper. It finds idle rows without locking anything and then removes
// them by name. So it delays others for no longer than one such statement takes. That statement
// waits for no row.
func (d *store) Sweep(ctx context.Context, idle time.Duration) (removed int, err error) {
	v := values{number: strconv.FormatInt(max(idle, minIdle).Microseconds(), 10)}
	for last := ""; ; {
		var names []string
		v.name = hexOf(last)
		err := d.ask(ctx, manyTimeout, d.sql.fill("find", v), func(row *sql.Rows) error {
			before := last
			if err := row.Scan(&last); err != nil {
				return err
			}
			if last <= before { // it would go round in circles
				return fmt.Errorf("the server answered with the name %q after %q, which is out of order", last, before)
			}
			names = append(names, hexOf(last))
			return nil
		})
		if err != nil || len(names) == 0 {
			return removed, d.sql.explain(err)
		}
		n, err := d.sweep(ctx, v, names)
		removed += n
		if err != nil {
			return removed, d.sql.explain(err)
		}
	}
}

// sweep removes rows, together where the server can pass over locked ones.
func (d *store) sweep(ctx context.Context, v values, names []string) (removed int, err error) {
	if d.renewals.skip {
		v.name = strings.Join(names, next)
		n, err := d.change(ctx, manyTimeout, "sweep", v)
		if err == nil || driver.FateOf(err) != driver.Answered {
			return int(n), err
		}
	}
	for _, v.name = range names {
		n, err := d.change(ctx, manyTimeout, "sweep-alone", v)
		if removed += int(n); err != nil {
			return removed, err
		}
	}
	return removed, nil
}
