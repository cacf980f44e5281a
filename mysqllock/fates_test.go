package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestFates looks at what the server and the client library say.
func TestFates(t *testing.T) {
	server := func(number uint16, state string) error {
		e := &mysql.MySQLError{Number: number}
		copy(e.SQLState[:], state)
		return fmt.Errorf("somewhere: %w", e)
	}
	for _, c := range []struct {
		err  error
		want driver.Fate
	}{
		{server(errDeadlock, "40001"), driver.Again},
		{server(errDuplicate, "23000"), driver.Again},
		{server(errReadOnly, "HY000"), driver.NotNow},
		{server(errTableFull, "HY000"), driver.NotNow},
		{server(errUserLimit, "42000"), driver.NotSent},
		{server(errStatementLimit, "42000"), driver.NotNow},
		{server(errNoRight, "42000"), driver.Answered},
		{server(errNoTable, "42S02"), driver.Answered},
		{server(errSafeUpdates, "HY000"), driver.Answered},
		{server(1105, "HY000"), driver.Unknown}, // many a proxy's for anything
		{server(1053, "08S01"), driver.Unknown}, // a shutdown
		{server(1105, ""), driver.Unknown},
		{&connectError{server(1045, "28000")}, driver.Answered},
		{&connectError{context.Canceled}, driver.NotSent},
		{&connectError{&driver.NoAnswer{From: "address"}}, driver.NotSent},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, driver.NotSent},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, driver.Unknown},
		{sqldriver.ErrBadConn, driver.NotSent},
		{mysql.ErrInvalidConn, driver.Unknown},
		{context.Canceled, driver.Unknown},
		{errors.New("sql: database is closed"), driver.Answered},
	} {
		if got := driver.FateOf(fault(c.err)); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
		if err := fault(c.err); !errors.Is(err, c.err) && c.want != driver.Answered {
			t.Errorf("%v is lost in %v", c.err, err)
		}
	}
	if fault(nil) != nil {
		t.Error("no error has become one")
	}
}

// testStatementLimit has the server refuse to prepare statements, as others have prepared too many: locks are taken and given back,
// also by connections that are new.
func testStatementLimit(t *testing.T, s *servers.Server) {
	l, err := Open(t.Context(), s.URL(), &Options{Create: true})
	testkit.Must(t, err)
	defer l.Close()
	d, admin := l.driverOf(t), poolOf(t, config(t, s.AdminURL()))
	var before int
	testkit.Must(t, admin.QueryRow("SELECT @@global.max_prepared_stmt_count").Scan(&before))
	limit := func(n int) {
		_, err := admin.Exec(fmt.Sprint("SET GLOBAL max_prepared_stmt_count = ", n))
		testkit.Must(t, err)
	}
	limit(0)
	defer limit(before)
	for range 2 { // by acquire.sql, and by take.sql
		d.closeIdle()
		h, err := l.TryLock(t.Context(), "n")
		testkit.Must(t, err)
		if _, err := l.TryLock(t.Context(), "n"); !errors.Is(err, distlock.ErrHeld) {
			t.Errorf("TryLock of a held name: %v", err)
		}
		testkit.Must(t, h.Unlock(t.Context()))
	}
}

// failOver makes connections to a server that becomes a replica; those that are made later are to another.
type failOver struct {
	sqldriver.Connector
	over atomic.Bool
}

// Connect implements driver.Connector.
func (f *failOver) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := f.Connector.Connect(ctx)
	later := f.over.Load()
	return &standInConn{c, &standIn{refuse: func(string) error {
		if f.over.Load() && !later {
			return &mysql.MySQLError{Number: errReadOnly}
		}
		return nil
	}}}, err
}

// leaveIdle has a pool keep n connections that nobody uses.
func leaveIdle(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	conns := make([]*sql.Conn, n)
	for i := range conns {
		conn, err := db.Conn(t.Context())
		testkit.Must(t, err)
		conns[i] = conn
	}
	for _, conn := range conns {
		testkit.Must(t, conn.Close())
	}
}

// TestPoolAfterFailOver has a pool of the user's keep connections to what is a replica now: none is asked twice.
func TestPoolAfterFailOver(t *testing.T) {
	t.Parallel()
	connector, err := mysql.NewConnector(config(t, server(t).URL()))
	testkit.Must(t, err)
	f := &failOver{Connector: connector}
	db := sql.OpenDB(f)
	defer db.Close()
	db.SetMaxIdleConns(3)
	d := testDriver(t, db, freshTable(t))
	c := d.claimOn("n", time.Minute)
	grants(t, c)
	leaveIdle(t, db, 3)
	f.over.Store(true)
	for range 3 {
		if err := renewError(t, c); !hasNumber(err, errReadOnly) {
			t.Fatalf("a renewal on an old connection: %v, want that the server is read-only", err)
		}
	}
	testkit.Should(t, renewError(t, c))
}

// testRefusalPasses has a server refuse statements for a moment. A waiter goes on, and a TryLock is
// told why.
func testRefusalPasses(t *testing.T, s *servers.Server) {
	admin := poolOf(t, config(t, s.AdminURL()))
	exec := func(statement string) {
		t.Helper()
		if _, err := admin.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	schema, err := Schema(DefaultTable)
	testkit.Must(t, err)
	for _, c := range []struct {
		refuse, accept string
		number         uint16
	}{
		{"SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", errReadOnly},
		{"RENAME TABLE distlock TO elsewhere", "RENAME TABLE elsewhere TO distlock", errNoTable},
		{"DROP TABLE distlock", schema, errNoTable},
	} {
		t.Run(c.refuse, func(t *testing.T) {
			connector, err := mysql.NewConnector(config(t, s.URL()))
			testkit.Must(t, err)
			var refused atomic.Int64
			db := sql.OpenDB(&standIn{Connector: connector, failed: func(err error) {
				if hasNumber(err, c.number) {
					refused.Add(1)
				}
			}})
			defer db.Close()
			holder, err := Open(t.Context(), s.URL(), &Options{Create: true})
			testkit.Must(t, err)
			defer holder.Close()
			contended := make(chan struct{}, 1)
			waiter, err := New(db, &Options{Options: distlock.Options{Observer: &distlock.Observer{ // which polls
				Contended: func(distlock.Contended) { contended <- struct{}{} },
			}}})
			testkit.Must(t, err)
			defer waiter.Close()
			held, err := holder.Lock(t.Context(), "n")
			testkit.Must(t, err)
			next := make(chan error, 1)
			go func() {
				lock, err := waiter.Lock(context.Background(), "n")
				if err == nil {
					err = lock.Unlock(context.Background())
				}
				next <- err
			}()
			<-contended
			exec(c.refuse)
			testkit.Until(t, "the waiter was refused", func() bool { return refused.Load() > 1 })
			if _, err := holder.TryLock(t.Context(), "other"); !hasNumber(err, c.number) {
				t.Errorf("TryLock: %v, want the server's %d", err, c.number)
			}
			exec(c.accept)
			if err := held.Unlock(t.Context()); err != nil && !errors.Is(err, distlock.ErrLost) { // the row may be another
				t.Error(err)
			}
			if err := <-next; err != nil {
				t.Errorf("the waiter: %v", err)
			}
		})
	}
}

// TestFateOfARenewalThatFindsNoRoom: while others wait for their rows, it is not sent.
func TestFateOfARenewalThatFindsNoRoom(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := &store{renewals: &renewals{alone: make(chan struct{})}}
	if _, err := d.renewAlone(ctx, nil, time.Second); driver.FateOf(err) != driver.NotSent {
		t.Errorf("%v: %v", driver.FateOf(err), err)
	}
}
