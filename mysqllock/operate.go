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

const (
	// rowTimeout bounds an operator's request about one row, and silence the time between
	// two rows of one about many: the table may be large, but not that large.
	rowTimeout = 10 * time.Second
	silence    = time.Minute
)

// bounded calls f with a context that ends if beat is not called for so long. A stopped
// server says nothing, and the caller's context may have no end.
func bounded(ctx context.Context, limit time.Duration, f func(ctx context.Context, beat func()) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(limit, cancel)
	defer timer.Stop()
	err := f(inner, func() { timer.Reset(limit) })
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		return &driver.NoAnswer{From: "the server", After: limit, Last: lastAnswer(err)}
	}
	return err
}

// ask is query on the common pool, with a bound of its own.
func (d *store) ask(ctx context.Context, limit time.Duration, text string, scan func(*sql.Rows) error) error {
	return bounded(ctx, limit, func(ctx context.Context, beat func()) error {
		return query(ctx, d.db, text, func(row *sql.Rows) error {
			beat()
			return scan(row)
		})
	})
}

// change is exec on the common pool, with a bound of its own.
func (d *store) change(ctx context.Context, limit time.Duration, statement string, v values) (rows int64, err error) {
	err = bounded(ctx, limit, func(ctx context.Context, _ func()) error {
		_, rows, err = d.exec(ctx, plain(d.db, d.sql.fill(statement, v)), false)
		return err
	})
	return rows, err
}

// Inspect implements driver.Inspector.
func (d *store) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	found, err := d.statuses(ctx, rowTimeout, d.sql.fill("inspect", values{name: hexOf(name)}))
	if err != nil || len(found) == 0 {
		return distlock.Status{Name: name, Waiters: -1}, err
	}
	return found[0], nil
}

// List implements driver.Inspector.
func (d *store) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return d.statuses(ctx, silence, d.sql.fill("list", values{name: hexOf(prefix)}))
}

// statuses reads the rows of inspect.sql or list.sql.
func (d *store) statuses(ctx context.Context, limit time.Duration, text string) ([]distlock.Status, error) {
	var found []distlock.Status
	err := d.ask(ctx, limit, text, func(row *sql.Rows) error {
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
	began := time.Now()
	broken, err := d.change(ctx, rowTimeout, "break", values{name: hexOf(name), number: strconv.FormatInt(token, 10)})
	switch {
	case err != nil:
		return err
	case broken == 0:
		return distlock.ErrLost
	}
	d.endLock(ctx, name)
	d.released(name, noOwner, began)
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
		err := d.ask(ctx, silence, d.sql.fill("find", v), func(row *sql.Rows) error {
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
		n, err := d.change(ctx, silence, "sweep", v)
		if err == nil || driver.FateOf(err) != driver.Answered {
			return int(n), err
		}
	}
	for _, v.name = range names {
		n, err := d.change(ctx, silence, "sweep-alone", v)
		if removed += int(n); err != nil {
			return removed, err
		}
	}
	return removed, nil
}
