package pglock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/turns"
)

// query is a statement with its arguments, and what is done with each row.
type query struct {
	text string
	args []any
	scan func(pgx.Rows) error
}

// send sends statements over the pool of the store.
func (d *store) send(ctx context.Context, queries ...query) error {
	return d.sendOn(ctx, d.pool.Acquire, queries...)
}

// sendAbout sends statements about one name over that pool, when it is their turn.
func (d *store) sendAbout(ctx context.Context, name string, kind turns.Kind, queries ...query) error {
	return d.turns.Run(ctx, name, kind, func() error { return d.send(ctx, queries...) })
}

// sendOn sends statements in one round trip and one transaction.
func (d *store) sendOn(ctx context.Context, acquire func(context.Context) (*pgxpool.Conn, error), queries ...query) error {
	began := time.Now()
	conn, err := acquire(ctx)
	if err != nil {
		return d.noConnection(err, driver.NotSent, began)
	}
	defer conn.Release()
	notes := conn.Conn().PgConn().CustomData()
	delete(notes, unconfirmed) // of what was sent before
	var batch pgx.Batch
	for _, q := range queries {
		batch.Queue(q.text, q.args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := q.scan(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	err = conn.SendBatch(ctx, &batch).Close()
	if hasCode(err, readOnly) {
		// After a failover it is to a replica: the next request asks for the address anew.
		_ = conn.Conn().Close(ctx)
		if d.listener != nil {
			d.listener.moved() // to where nobody tells it anything
		}
	}
	if conn.Conn().PgConn().TxStatus() == 'E' { // a transaction that was begun explicitly; else the pool closes the connection
		_ = driver.Bounded(ctx, "the server", pingTimeout, func(ctx context.Context) error { _, err := conn.Exec(ctx, "ROLLBACK"); return err })
	}
	if warning, noted := notes[unconfirmed].(error); noted {
		return &driver.Fault{Fate: driver.Unknown, Err: fmt.Errorf("committed, but not confirmed by a standby: %w", warning)}
	}
	return fault(err, driver.Unknown)
}

// unconfirmed is where a connection keeps the warning that a commit may not be on the standby.
const unconfirmed = "distlock: unconfirmed"

// noteUnconfirmed notes that warning. A commit that waits for a standby, and is cancelled there, is answered as a success: after
// a failover to that standby, it was none. The words depend on the server's language, and the code is that of any warning:
// only the function that has sent it tells which one it is.
func noteUnconfirmed(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		c.CustomData()[unconfirmed] = (*pgconn.PgError)(n)
	}
}

// noConnection is the fault of a request that was given no connection; busy is its fate if all of the user's pool are in use. They
// may be so by requests of ours that a silent server does not answer: so the engine is told of a silence.
func (d *store) noConnection(err error, busy driver.Fate, began time.Time) error {
	if s := d.pool.Stat(); !d.own && errors.Is(err, context.DeadlineExceeded) && s.AcquiredConns() == s.MaxConns() {
		pool := fmt.Sprintf("the pool of connections (all %d are in use)", s.MaxConns())
		return &driver.Fault{Fate: busy, Err: &driver.NoAnswer{From: pool, After: time.Since(began)}}
	}
	return fault(err, driver.NotSent)
}

// Codes of the server, called SQLSTATE, and classes of them.
const (
	readOnly  = "25006"
	noTable   = "42P01"
	queueFull = "54000" // of NOTIFY
	rowLocked = "55P03" // and was not to be had within rowWait
)

var fates = []struct {
	fate  driver.Fate
	codes []string
}{
	// Undone for a reason that has nothing to do with the claim: a failure to serialize, a deadlock, a row that was not
	// to be had in time, a statement_timeout of others or a cancel, a table, plan or prepared statement that has changed or
	// gone, an idle connection that the server had closed, no room for a notification, which it finds before it commits.
	{driver.Again, []string{"40001", "40P01", rowLocked, "57014", "23505", "0A000", "57P05", "26000", queueFull}},
	// Read-only, starting or stopping, or without memory, space or connections.
	{driver.NotNow, []string{readOnly, "57P03", "53"}},
	// Syntax and rights, a login, no such database or schema, a value that does not fit.
	{driver.Answered, []string{"42", "28", "3D", "3F", "22"}},
}

// fault gives an error its fate; otherwise is that of one that is not classified. A code that is not
// listed may be one of a proxy, or of a shutdown in the midst of a commit.
func fault(err error, otherwise driver.Fate) error {
	if err == nil {
		return nil
	}
	fate := otherwise
	if pgconn.SafeToRetry(err) || errors.As(err, new(*pgconn.ConnectError)) {
		fate = driver.NotSent
	}
	for _, f := range fates {
		if hasCode(err, f.codes...) {
			fate = f.fate
		}
	}
	// What the library says of a pool that was closed by its owner is in a package that is not ours to import.
	if err.Error() == "closed pool" {
		err = fmt.Errorf("%w: %w", distlock.ErrClosed, err)
	}
	return &driver.Fault{Fate: fate, Err: worded(err)}
}

// worded words a connection that timed out as the other drivers do.
func worded(err error) error {
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok && len(e.Config.Fallbacks) == 0 && errors.Is(err, context.DeadlineExceeded) {
		return &driver.NoAnswer{From: net.JoinHostPort(e.Config.Host, strconv.Itoa(int(e.Config.Port))), After: e.Config.ConnectTimeout}
	}
	return err
}

// hasCode reports whether err is the server's, with one of these codes, or of one of these classes.
func hasCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && len(e.Code) == 5 && (slices.Contains(codes, e.Code) || slices.Contains(codes, e.Code[:2]))
}

// errMoved says that the name was let go of between the look at it and the question for its holder.
var errMoved = &driver.Fault{Fate: driver.Again, Err: errors.New("the name was let go of meanwhile")}

// errBroken says that the claim goes on as another owner; see beginAnew.
var errBroken = &driver.Fault{Fate: driver.Again, Err: errors.New("the hold was broken before the claim knew of it")}
