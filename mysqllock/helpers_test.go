package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// shared is the server of all tests of the package: starting one takes longer than
// most tests do, and each test has a table of its own.
var shared = servers.Shared{Kind: servers.MySQL}

func TestMain(m *testing.M) { harness.Main(m, openURL, shared.Close) }

func openURL(ctx context.Context, url, namespace string) (distlock.Locker, error) {
	return Open(ctx, url, &Options{Table: namespace, Create: true})
}

func server(t testing.TB) *servers.Server {
	t.Helper()
	return shared.ForTest(t)
}

// config returns what the client needs to reach the server by one of its URLs.
func config(t testing.TB, rawURL string) *mysql.Config {
	t.Helper()
	u, err := openurl.Parse(rawURL, "mysql")
	testkit.Must(t, err)
	c := mysql.NewConfig()
	c.Net, c.Addr = "tcp", u.HostsDefault("3306")[0]
	c.DBName = strings.TrimPrefix(u.Path(), "/")
	c.User, c.Passwd, _ = u.User()
	c.Logger = &mysql.NopLogger{}
	return c
}

// pool opens a *sql.DB with session variables, as a user's DSN would set them.
func pool(t testing.TB, params map[string]string) *sql.DB {
	t.Helper()
	c := config(t, server(t).URL())
	c.Params = params
	return poolOf(t, c)
}

func poolOf(t testing.TB, c *mysql.Config) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(c)
	testkit.Must(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(100)
	t.Cleanup(func() { db.Close() })
	return db
}

// adminPool opens a pool of a user with the right to create users, or skips the test.
func adminPool(t testing.TB) *sql.DB {
	t.Helper()
	url := server(t).AdminURL()
	if url == "" {
		t.Skip("the given server is not ours to change")
	}
	return poolOf(t, config(t, url))
}

// freshTable returns the name of a table that does not exist, and drops it in the
// end.
func freshTable(t testing.TB) string {
	t.Helper()
	table := "t" + testkit.Owner()
	t.Cleanup(func() {
		db := pool(t, nil)
		if _, err := db.Exec("DROP TABLE IF EXISTS " + table); err != nil {
			t.Error(err)
		}
	})
	return table
}

// testDriver makes a driver on db with a new table, or with one that exists.
func testDriver(t testing.TB, db *sql.DB, table string) *store {
	t.Helper()
	statements, err := newStatements(table)
	testkit.Must(t, err)
	d := &store{db: db, sql: statements}
	t.Cleanup(func() { testkit.Should(t, d.Close()) })
	testkit.Must(t, d.start(t.Context(), true))
	return d
}

func (d *store) claimOn(name string, ttl time.Duration) *claim {
	return d.Claim(driver.Request{Name: name, Owner: testkit.Owner(), TTL: ttl, Holder: "test"}).(*claim)
}

// repeated calls f again as long as the server undoes what it did, as the engine does.
func repeated(f func() error) error {
	for {
		if err := f(); driver.FateOf(err) != driver.Again {
			return err
		}
	}
}

// grants fails the test unless c gets its name.
func grants(t testing.TB, c *claim) driver.Grant {
	t.Helper()
	var g driver.Grant
	if err := repeated(func() (err error) { g, err = c.Try(t.Context()); return err }); err != nil {
		t.Fatalf("Try of %.20q: %v, want a grant", c.request.Name, err)
	}
	if g.Token <= 0 || g.TTL < c.request.TTL {
		t.Fatalf("Try of %.20q granted %+v for a TTL of %v", c.request.Name, g, c.request.TTL)
	}
	return g
}

// refuses fails the test unless c's name is held by another.
func refuses(t testing.TB, c *claim) time.Duration {
	t.Helper()
	_, err := c.Try(t.Context())
	var held *distlock.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("Try of %.20q: %v, want HeldError", c.request.Name, err)
	}
	return held.Remaining
}

func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// expire ends the lease of name as time would.
func expire(t testing.TB, d *store, name string) {
	t.Helper()
	query := "UPDATE " + d.sql.table + " SET expires = expires - 3600 * 1000000 WHERE name = " + "x'" + hexOf(name) + "'"
	if _, err := d.db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

// ageFree makes it a minute since any name was locked, or given back.
func ageFree(t testing.TB, d *store) {
	t.Helper()
	query := "UPDATE " + d.sql.table + " SET token = token - 60 * 1000000, expires = expires + IF(expires < 0, 60 * 1000000, 0)"
	if _, err := d.db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

// lockRow starts a transaction of somebody else's that locks the row of name.
func lockRow(t testing.TB, d *store, name string) *sql.Tx {
	t.Helper()
	tx, err := pool(t, nil).BeginTx(t.Context(), nil)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	var token int64
	query := "SELECT token FROM " + d.sql.table + " WHERE name = " + "x'" + hexOf(name) + "'" + " FOR UPDATE"
	testkit.Must(t, tx.QueryRowContext(t.Context(), query).Scan(&token))
	return tx
}

// watch returns a function that says how many statements on d's table the server is
// working on, or keeps waiting.
func watch(t testing.TB, d *store) func() int {
	t.Helper()
	db := pool(t, nil)
	return func() int {
		t.Helper()
		return statementsWith(t, db, d.sql.table)
	}
}

func statementsWith(t testing.TB, db *sql.DB, text string) int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW FULL PROCESSLIST")
	testkit.Must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	testkit.Must(t, err)
	info, command := slices.Index(columns, "Info"), slices.Index(columns, "Command")
	n := 0
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		testkit.Must(t, rows.Scan(into...))
		// A statement that is only being prepared is not under way: the server does not run it
		// if its client goes.
		if strings.Contains(values[info].String, text) && values[command].String != "Prepare" {
			n++
		}
	}
	testkit.Must(t, rows.Err())
	return n
}

// breakSeen ends whatever hold there is on a name; ErrLost if there is none.
func breakSeen(ctx context.Context, d *store, name string) error {
	st, err := d.Inspect(ctx, name)
	if err != nil {
		return err
	}
	return d.Break(ctx, name, max(st.Token, 1))
}

// Renew renews the claim alone.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	one := []driver.Renewal{{Claim: c, TTL: ttl}}
	c.driver.Renew(ctx, one)
	return one[0].Grant, one[0].Err
}

// unanswered returns a batch as it was before its answers.
func unanswered(batch []driver.Renewal) (asked []driver.Renewal) {
	for _, r := range batch {
		asked = append(asked, driver.Renewal{Claim: r.Claim, TTL: r.TTL})
	}
	return asked
}
