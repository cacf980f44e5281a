package peers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/mysqllock"
)

var bareStatements = Contender{
	Name: "bare: our two statements", Backend: servers.MySQL, Role: Bare, Module: "github.com/go-sql-driver/mysql",
	Note: "The prepared statements of distlock's driver, recorded from it and sent by database/sql alone, with a new owner each time: what is left to distlock is the portable half and the driver.",
	Open: openStatements,
}

type statementsClient struct {
	*sql.DB
	locker     *mysqllock.Locker // makes the rows of new names, which takes another statement
	recorded   *sql.DB           // its pool
	take, free *statement
}

// statement is a prepared one, with its arguments.
type statement struct {
	*sql.Stmt
	arguments template
}

func openStatements(ctx context.Context, t Target) (Client, error) {
	connector, err := mysqlConnector(t.URLs[0])
	if err != nil {
		return nil, err
	}
	db, err := openMySQL(t.URLs[0], poolSize)
	if err != nil {
		return nil, err
	}
	var sent recorder[execution]
	c := &statementsClient{DB: db, recorded: sql.OpenDB(&recordingConnector{connector, &sent})}
	if err := c.record(ctx, t, &sent); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// record learns from ours what it sends.
func (c *statementsClient) record(ctx context.Context, t Target, sent *recorder[execution]) (err error) {
	c.locker, err = mysqllock.New(c.recorded, &mysqllock.Options{Options: distlock.Options{TTL: t.TTL}, Create: true})
	if err != nil {
		return err
	}
	name := recordedName()
	take, free, _, err := sent.lockUnlock(ctx, c.locker, name)
	if err != nil {
		return err
	}
	was := blanks{name: hex.EncodeToString([]byte(name)), owner: ownerIn(take.arguments)}
	if was.owner == "" {
		return errNoOwner
	}
	for _, s := range []struct {
		to   **statement
		sent execution
	}{{&c.take, take}, {&c.free, free}} {
		stmt, err := c.PrepareContext(ctx, s.sent.text)
		if err != nil {
			return err
		}
		*s.to = &statement{stmt, newTemplate(s.sent.arguments, was)}
	}
	return nil
}

func (c *statementsClient) Lock(ctx context.Context, name string) (Held, error) {
	b := &blanks{name: hex.EncodeToString([]byte(name)), owner: newOwner()}
	for try := 0; ; try++ {
		r, err := c.take.ExecContext(ctx, c.take.arguments.fill(b)...)
		if err != nil {
			return nil, err
		}
		if token, err := r.LastInsertId(); err != nil || token > 0 {
			return bareHeld(func(ctx context.Context) error {
				return changed(c.free.ExecContext(ctx, c.free.arguments.fill(b)...))
			}), err
		}
		if try > 0 {
			return nil, fmt.Errorf("the statement that takes a lock has not taken %q", name)
		}
		// A name without a row.
		lock, err := c.locker.Lock(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := lock.Unlock(ctx); err != nil {
			return nil, err
		}
	}
}

func (c *statementsClient) Close() error {
	var errs []error
	if c.locker != nil {
		errs = append(errs, c.locker.Close())
	}
	return errors.Join(append(errs, c.recorded.Close(), c.DB.Close())...)
}

// execution is a statement that was carried out.
type execution struct {
	text      string
	arguments []any
}

// recordingConnector makes connections that record the executions of prepared
// statements.
type recordingConnector struct {
	driver.Connector
	sent *recorder[execution]
}

type recordingConn struct {
	driver.Conn
	sent *recorder[execution]
}

type recordingStmt struct {
	driver.Stmt
	text string
	sent *recorder[execution]
}

// Connect implements driver.Connector.
func (c *recordingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &recordingConn{conn, c.sent}, nil
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *recordingConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &recordingStmt{stmt, text, c.sent}, nil
}

// ExecContext implements driver.StmtExecContext.
func (s *recordingStmt) ExecContext(ctx context.Context, arguments []driver.NamedValue) (driver.Result, error) {
	e := execution{text: s.text}
	for _, a := range arguments {
		e.arguments = append(e.arguments, a.Value)
	}
	s.sent.add(e)
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, arguments)
}

// QueryContext implements driver.StmtQueryContext.
func (s *recordingStmt) QueryContext(ctx context.Context, arguments []driver.NamedValue) (driver.Rows, error) {
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, arguments)
}
