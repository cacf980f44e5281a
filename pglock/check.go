package pglock

import (
	"context"
	"crypto/rand"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/sqltext"
)

//go:embed sql/*.sql
var files embed.FS

// validTable allows what can be quoted as it is. 63 bytes is the limit of Postgres.
var validTable = regexp.MustCompile(`^(?:([A-Za-z_][A-Za-z0-9_]{0,62})\.)?([A-Za-z_][A-Za-z0-9_]{0,62})$`)

// quote returns a table as the server wants it; an error if its name is not allowed.
func quote(table string) (string, error) {
	schema, name, err := sqltext.Table(table, validTable, "letters, digits and _, 63")
	if schema != "" {
		return pgx.Identifier{schema, name}.Sanitize(), err
	}
	return pgx.Identifier{name}.Sanitize(), err
}

// tell tells the waiter that a statement has taken off the list. It is a part of the statement, and comes when the row is
// locked. All commits of the server that notify wait for each other, in whatever database, with a lock: that is no row that
// was locked for long, and may take longer.
const tell = "CASE WHEN woken <> '' THEN concat(set_config('lock_timeout', '2s', true), pg_notify('" + channelPrefix +
	"' || encode(substring(woken for 4), 'hex'), encode(woken, 'hex'))) END"

// statements returns the texts of sql/*.sql for a table that was quoted. What they answer is of types that a session's
// settings do not change: where nothing is prepared the server sends text, and of bytes and times that has many forms.
//
// commit is what Capabilities rest on, the synchronous_commit of the session that was asked. Where somebody has turned it off
// in another session of the pool, a crash would lose a grant: there the statements turn it on for themselves. They ask for warnings,
// which somebody may have turned off, too: noteUnconfirmed looks for one.
func statements(table, commit string) map[string]string {
	durable := ""
	if commit != "off" {
		durable = ", CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', '" + commit + "', true) END"
	}
	words := strings.NewReplacer(
		"{table}", table,
		"{now}", "clock_timestamp()",
		"{us}", "interval '1 microsecond'",
		"{token}", "(extract(epoch from clock_timestamp()) * 1000000)::bigint",
		"{acquired}", "(extract(epoch from acquired) * 1000000)::bigint",
		"{remaining}", "greatest((extract(epoch from expires - clock_timestamp()) * 1000000)::bigint, 1)",
		"{bounded}", fmt.Sprintf("concat(set_config('lock_timeout', '%d', true), set_config('client_min_messages', 'warning', true)%s) AS bounded",
			rowWait.Milliseconds(), durable),
		"{next}", "woken = substring(waiters for 16), waiters = substring(waiters from 17)",
		"{others}", "CASE WHEN position($2 in t.waiters) = 0 THEN t.waiters ELSE "+
			"substring(t.waiters for position($2 in t.waiters) - 1) || substring(t.waiters from position($2 in t.waiters) + 16) END",
		"{tell}", tell)
	texts := sqltext.Read(files)
	for name, text := range texts {
		texts[name] = words.Replace(text)
	}
	return texts
}

// Schema returns the statement that creates the table, given as "table" or
// "schema.table", for programs that do not leave that to Options.Create. It
// fails with distlock.ErrInvalid if the name is not allowed.
func Schema(table string) (string, error) {
	quoted, err := quote(table)
	if err != nil {
		return "", err
	}
	return statements(quoted, "off")["schema"], nil
}

// columns are the types that correctness rests on.
var columns = []string{"name bytea", "owner bytea", "token bigint", "expires timestamp with time zone", "acquired timestamp with time zone",
	"released boolean", "waiters bytea", "woken bytea", "holder bytea", "undone bytea"}

// session is what session.sql answers.
type session struct {
	schema, table, columns, commit string
	logged, rights, direct         bool
}

// start makes sure that the table can be used, and finds out what the server can do.
func (d *store) start(ctx context.Context, o *Options) error {
	quoted, err := quote(o.Table)
	if err != nil {
		return err
	}
	d.text = statements(quoted, "off")
	s, err := d.session(ctx, quoted, o.Create)
	if err == nil && !s.direct && d.own {
		// The next request may go to another session: nothing is prepared there.
		config := d.pool.Config()
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		d.disconnect()
		err = d.connect(config)
	}
	if err != nil {
		return explain(err)
	}
	switch have := strings.Split(s.columns, ", "); {
	case s.table == "":
		return fmt.Errorf("the table %s does not exist; create=true in the URL, or Create in the options, creates it, and %s has the statement", o.Table, page)
	case !s.logged:
		return fmt.Errorf("%w: %s must be a table that is neither temporary nor unlogged", distlock.ErrInvalid, o.Table)
	case slices.ContainsFunc(columns, func(c string) bool { return !slices.Contains(have, c) }):
		return fmt.Errorf("%w: the table %s has the columns %s, it must have %s", distlock.ErrInvalid, o.Table, s.columns, strings.Join(columns, ", "))
	case !s.rights:
		return fmt.Errorf("the user needs SELECT, INSERT and UPDATE on the table %s, DELETE for Sweep; see %s#permissions", o.Table, page)
	}
	// From here on, no search_path can lead to another table.
	d.text = statements(pgx.Identifier{s.schema, s.table}.Sanitize(), s.commit)
	// Without a wait for the log, a crash loses what was answered.
	if d.durability = driver.Restart; s.commit == "off" {
		d.durability = driver.Volatile
	}
	if s.direct {
		d.listener = newListener(d.pool, d.own)
	} else if o.Logger != nil {
		o.Logger.Info("a pooler is between this client and the server, so waiters poll", "see", page)
	}
	err = d.probe(ctx)
	d.awaitRenewals(ctx)
	return explain(err)
}

