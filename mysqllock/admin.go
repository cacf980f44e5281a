package mysqllock

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

// Inspect implements distlock.Inspector.
func (d *driver) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	found, err := d.statuses(ctx, d.sql.fill("inspect", values{name: hexOf(name)}))
	if err != nil || len(found) == 0 {
		return distlock.Status{Name: name, Waiters: -1}, err
	}
	return found[0], nil
}

// List implements distlock.Inspector.
func (d *driver) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return d.statuses(ctx, d.sql.fill("list", values{name: hexOf(prefix), number: strconv.Itoa(len(prefix))}))
}

// statuses reads the rows of inspect.sql or list.sql.
func (d *driver) statuses(ctx context.Context, query string) ([]distlock.Status, error) {
	var found []distlock.Status
	err := d.query(ctx, query, func(row *sql.Rows) error {
		st := distlock.Status{Waiters: -1}
		var acquired, remaining int64
		var holder string
		if err := row.Scan(&st.Name, &st.Token, &acquired, &remaining, &holder); err != nil {
			return err
		}
		if remaining > 0 {
			st.Held = true
			st.Holder = holder
			st.AcquiredAt = time.UnixMicro(acquired)
			st.Remaining = time.Duration(remaining) * time.Microsecond
		}
		found = append(found, st)
		return nil
	})
	return found, err
}

// Break implements distlock.Breaker.
func (d *driver) Break(ctx context.Context, name string) error {
	_, broken, err := d.exec(ctx, d.plain("break", values{name: hexOf(name)}))
	if err == nil && broken == 0 {
		return distlock.ErrLost
	}
	return err
}

// Sweep implements distlock.Sweeper. It finds idle rows without locking anything
// and then removes them by name, so that it stands in nobody's way for longer than
// one such statement.
func (d *driver) Sweep(ctx context.Context, idle time.Duration) (removed int, err error) {
	v := values{number: strconv.FormatInt(idle.Microseconds(), 10)}
	for last := ""; ; {
		var names []string
		v.name = hexOf(last)
		err := d.query(ctx, d.sql.fill("find", v), func(row *sql.Rows) error {
			err := row.Scan(&last)
			names = append(names, hexOf(last))
			return err
		})
		if err != nil || len(names) == 0 {
			return removed, err
		}
		v.name = strings.Join(names, next)
		_, n, err := d.exec(ctx, d.plain("sweep", v))
		removed += int(n)
		if err != nil {
			return removed, err
		}
	}
}
