package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A pool of the user's lends connections as somebody has left them. In an open transaction, or without autocommit, what is
// granted here would be undone later; by another clock, a lease would be over too soon. So each is settled first, for one
// round trip. Our own pools do without.

const (
	// maxLent bounds how many connections a request looks at: a pool without a limit would take all that the server has.
	maxLent = 8

	// lendWait is how long it waits for a place in the pool while it keeps some. It may keep the only one, which somebody needs for
	// his COMMIT.
	lendWait = 50 * time.Millisecond
)

// sender is a pool, or a connection of one.
type sender interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

// on calls f with a pool of ours, or with a settled connection of the user's.
func (d *store) on(ctx context.Context, db *sql.DB, f func(sender) error) error {
	if !d.lent {
		return f(db)
	}
	conn, err := settled(ctx, db, d.sql.text["settle"])
	if err != nil {
		return &connectError{err}
	}
	defer conn.Close()
	return f(conn)
}

// renewal sends a renewal over a pool, or, where no connection of that is fit for it, over the common one.
func (d *store) renewal(pool *sql.DB, text string) request {
	return func(ctx context.Context) (sql.Result, error) {
		result, err := d.plain(pool, text)(ctx)
		if pool != d.renewals.common && leftOpen(err) {
			result, err = d.plain(d.renewals.common, text)(ctx)
		}
		return result, err
	}
}

// leftOpen reports whether err says that connections are in a transaction, or without autocommit. Nothing was sent on them.
func leftOpen(err error) bool {
	return errors.As(err, new(*connectError)) && hasNumber(err, errInTransaction, errInXA, errWrongValue)
}

// settled returns a connection that is in no transaction, and commits each statement. It has looked at others, if these do not:
// they are given back at the end, as they are, because the pool would lend them again, and somebody may go on with them.
func settled(ctx context.Context, db *sql.DB, settle string) (_ *sql.Conn, err error) {
	var lent []*sql.Conn // but for the one that is returned
	defer func() {
		for _, conn := range lent {
			_ = conn.Close()
		}
	}()
	var refusal error
	for range maxLent {
		conn, err := another(ctx, db, refusal != nil)
		if err != nil {
			return nil, cmp.Or(refusal, err)
		}
		lent = append(lent, conn) // already: what the user has put around his driver may panic
		switch _, err = conn.ExecContext(ctx, settle); {
		case err == nil:
			lent = lent[:len(lent)-1]
			return conn, nil
		case hasNumber(err, errInTransaction, errInXA, errWrongValue):
			refusal = fmt.Errorf("%d connections of the pool are in a transaction that somebody has left open, or without autocommit: %w", len(lent), err)
			continue
		}
		_ = conn.Close()
		if !errors.Is(err, sqldriver.ErrBadConn) && !errors.Is(err, mysql.ErrInvalidConn) { // which the server had ended
			return nil, err
		}
	}
	return nil, cmp.Or(refusal, error(sqldriver.ErrBadConn))
}

// another returns a connection of the pool. Where the request keeps some, and the pool has no place for more, it waits for lendWait at most.
func another(ctx context.Context, db *sql.DB, keeps bool) (*sql.Conn, error) {
	if s := db.Stats(); !keeps || s.MaxOpenConnections <= 0 || s.OpenConnections < s.MaxOpenConnections {
		return db.Conn(ctx) // it may have to be dialled, far away
	}
	ctx, cancel := context.WithTimeout(ctx, lendWait)
	defer cancel()
	return db.Conn(ctx)
}