func nothing(pgx.Rows) error { return nil }

const page = "https://github.com/distlock-go/distlock/blob/main/docs/postgres.md"

// session asks the server, and makes the table if there is none and create says so: on the same connection, as a search_path
// that somebody has set on another one may lead elsewhere. A pooler tells its clients a process number of its own.
func (d *store) session(ctx context.Context, table string, create bool) (s session, err error) {
	began := time.Now()
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return s, d.noConnection(err, driver.NotNow, began) // what has an answer is told
	}
	defer conn.Release()
	if err := endsInTime(conn.Conn()); err != nil {
		return s, err
	}
	var pid uint32
	look := func() error {
		return driver.Insist(ctx, func() error {
			return fault(conn.QueryRow(ctx, d.text["session"], pgx.QueryExecModeExec, table).
				Scan(&s.schema, &s.table, &s.logged, &pid, &s.commit, &s.rights, &s.columns), driver.Unknown)
		})
	}
	if err = look(); err == nil && s.table == "" && create {
		// Others may be creating it at this moment: then the next look finds it.
		err = driver.Insist(ctx, func() error {
			_, err := conn.Exec(ctx, d.text["schema"], pgx.QueryExecModeExec)
			return fault(err, driver.Unknown)
		})
		if err == nil || hasCode(err, "42P07", "42710") {
			err = look()
		}
	}
	s.direct = pid == conn.Conn().PgConn().PID()
	return s, err
}

// endsInTime refuses a pool of the user's that has requests go on for a while after their context: calls would overrun
// theirs, a renewal that hangs would leave no time for a second one, and Close would wait.
func endsInTime(c *pgx.Conn) error {
	var delay time.Duration
	switch h := c.Config().BuildContextWatcherHandler(c.PgConn()).(type) {
	case *pgconn.CancelRequestContextWatcherHandler:
		delay = max(h.DeadlineDelay, afterCancel)
	case *pgconn.DeadlineContextWatcherHandler:
		delay = h.DeadlineDelay
	}
	if delay > maxDelay {
		return fmt.Errorf("%w: the pool's BuildContextWatcherHandler has requests go on for %v after their context, allowed is %v: give pglock a pool of its own, or a URL",
			distlock.ErrInvalid, delay, maxDelay)
	}
	return nil
}

const (
	// maxDelay keeps a call that ends with its context within the 50 ms of the contract (A4).
	maxDelay = 10 * time.Millisecond
	// afterCancel is what the library waits after each request to cancel, whatever the delays are.
	afterCancel = 100 * time.Millisecond
)

// probe takes a lock and undoes it, to see that the server takes writes, and the table has its key. The name is no UTF-8,
// so that no lock can have it, and random: else clients that open at once would wait for each other's row.
func (d *store) probe(ctx context.Context) error {
	owner := []byte(rand.Text())
	name := append([]byte{0xff}, owner...)
	return driver.Insist(ctx, func() error {
		return d.send(ctx,
			query{"BEGIN", nil, nothing},
			query{d.text["acquire"], []any{name, owner, owner, int64(0), false}, nothing},
			query{d.text["held"], []any{name, owner, nowhere}, nothing},
			query{d.text["undo"], []any{name, owner}, nothing},
			query{"ROLLBACK", nil, nothing})
	})
}

// foreign matches what the library says of a server that does not answer like a Postgres. It has no value for that.
var foreign = regexp.MustCompile("unknown message type|received unexpected message")

// explain adds to a server's error what to do about it.
func explain(err error) error {
	switch {
	case hasCode(err, readOnly):
		return fmt.Errorf("the server is read-only, as a standby is, and locks need the one that takes writes: %w", err)
	case hasCode(err, "42501"):
		return fmt.Errorf("the user needs SELECT, INSERT and UPDATE on the table, CREATE on its schema if it is to be created, DELETE for Sweep; see %s#permissions: %w", page, err)
	case hasCode(err, "42P10"):
		return fmt.Errorf("the primary key of the table must be the column name alone: %w", err)
	case err != nil && foreign.MatchString(err.Error()):
		return fmt.Errorf("what listens there does not answer like a Postgres: %w", err)
	}
	return err
}
