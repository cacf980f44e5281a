package mysqllock

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

func TestOpenURL(t *testing.T) {
	t.Parallel()
	table := freshTable(t)
	url := server(t).URL() + "?create=true&max_conns=3&ttl=7s&table=" + table
	l, err := Open(t.Context(), url, &Options{Table: table})
	testkit.Must(t, err)
	start := time.Now()
	lock, err := l.Lock(t.Context(), "n")
	testkit.Must(t, err)
	if d := lock.Deadline(); d.Before(start.Add(6*time.Second)) || d.After(time.Now().Add(7*time.Second)) {
		t.Errorf("with ttl=7s the deadline is in %v", time.Until(d))
	}
	db := lock.(*Lock).claim.driver.db
	if n := db.Stats().MaxOpenConnections; n != 3 {
		t.Errorf("with max_conns=3 the pool's limit is %d", n)
	}
	testkit.Should(t, l.Close())
	if db.Ping() == nil {
		t.Error("the pool is open after Close")
	}
	second, err := OpenDSN(t.Context(), config(t, server(t).URL()).FormatDSN(), &Options{Table: table})
	testkit.Must(t, err)
	defer second.Close()
	if st, err := second.Inspect(t.Context(), "n"); err != nil || st.Held || st.Token != lock.Token() {
		t.Errorf("what the first Locker left: %+v, %v", st, err)
	}
}

// TestOpenRefuses wants errors that say what was wrong, and no password.
func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		url     string
		options *Options
		want    string
		invalid bool
	}{
		{"mysql://u:secret@h1,h2/db", nil, "2 hosts", true},
		{"mysql://u:secret@h/db?tabel=x", nil, `did you mean "table"`, true},
		{"mysql://u:secret@h/db?table=a", &Options{Table: "b"}, "table is a, but also given as b", true},
		{"mysql://u:secret@h/db?max_conns=3", &Options{MaxConns: 4}, "max_conns is 3, but also given as 4", true},
		{"mysql://u:secret@h/db?table=a%60b", nil, "letters, digits", true},
		{"mysql://u:secret@h/db?ttl=1ms", nil, "100ms", true},
		{"mysql://u:secret@h/db", &Options{MaxConns: -1}, "MaxConns is -1", true},
		{"mysql://u:secret@h/db?wait_conns=3", &Options{WaitConns: -1}, "wait_conns is 3, but also given as -1", true},
		{"mysql://u:secret@h/db?wait_conns=-1", nil, "0 to 1000", true},
		{"mysql://u:secret@h", nil, "no schema is named", true},
		{"mysql://u:secret@h/?table=locks", nil, "no schema is named", true},
		{"mysql://u:secret@127.0.0.1:1?table=app.locks", nil, "connection refused", false},
		{"redis://u:secret@h/db", nil, "allowed are mysql, mysqls", true},
		{"mysql://u:secret@127.0.0.1:1/db", nil, "connection refused", false},
	} {
		_, err := Open(t.Context(), c.url, c.options)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, distlock.ErrInvalid) != c.invalid {
			t.Errorf("Open(%q, %+v): %v, want %q, ErrInvalid=%t", c.url, c.options, err, c.want, c.invalid)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%q): the error shows the password: %v", c.url, err)
		}
	}
	if _, err := OpenDSN(t.Context(), "u:secret@tcp(h)/", nil); !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), "no schema is named") {
		t.Errorf("OpenDSN without a schema: %v", err)
	}
	if _, err := OpenDSN(t.Context(), "u:secret@/db?timeout=secret", nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("OpenDSN: %v", err)
	}
}

// TestConnectionsOfOpen looks at the connections for named locks, which may say nothing for hours: the server is to leave them. A
// DSN may say otherwise.
func TestConnectionsOfOpen(t *testing.T) {
	t.Parallel()
	c, table := config(t, server(t).URL()), freshTable(t)
	for want, params := range map[int]map[string]string{2147483: nil, 77: {"wait_timeout": "77"}} {
		c.Params = params
		l, err := OpenDSN(t.Context(), c.FormatDSN(), &Options{Table: table, Create: true})
		testkit.Must(t, err)
		defer l.Close()
		var got int
		testkit.Must(t, l.driverOf(t).locks.db.QueryRow("SELECT @@session.wait_timeout").Scan(&got))
		if got != want {
			t.Errorf("with the parameters %v, the server leaves an idle connection for %d s, want %d", params, got, want)
		}
	}
}

