package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// A pool of the user's lends connections as somebody has left them. In an open transaction, or without autocommit, what is
// granted here would be undone later; by another clock, a lease would be over too soon. So each is settled first, for one
// round trip. Our own pools do without.

// maxLent bounds how many connections a request looks at: a pool without a limit would take all that the server has.
const maxLent = 8

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

// settled returns a connection that is in no transaction, and commits each statement. Others stay as they are: somebody may go
// on with them. They are given back at the end, because the pool would lend them again.
func settled(ctx context.Context, db *sql.DB, settle string) (_ *sql.Conn, err error) {
	var passed []*sql.Conn
	defer func() {
		for _, conn := range passed {
			_ = conn.Close()
		}
		if err != nil && len(passed) > 0 {
			err = fmt.Errorf("%d connections of the pool are in a transaction that somebody has left open, or without autocommit: %w", len(passed), err)
		}
	}()
	for n := 1; ; n++ {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = conn.ExecContext(ctx, settle); err == nil {
			return conn, nil
		}
		another := n < maxLent && ctx.Err() == nil
		switch {
		case hasNumber(err, errInTransaction, errInXA, errWrongValue):
			passed = append(passed, conn)
		case errors.Is(err, sqldriver.ErrBadConn), errors.Is(err, mysql.ErrInvalidConn):
			_ = conn.Close() // for good: the server had ended it
		default:
			_ = conn.Close()
			another = false
		}
		if !another {
			return nil, err
		}
	}
}
