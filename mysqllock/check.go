package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/turns"
)

// start makes sure that the table can be used, finds out what the server can do, and
// prepares what every lock needs.
func (d *store) start(ctx context.Context, create bool) error {
	if d.renewals == nil {
		d.renewals = newRenewals(d.db, d.db, renewConns)
	}
	if err := d.ensure(ctx, create); err != nil {
		return d.explainPool(err)
	}
	return d.probe(ctx)
}

// explainPool says of the first error what the user's pool has to do with it, or what a silent server may be.
func (d *store) explainPool(err error) error {
	_, own := d.db.Driver().(*mysql.MySQLDriver)
	switch s := d.db.Stats(); {
	case len(d.pools) > 0:
		if errors.As(err, new(*connectError)) && errors.As(err, new(*driver.NoAnswer)) {
			return fmt.Errorf("%w (a MySQL or MariaDB speaks first: what listens there may be another server)", err)
		}
	case errors.Is(err, context.DeadlineExceeded) && s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections:
		return &driver.Fault{Fate: driver.NotNow, Err: fmt.Errorf("no connection of the pool came free in time: all %d are in use", s.InUse)}
	case !own && lastAnswer(err) == nil:
		return fmt.Errorf("%w (the driver of the pool is %T, allowed is that of github.com/go-sql-driver/mysql, also wrapped)", err, d.db.Driver())
	}
	return err
}

// Close closes the pools if they were opened here. Prepared statements end with their
// connections. What fails there is a connection that was broken before, and it is closed all
// the same: so Close does not fail.
func (d *store) Close() error {
	if d.locks != nil {
		d.locks.shared.close()
	}
	if d.renewals != nil {
		d.renewals.close()
	}
	for _, p := range d.pools {
		_ = p.Close()
	}
	return nil
}

// ensure makes sure that the table is there and fit for use.
func (d *store) ensure(ctx context.Context, create bool) error {
	err := d.check(ctx)
	if create && hasNumber(err, errNoTable) {
		// Others may be creating it at this moment: IF NOT EXISTS makes that no error.
		switch _, err := d.insists(ctx, d.plain(d.db, d.sql.text["schema"])); {
		case hasNumber(err, errWrongValue):
			return errNoAutocommit
		case err != nil:
			return d.sql.explain(d.explainReadOnly(ctx, err))
		}
		err = d.check(ctx)
	}
	return d.sql.explain(err)
}

// insists is exec for the requests of Open.
func (d *store) insists(ctx context.Context, send request) (answer int64, err error) {
	err = driver.Insist(ctx, func() error {
		answer, _, err = d.exec(ctx, send)
		return err
	})
	return answer, err
}

// check has the server prepare every statement that locks need. The server refuses that if
// a table, a column or a right is missing. What it cannot show is asked for. Three of these are
// kept, but not on a pool of the user's.
func (d *store) check(ctx context.Context) error {
	kept := map[string]**prepared{"acquire": &d.acquire, "take": &d.take, "release": &d.release}
	d.renewals.skip = true
	for _, name := range []string{"acquire", "take", "regrant", "release", "undo", "renew-alone", "guard", "inspect", "renew"} {
		p, err := d.parse(ctx, name)
		switch keep := kept[name]; {
		case name == "renew" && lastAnswer(err) != nil:
			d.renewals.skip = false // old servers do not know SKIP LOCKED: each lock is renewed alone
		case err != nil:
			return err
		case keep == nil:
			_ = p.stmt.Close()
		case d.lent:
			_ = p.stmt.Close()
			*keep = d.unprepared(name)
		default:
			*keep = p
		}
	}
	if err := errors.Join(d.checkSession(ctx), d.checkColumns(ctx), d.checkWaitDB(ctx)); err != nil {
		return err
	}
	d.sql.qualify()
	return nil
}

