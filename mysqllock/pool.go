package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock/driver"
)

// rowWait is for how many seconds our own connections wait for a row, or for the table,
// before the statement is rolled back: the least that the server allows. A statement that
// was given up is over by then.
const rowWait = "1"

// longestIdle is for how many seconds the server leaves a connection that says nothing: the most that every server allows. One
// with named locks may say nothing for as long as they are held.
const longestIdle = "2147483"

// newPool opens no connection yet.
func newPool(c sqldriver.Connector, conns int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(conns)
	// As many may be idle as are open: by default, database/sql keeps two and dials the
	// others again.
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(idleTime)
	return db
}

// connector makes connections within a bound. The client library bounds the dial
// alone: a server that accepts and then says nothing would be waited for without end.
type connector struct {
	config  *mysql.Config
	timeout time.Duration
}

// newConnector completes the configuration of our own pools.
func newConnector(config *mysql.Config) (*connector, error) {
	if config.Timeout <= 0 {
		config.Timeout = dialTimeout
	}
	// A server that is told so begins later sessions without autocommit: what they write would be rolled back.
	params := map[string]string{"autocommit": "1", "innodb_lock_wait_timeout": rowWait, "lock_wait_timeout": rowWait}
	maps.Copy(params, config.Params)
	config.Params = params
	// The client library would ask three times, and keep the server's error to itself; see redial.
	config.RejectReadOnly = false
	// What the client would print, a broken connection mostly, is in the errors.
	config.Logger = &mysql.NopLogger{}
	_, err := mysql.NewConnector(config)
	return &connector{config, config.Timeout}, err
}

// patient returns a connector for connections that wait for named locks: they have no answer for as long as they wait.
func (c *connector) patient() *connector {
	config := c.config.Clone()
	config.ReadTimeout, config.Params = 0, maps.Clone(config.Params)
	if config.Params["wait_timeout"] == "" {
		config.Params["wait_timeout"] = longestIdle
	}
	return &connector{config, c.timeout}
}

// Driver implements driver.Connector.
func (c *connector) Driver() sqldriver.Driver { return &mysql.MySQLDriver{} }

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	// Each dial has a configuration of its own, because the logger is part of it.
	config, heard := c.config.Clone(), new(reason)
	config.Logger = heard
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, &connectError{err}
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := inner.Connect(bounded)
	switch {
	case err == nil:
		return conn, nil
	// The caller's end comes first: only the other bound speaks of the server.
	case ctx.Err() != nil:
		err = ctx.Err()
	case bounded.Err() != nil:
		err = &driver.NoAnswer{From: c.config.Addr, After: c.timeout}
	default:
		err = c.explain(err, heard.get())
	}
	return nil, &connectError{err}
}

// explain adds to the client library's error what it has logged, and what may be wrong
// with TLS. With TLS 1.3 the server looks at the certificate of the client only after the
// client has finished its part of the handshake.
func (c *connector) explain(err, heard error) error {
	// The server may have closed the connection before the client has written its part.
	lost := errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sqldriver.ErrBadConn) ||
		err.Error() == "bad connection" // the library's for that; it has no value to compare with
	if lost && heard != nil {
		err = fmt.Errorf("%w: %w", err, heard)
	}
	var alert *net.OpError
	refused := errors.As(err, &alert) && alert.Op == "remote error"
	if (lost || refused) && (c.config.TLS != nil || c.config.TLSConfig != "") {
		err = fmt.Errorf("the server ended the connection in the TLS handshake or just after it; it may not accept the certificate of this client, or want one: %w", err)
	}
	return err
}

// reason keeps the first error that the client library logs: it returns a generic one
// instead.
type reason struct {
	mu  sync.Mutex
	err error
}

// Print implements mysql.Logger.
func (r *reason) Print(v ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range v {
		if err, ok := x.(error); ok && r.err == nil {
			r.err = err
		}
	}
}

func (r *reason) get() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// redialTime bounds the wait for a connection that is to be closed: another call may have taken it.
const redialTime = 100 * time.Millisecond

// silentAfter is after how long without an answer a connection is taken for dead, and those beside it: a statement waits for a second
// for its row, and MySQL looks at that once a second.
const silentAfter = 3 * time.Second

// closeIdleAfter closes the idle connections of the common pool, if that is ours, when one was dead, or has said nothing for longer than
// a statement waits for its row: those beside it may be dead as well, and each would cost a call. Connections of renewals
// have a rule of their own; see renewTogether.
func (d *store) closeIdleAfter(ctx context.Context, err error, after time.Duration) {
	silent := ctx.Err() != nil && after >= silentAfter
	if len(d.pools) > 0 && driver.FateOf(err) == driver.Unknown && (silent || errors.Is(err, mysql.ErrInvalidConn)) {
		closeIdle(d.db)
	}
}

// redial closes the connections of our own pools that are idle, and that of named locks: the server is a replica now, after
// a failover. Of each pool of the user's it closes the one that would be used next, mostly that which has just been refused: the
// others may be busy with something that a replica can do.
func (d *store) redial(ctx context.Context) {
	if d.locks != nil {
		d.locks.shared.reconnect()
	}
	d.closeIdle()
	if len(d.pools) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, redialTime)
	defer cancel()
	for _, db := range slices.Compact([]*sql.DB{d.db, d.renewals.db}) {
		if db.Stats().Idle == 0 {
			continue
		}
		if conn, err := db.Conn(ctx); err == nil {
			discard(conn)
		}
	}
}

// closeIdle closes the connections of our own pools that are idle. What they are to may be a replica now, or gone: the next
// request asks for the address anew.
func (d *store) closeIdle() {
	for _, p := range d.pools {
		closeIdle(p)
	}
}

func closeIdle(p *sql.DB) {
	p.SetMaxIdleConns(0)
	p.SetMaxIdleConns(p.Stats().MaxOpenConnections)
}
