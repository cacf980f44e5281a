package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// manyTimeout bounds an operator's statement about many rows. The engine bounds those about one.
const manyTimeout = time.Minute

// ask sends an operator's statement.
func (d *store) ask(ctx context.Context, statement string, scan func(pgx.Rows) error, args ...any) error {
	return driver.Bounded(ctx, "the server", manyTimeout, func(ctx context.Context) error {
		return d.send(ctx, query{d.text[statement], args, scan})
	})
}

// Inspect implements driver.Inspector.
func (d *store) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	found, err := d.statuses(ctx, "inspect", name)
	if err != nil || len(found) == 0 {
		return distlock.Status{Name: name, Waiters: -1}, err
	}
	return found[0], nil
}

// List implements driver.Inspector.
func (d *store) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return d.statuses(ctx, "list", prefix)
}

func (d *store) statuses(ctx context.Context, statement, about string) (found []distlock.Status, err error) {
	err = d.ask(ctx, statement, func(row pgx.Rows) error {
		st := distlock.Status{Waiters: -1}
		var name, holder string // in hex
		var acquired, remaining int64
		if err := row.Scan(&name, &st.Token, &acquired, &remaining, &st.Held, &holder, &st.Wanted); err != nil {
			return err
		}
		st.Name = unhex(name)
		if st.Held {
			st.Holder, st.AcquiredAt, st.Remaining = unhex(holder), time.UnixMicro(acquired), time.Duration(remaining)*time.Microsecond
		}
		found = append(found, st)
		return nil
	}, []byte(about))
	return found, err
}

// Break implements driver.Breaker.
func (d *store) Break(ctx context.Context, name string, token int64) error {
	broken, err := d.tell(ctx, name, "break", []byte(name), token)
	if err == nil && !broken {
		err = distlock.ErrLost
	}
	return err
}

// Sweep implements driver.Sweeper.
func (d *store) Sweep(ctx context.Context, idle time.Duration) (removed int, err error) {
	for last := ""; ; {
		n := 0 // of this statement, which is undone if it fails
		err := d.ask(ctx, "sweep", func(row pgx.Rows) error {
			var name string
			err := row.Scan(&name)
			last = max(last, unhex(name))
			n++
			return err
		}, []byte(last), max(idle, minIdle).Microseconds(), driver.MaxLate.Microseconds())
		if err != nil || n == 0 {
			return removed, explain(err)
		}
		removed += n
	}
}