// checkWaitDB refuses a pool of the user's on which renewals would not last, or be of another table.
func (d *store) checkWaitDB(ctx context.Context) error {
	db := d.renewals.db
	if db == d.db && d.locks != nil {
		db = d.locks.db
	}
	if db == d.db || len(d.pools) > 0 { // those are all alike
		return nil
	}
	s, err := askSession(ctx, db, d.sql.text["session-plain"])
	switch {
	case err != nil:
		return err
	case !s.autocommit:
		return fmt.Errorf("%w: autocommit is off on the connections of WaitDB, it must be on", distlock.ErrInvalid)
	case s.schema != d.sql.schema:
		return fmt.Errorf("%w: the schema of WaitDB is %q, it must be %q, as that of the pool", distlock.ErrInvalid, s.schema, d.sql.schema)
	}
	return nil
}

var errNoAutocommit = fmt.Errorf("%w: autocommit is off on the connections of this pool, it must be on", distlock.ErrInvalid)

// session is what session.sql answers.
type session struct {
	autocommit              bool
	schema, engine, version string
	wait                    int64 // innodb_lock_wait_timeout, in seconds
	named                   int   // 2 if named locks work
}

func askSession(ctx context.Context, db *sql.DB, text string) (s session, err error) {
	err = db.QueryRowContext(ctx, text).Scan(&s.autocommit, &s.schema, &s.engine, &s.wait, &s.version, &s.named)
	return s, err
}

// checkSession refuses sessions without autocommit, because their statements would be
// rolled back in the end, and storage engines without row locks and crash recovery. It
// looks for named locks on the way.
func (d *store) checkSession(ctx context.Context) error {
	var s session
	var err error
	if d.locks != nil {
		if s, err = askSession(ctx, d.db, d.sql.fill("session", values{lock: hexOf("distlock:" + newOwner())})); err == nil {
			d.checkNamedLocks(s)
		}
	}
	if d.locks == nil || lastAnswer(err) != nil {
		why := err
		if s, err = askSession(ctx, d.db, d.sql.text["session-plain"]); err == nil && why != nil {
			d.dropLocks(why)
		}
	}
	switch d.sql.schema = s.schema; {
	case err != nil:
		return err
	case !s.autocommit:
		return errNoAutocommit
	case s.engine != "InnoDB":
		return fmt.Errorf("%w: the table %s is stored by %q, it must be by InnoDB", distlock.ErrInvalid, d.sql.table, s.engine)
	}
	// Only here is innodb_lock_wait_timeout of the sessions known. If cancelling a statement ended it on the server, too, it
	// would not matter. But that closes the socket alone: the statement goes on to wait for its row.
	d.turns = turns.New(d.db.Stats().MaxOpenConnections, time.Duration(s.wait)*time.Second, func(err error) bool { return hasNumber(err, errLockWait) })
	return nil
}

// checkNamedLocks judges by what a session has answered.
func (d *store) checkNamedLocks(s session) {
	switch {
	case s.named != 2:
		d.dropLocks(errors.New("GET_LOCK and RELEASE_LOCK have no effect"))
	case strings.Contains(s.version, "TiDB"):
		d.dropLocks(errors.New("GET_LOCK of TiDB waits for a second at the least"))
	}
}

// dropLocks has waiters poll.
func (d *store) dropLocks(why error) {
	if d.log != nil {
		d.log.Info("named locks do not work on this server, so waiters poll; see "+page, "reason", why)
	}
	d.locks = nil
}

// probe takes a lock to see whether the answer comes through: servers and proxies that
// speak the protocol may not hand on LAST_INSERT_ID(x). The name is no UTF-8, so that no lock
// can have it, and it is taken for no time.
func (d *store) probe(ctx context.Context) error {
	answer, err := d.insists(ctx, d.acquire.with(values{name: "ff", owner: newOwner(), holder: hexOf("probe")}, 0, viaNothing))
	if err == nil && answer == 0 {
		err = errors.New("the server, or what is between, does not hand on the value of LAST_INSERT_ID(x), which every answer comes in; see " + page)
	}
	return d.sql.explain(d.explainReadOnly(ctx, err))
}