// testNoAutocommit has a server begin sessions without autocommit, from some day on: those of Open have it.
func testNoAutocommit(t *testing.T, s *servers.Server) {
	admin := poolOf(t, config(t, s.AdminURL()))
	set := func(value int) {
		_, err := admin.Exec(fmt.Sprint("SET GLOBAL autocommit = ", value))
		testkit.Must(t, err)
	}
	l, err := Open(t.Context(), s.URL(), &Options{Create: true})
	testkit.Must(t, err)
	defer l.Close()
	set(0)
	defer set(1)
	d := l.driverOf(t)
	d.closeIdle()
	for i, p := range d.pools {
		var on bool
		testkit.Must(t, p.QueryRow("SELECT @@autocommit").Scan(&on))
		if !on {
			t.Errorf("what a new connection of pool %d writes is rolled back", i)
		}
	}
}

// TestWaitIsNoSilence opens a DSN that bounds how long the server may say nothing. A connection that waits for a named lock has no
// answer for as long as it waits.
func TestWaitIsNoSilence(t *testing.T) {
	t.Parallel()
	c := config(t, server(t).URL())
	c.ReadTimeout = 2 * time.Second
	d := openLockers(t, 1, Options{})[0].driverOf(t) // makes the table, which may take longer
	l, err := OpenDSN(t.Context(), c.FormatDSN(), &Options{Table: d.sql.table})
	testkit.Must(t, err)
	defer l.Close()
	if _, err := l.driverOf(t).locks.db.Exec("DO SLEEP(3)"); err != nil {
		t.Errorf("an answer after three seconds: %v", err)
	}
}

func TestTableNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"locks": true, "app.locks": true, "_a$1": true, strings.Repeat("t", 64): true,
		"": false, "a b": false, "a`b": false, "1a": false, "a.b.c": false, ".a": false, "a.": false, "a;b": false,
		"t\u00e4ble": false, strings.Repeat("t", 65): false, "a\n": false, "a-b": false, "%s": false,
	} {
		_, err := Schema(name)
		if ok != (err == nil) || !ok && !errors.Is(err, distlock.ErrInvalid) {
			t.Errorf("Schema(%q): %v", name, err)
		}
	}
	text, err := Schema("app.locks")
	if err != nil || !strings.HasPrefix(text, "CREATE TABLE IF NOT EXISTS `app`.`locks` (") || strings.Contains(text, "{") {
		t.Errorf("Schema: %v\n%s", err, text)
	}
}

// TestTable opens missing and unfit tables.
func TestTable(t *testing.T) {
	t.Parallel()
	db := pool(t, nil)
	table := freshTable(t)
	good, err := Schema(table)
	testkit.Must(t, err)
	replace := func(old, text string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the schema does not contain %q", old)
		}
		return strings.Replace(good, old, text, 1)
	}
	for _, c := range []struct{ create, want string }{
		{"", "create=true in the URL, or Create in the options, creates it, and https://github.com/distlock-go/distlock/blob/main/docs/mysql.md has the statement"},
		{good, ""},
		{replace("undone", "undome"), "lacks a column"},
		{replace("VARBINARY(512)", "VARBINARY(511)"), "varbinary(511), it must be varbinary(512)"},
		{replace("VARBINARY(512)", "VARCHAR(512) CHARACTER SET latin1"), "varchar(512)"},
		{replace("BIGINT", "INT"), "it must be bigint"},
		{replace("token    BIGINT", "token    BIGINT UNSIGNED"), " unsigned, it must be bigint, which is signed"},
		{replace("expires  BIGINT", "expires  BIGINT(20) UNSIGNED"), " unsigned, it must be bigint"},
		{replace("waited   BIGINT", "waited   BIGINT ZEROFILL"), " unsigned zerofill, it must be bigint"},
		{replace(" BINARY(16)", " BINARY(15)"), "binary(15), it must be binary(16)"},
		{replace(" BINARY(16)", " BINARY(17)"), "binary(17), it must be binary(16)"},
		{replace("PRIMARY KEY (name)", "PRIMARY KEY (name, token)"), "primary key"},
		{replace("PRIMARY KEY (name)", "UNIQUE KEY (name)"), "primary key"},
		{replace("InnoDB ROW_FORMAT=DYNAMIC", "MyISAM"), "InnoDB"},
	} {
		if _, err := db.Exec("DROP TABLE IF EXISTS " + table); err != nil {
			t.Fatal(err)
		}
		if c.create != "" {
			if _, err := db.Exec(c.create); err != nil {
				t.Fatal(err)
			}
		}
		l, err := New(db, &Options{Table: table})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("New on %.300q: %v, want %q", c.create, err, c.want)
		}
		if l != nil {
			_ = l.Close()
		}
	}
	off := pool(t, map[string]string{"autocommit": "0"})
	if _, err := New(off, &Options{Table: freshTable(t), Create: true}); !errors.Is(err, distlock.ErrInvalid) {
		t.Errorf("New on a pool without autocommit: %v", err)
	}
	elsewhere := config(t, server(t).URL())
	elsewhere.DBName = "information_schema"
	for want, wait := range map[string]*sql.DB{"autocommit": off, "information_schema": poolOf(t, elsewhere)} {
		_, err := New(pool(t, nil), &Options{Table: freshTable(t), Create: true, WaitDB: wait})
		if !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("New with a WaitDB that does not fit: %v, want one that names %s", err, want)
		}
	}
}