// explainReadOnly says of a write that failed that the server is read-only, if it is. A user's
// pool may say no more than that a connection was dropped.
func (d *store) explainReadOnly(ctx context.Context, err error) error {
	if !errors.Is(err, sqldriver.ErrBadConn) && !hasNumber(err, readOnly...) {
		return err
	}
	var on bool
	if asked := d.db.QueryRowContext(ctx, "SELECT @@global.read_only").Scan(&on); asked != nil || !on {
		return fmt.Errorf("the server does not take writes, or drops every connection: %w", err)
	}
	return fmt.Errorf("the server is read-only, as a replica is, and locks need the one that takes writes: %w", err)
}

// columns are the types that correctness rests on: a shorter name would be cut off
// in a session without strict mode, and two locks be one; a text type would merge
// upper and lower case; an unsigned number cannot be negative, as the end of a lease that was given back is.
var columns = map[string]struct {
	kind string
	size int // in bytes, at least; for the types that have one
}{
	"name": {"varbinary", distlock.MaxName}, "owner": {"binary", 16}, "undone": {"varbinary", 512},
	"holder": {"varbinary", distlock.MaxHolder}, "token": {kind: "bigint"}, "expires": {kind: "bigint"}, "acquired": {kind: "bigint"},
	"waited": {kind: "bigint"}, "wakes": {kind: "tinyint"},
}

func (d *store) checkColumns(ctx context.Context) error {
	rows, err := d.db.QueryContext(ctx, d.sql.text["columns"])
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, kind, full, key string
		var size int
		if err := rows.Scan(&name, &kind, &full, &size, &key); err != nil {
			return err
		}
		want, used := columns[name]
		unsigned := strings.Contains(full, "unsigned")
		if used && (kind != want.kind || unsigned || size < want.size || size > want.size && kind == "binary") {
			must := want.kind + ", which is signed"
			switch want.kind {
			case "binary": // a longer one would be filled up with zeros, and equal nothing
				must = fmt.Sprintf("binary(%d)", want.size)
			case "varbinary":
				must = fmt.Sprintf("varbinary(%d) or longer", want.size)
			}
			return fmt.Errorf("%w: the column %s of the table %s is %s, it must be %s", distlock.ErrInvalid, name, d.sql.table, full, must)
		}
		if (name == "name") != (key == "PRI") {
			return fmt.Errorf("%w: the primary key of the table %s must be the column name alone", distlock.ErrInvalid, d.sql.table)
		}
	}
	return rows.Err()
}

const page = "https://github.com/distlock-go/distlock/blob/main/docs/mysql.md"

// noSchema says what to do where no schema is named.
const noSchema = "no schema is named; name it in the URL (mysql://host/schema), in the DSN (tcp(host)/schema), or with the table (schema.table)"

// explain adds to a server's error about the table what to do about it.
func (s *statements) explain(err error) error {
	switch {
	case hasNumber(err, errNoSchemaNamed):
		return fmt.Errorf("%w: %s: %w", distlock.ErrInvalid, noSchema, err)
	case hasNumber(err, errNoSchema):
		return fmt.Errorf("the schema does not exist; CREATE DATABASE creates it: %w", err)
	case hasNumber(err, errNoSchemaRight): // the server does not tell this user which of the two it is
		return fmt.Errorf("the schema does not exist, or the user has no right to anything in it; see %s#permissions: %w", page, err)
	case hasNumber(err, errNoTable):
		return fmt.Errorf("the table %s does not exist; create=true in the URL, or Create in the options, creates it, and %s has the statement: %w", s.table, page, err)
	case hasNumber(err, errNoKey):
		return fmt.Errorf("the primary key of the table %s must be the column name alone: %w", s.table, err)
	case hasNumber(err, errNoColumn):
		return fmt.Errorf("the table %s lacks a column, compare it with the statement in %s: %w", s.table, page, err)
	case hasNumber(err, errNoRight, errNoColumnRight):
		return fmt.Errorf("the user needs SELECT, INSERT and UPDATE on the table %s, CREATE if it is to be created, DELETE for Sweep; see %s#permissions: %w", s.table, page, err)
	}
	return err
}