// TestRights opens the table as users with fewer and fewer rights.
func TestRights(t *testing.T) {
	t.Parallel()
	admin := adminPool(t)
	schema := config(t, server(t).URL()).DBName
	table := freshTable(t)
	user := "u" + testkit.Owner()[:20]
	exec := func(format string, args ...any) {
		t.Helper()
		if _, err := admin.Exec(fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE USER %s IDENTIFIED BY 'pw'", user)
	defer exec("DROP USER %s", user)
	c := config(t, server(t).URL())
	c.User, c.Passwd, c.DBName = user, "pw", ""
	db := poolOf(t, c)
	options := &Options{Table: schema + "." + table, Create: true}
	refused := func(what string) {
		t.Helper()
		_, err := New(db, options)
		if err == nil || !strings.Contains(err.Error(), "user needs SELECT, INSERT and UPDATE") {
			t.Errorf("New %s: %v", what, err)
		}
	}
	refused("without any right")
	exec("GRANT SELECT, INSERT, UPDATE ON %s.* TO %s", schema, user)
	refused("without CREATE")
	exec("GRANT CREATE ON %s.* TO %s", schema, user)
	l, err := New(db, options)
	if err != nil {
		t.Fatalf("New with every right: %v", err)
	}
	defer l.Close()
	exec("REVOKE CREATE ON %s.* FROM %s", schema, user)
	again, err := New(db, options)
	if err != nil {
		t.Fatalf("New without CREATE on a table that exists: %v", err)
	}
	defer again.Close()
	lock, err := again.Lock(t.Context(), "n")
	testkit.Must(t, err)
	testkit.Should(t, lock.Unlock(t.Context()))
	if _, err := again.Sweep(t.Context(), time.Hour); err != nil {
		t.Errorf("Sweep that finds nothing: %v", err)
	}
	exec("REVOKE UPDATE ON %s.* FROM %s", schema, user)
	refused("without UPDATE")
	exec("GRANT UPDATE ON %s.* TO %s", schema, user)
	exec("REVOKE INSERT ON %s.* FROM %s", schema, user)
	refused("without INSERT")
	// What is refused leaves nothing, not even once the right is there again.
	for i := range 10 {
		if _, err := l.TryLock(t.Context(), fmt.Sprint("refused", i)); !hasNumber(err, errNoRight) {
			t.Errorf("TryLock without INSERT: %v", err)
		}
	}
	exec("GRANT INSERT ON %s.* TO %s", schema, user)
	if err := l.Close(); err != nil { // which waits for clean-ups
		t.Error(err)
	}
	var rows int
	if err := db.QueryRow("SELECT COUNT(*) FROM " + options.Table + " WHERE name LIKE 'refused%'").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows are left of what was refused: %v", rows, err)
	}
}

// TestSchemas opens schemas that do not exist, or are not named. That is no question of the rights
// on the table.
func TestSchemas(t *testing.T) {
	t.Parallel()
	unknown := "s" + testkit.Owner()
	as := func(c *mysql.Config, schema string) *sql.DB {
		c.DBName = schema
		return poolOf(t, c)
	}
	adminPool(t) // or skip
	admin := config(t, server(t).AdminURL())
	for _, c := range []struct {
		what    string
		db      *sql.DB
		table   string
		want    string
		invalid bool
	}{
		{"no schema", as(config(t, server(t).URL()), ""), "locks", "no schema is named", true},
		{"an unknown schema, for a user with every right", as(admin, unknown), "locks", "the schema does not exist; CREATE DATABASE", false},
		{"an unknown schema", as(config(t, server(t).URL()), unknown), "locks", "the schema does not exist, or the user has no right", false},
	} {
		_, err := New(c.db, &Options{Table: c.table, Create: true})
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, distlock.ErrInvalid) != c.invalid ||
			strings.Contains(err.Error(), "user needs SELECT") {
			t.Errorf("New with %s: %v, want %q, ErrInvalid=%t", c.what, err, c.want, c.invalid)
		}
	}
}

// TestCreateTogether has many processes find that the table is missing.
func TestCreateTogether(t *testing.T) {
	t.Parallel()
	for range 5 {
		table := freshTable(t)
		var wg sync.WaitGroup
		for range 8 {
			db := pool(t, nil)
			wg.Go(func() {
				l, err := New(db, &Options{Table: table, Create: true})
				if err != nil {
					t.Error(err)
					return
				}
				defer l.Close()
				lock, err := l.Lock(t.Context(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				testkit.Should(t, lock.Unlock(t.Context()))
			})
		}
		wg.Wait()
	}
}
