package mysqllock

import (
	"bytes"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/internal/turns"
)

// TestMuteServer opens what accepts connections and says nothing: with bounds for the dial, and
// with one of the caller's.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	p, url := link(t)
	p.Drop(true, true)
	_, err := Open(context.Background(), url+"?dial_timeout=200ms", nil)
	// The bound of the dial names the address, that of all of Open does not.
	if err == nil || !strings.Contains(err.Error(), "no answer from "+p.Addr()) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open: %v, want one that says that there is no answer", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	dsn := config(t, url)
	_, err = OpenDSN(ctx, dsn.FormatDSN(), nil)
	wantError(t, "OpenDSN", err, context.DeadlineExceeded)
	if strings.Contains(err.Error(), dsn.Passwd) {
		t.Errorf("the error shows the password: %v", err)
	}
}

// TestServerGoes has a server refuse, stops it, and then kills it.
func TestServerGoes(t *testing.T) {
	t.Parallel()
	s := servers.ForTest(t, servers.MySQL)
	t.Run("refuses", func(t *testing.T) { testRefusalPasses(t, s) })
	t.Run("commits nothing", func(t *testing.T) { testNoAutocommit(t, s) })
	t.Run("ends what takes long", func(t *testing.T) { testStatementTime(t, s) })
	t.Run("prepares nothing", func(t *testing.T) { testStatementLimit(t, s) })
	t.Run("stopped", func(t *testing.T) { testStoppedServer(t, s) })
	t.Run("killed", func(t *testing.T) { testWaiterSurvivesOutage(t, s) })
}

// testStoppedServer stops a server that has answered before.
func testStoppedServer(t *testing.T, s *servers.Server) {
	l, err := Open(t.Context(), s.URL(), &Options{Create: true})
	testkit.Must(t, err)
	d := l.driverOf(t)
	testkit.Must(t, s.Pause(t.Context()))
	nothing := func(*sql.Rows) error { return nil }
	asked := map[string]func() error{
		"Inspect": func() error { _, err := l.Inspect(context.Background(), "n"); return err },
		"Break":   func() error { return l.Break(context.Background(), "n", 1) },
		"a list, had it less patience": func() error {
			return d.ask(context.Background(), time.Second, d.sql.fill("list", values{}), nothing)
		},
		"Open": func() error {
			_, err := Open(context.Background(), s.URL()+"?dial_timeout=1s", nil)
			return err
		},
	}
	var all sync.WaitGroup
	for what, f := range asked {
		all.Go(func() {
			if err := f(); err == nil || !strings.Contains(err.Error(), "no answer from") {
				t.Errorf("%s of a server that is stopped: %v", what, err)
			}
		})
	}
	all.Wait()
	testkit.Must(t, s.Resume(t.Context()))
	testkit.Should(t, l.Close())
}

// link puts a proxy before the server, and returns the URL of the server behind it.
func link(t *testing.T) (*netfault.TCPProxy, string) {
	t.Helper()
	s := server(t)
	p, err := netfault.NewTCPProxy(s.Addr(), 1)
	testkit.Must(t, err)
	t.Cleanup(func() { p.Close() })
	return p, strings.Replace(s.URL(), s.Addr(), p.Addr(), 1)
}

// TestCloseAfterReset closes broken connections. There is nothing to be done about them, so Close
// does not fail.
func TestCloseAfterReset(t *testing.T) {
	t.Parallel()
	p, url := link(t)
	l, err := Open(t.Context(), url, &Options{Table: freshTable(t), Create: true})
	testkit.Must(t, err)
	p.CutAll()
	testkit.Should(t, l.Close())
}

// TestRenewalsLeaveMuteConnections: if one of them does not answer, the others may not do so either, as after a failover
// that has ended none. One that had less time to answer than a renewal has says nothing of the others, nor of the named locks.
func TestRenewalsLeaveMuteConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		ttl    time.Duration
		leaves bool
	}{
		{"a renewal", 200 * time.Millisecond, true},
		{"an Extend whose caller has left", time.Minute, false},
	} {
		t.Run(c.what, func(t *testing.T) { testMuteConnection(t, c.ttl, c.leaves) })
	}
}

// testMuteConnection has a renewal for ttl wait in vain, for longer than one for a short ttl needs to tell.
func testMuteConnection(t *testing.T, ttl time.Duration, leaves bool) {
	p, url := link(t)
	l, err := Open(t.Context(), url, &Options{Table: freshTable(t), Create: true})
	testkit.Must(t, err)
	defer l.Close()
	d := l.driverOf(t)
	a := holdsWithLock(t, d)
	before := usesLock(t, d, "n")
	idle := d.renewals.db
	testkit.Until(t, "two connections of renewals are idle", func() bool {
		if idle.Stats().Idle < 2 {
			first, err1 := idle.Conn(t.Context())
			second, err2 := idle.Conn(t.Context())
			if err1 == nil && err2 == nil {
				_, _ = first.Close(), second.Close()
			}
		}
		return idle.Stats().Idle >= 2
	})
	p.DropRequest(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	batch := []driver.Renewal{{Claim: a, TTL: ttl}}
	began, over := time.Now(), make(chan struct{})
	go func() { d.Renew(ctx, batch); close(over) }()
	testkit.Until(t, "the renewal gets no answer", func() bool { return p.Fired() == 1 })
	if leaves {
		<-time.After(ttl / 4)
	}
	cancel()
	<-over
	if batch[0].Err == nil {
		t.Fatal("a renewal without an answer has succeeded")
	}
	if time.Now().After(began.Add(deadAfter)) { // the machine is late, and the connection has had its time
		leaves = true
	}
	if n := idle.Stats().Idle; (n == 0) != leaves {
		t.Errorf("%d more connections are trusted", n)
	}
	testkit.Until(t, "nothing more happens to the named locks", func() bool {
		d.locks.shared.mu.Lock()
		defer d.locks.shared.mu.Unlock()
		return !d.locks.shared.works
	})
	if now := usesLock(t, d, "n"); now != before || before == 0 {
		t.Errorf("the named lock was with the connection %d, and is with %d", before, now)
	}
	testkit.Should(t, a.Release(t.Context()))
}

// TestDeadConnectionsAreLeft: if one connection of the common pool breaks, or says nothing for longer than a statement waits for a
// row, those beside it are not tried one after the other, a call each. One that was given up before says nothing of them.
func TestDeadConnectionsAreLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		fault  func(*netfault.TCPProxy, int)
		wait   time.Duration
		leaves bool
	}{
		{"breaks", (*netfault.TCPProxy).CutRequest, time.Minute, true},
		{"is silent", (*netfault.TCPProxy).DropRequest, silentAfter + silentAfter/10, true},
		{"is given up", (*netfault.TCPProxy).DropRequest, silentAfter / 10, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			p, url := link(t)
			l, err := Open(t.Context(), url, &Options{Table: freshTable(t), Create: true})
			testkit.Must(t, err)
			defer l.Close()
			d := l.driverOf(t)
			givesBack(t, d.locks) // what it has left to do would be a request, too
			leaveIdle(t, d.db, 3)
			c.fault(p, 1)
			ctx, cancel := context.WithTimeout(t.Context(), c.wait)
			defer cancel()
			one := d.Claim(driver.Request{Name: "x", TTL: time.Minute}).(*claim)
			if _, _, err := one.exec(ctx, turns.Trying, d.plain(d.db, "DO 1")); err == nil || p.Fired() != 1 {
				t.Fatalf("a statement without an answer: %v", err)
			}
			if n := d.db.Stats().Idle; (n == 0) != c.leaves {
				t.Errorf("%d more connections are trusted", n)
			}
		})
	}
}

// testWaiterSurvivesOutage restarts the server while a claim waits: its Lock goes on, and
// one that has just begun says that the server cannot be reached.
func testWaiterSurvivesOutage(t *testing.T, s *servers.Server) {
	var lockers []*Locker
	for range 2 {
		l, err := Open(t.Context(), s.URL(), &Options{Create: true, Options: distlock.Options{TTL: 30 * time.Second}})
		testkit.Must(t, err)
		defer func() { testkit.Should(t, l.Close()) }()
		lockers = append(lockers, l)
	}
	held, err := lockers[0].Lock(t.Context(), "n")
	testkit.Must(t, err)
	takesLock(t, held.(*Lock).claim)
	next := handOff(t, held, lockers[1], func() {
		db := poolOf(t, config(t, s.URL()))
		lock := lockers[1].driverOf(t).sql.namedLock("n").lock
		testkit.Until(t, "the next waits", func() bool { return statementsWith(t, db, lock) > 0 })
		testkit.Must(t, s.Kill(t.Context()))
		if _, err := lockers[0].Lock(t.Context(), "other"); err == nil || errors.Is(err, distlock.ErrHeld) {
			t.Errorf("Lock without a server: %v", err)
		}
		time.Sleep(time.Second) // in which the waiter asks in vain; only a pass can be false
		testkit.Must(t, s.Restart(t.Context()))
	})
	testkit.Should(t, next.Unlock(t.Context()))
}

// standIn is a connector; its server differs from the real one in some statements.
type standIn struct {
	sqldriver.Connector
	refuse   func(statement string) error
	noInsert bool        // loses LAST_INSERT_ID
	failed   func(error) // is told why statements fail
	rewrite  func(statement string) string
}

// Connect implements driver.Connector.
func (s *standIn) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := s.Connector.Connect(ctx)
	return &standInConn{c, s}, err
}

type standInConn struct {
	sqldriver.Conn
	s *standIn
}

func (c *standInConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := c.s.refuses(text); err != nil {
		return nil, err
	}
	if c.s.rewrite != nil {
		text = c.s.rewrite(text)
	}
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, text, args)
}

func (c *standInConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if err := c.s.refuses(text); err != nil {
		return nil, err
	}
	return c.s.answer(c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, text, args))
}

func (c *standInConn) PrepareContext(ctx context.Context, text string) (sqldriver.Stmt, error) {
	if err := c.s.refuses(text); err != nil {
		return nil, err
	}
	stmt, err := c.Conn.(sqldriver.ConnPrepareContext).PrepareContext(ctx, text)
	return &standInStmt{stmt, c.s}, err
}

func (s *standIn) refuses(text string) error {
	if s.refuse == nil {
		return nil
	}
	return s.refuse(text)
}

type standInStmt struct {
	sqldriver.Stmt
	s *standIn
}

func (s *standInStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return s.s.answer(s.Stmt.(sqldriver.StmtExecContext).ExecContext(ctx, args))
}

// answer is what the server says to a statement that has had this answer.
func (s *standIn) answer(r sqldriver.Result, err error) (sqldriver.Result, error) {
	if err != nil && s.failed != nil {
		s.failed(err)
	}
	if err == nil && s.noInsert {
		return noInsertID{r}, nil
	}
	return r, err
}

type noInsertID struct{ sqldriver.Result }

// LastInsertId implements driver.Result.
func (noInsertID) LastInsertId() (int64, error) { return 0, nil }

// TestProbe opens Lockers on servers that behave as some products do.
func TestProbe(t *testing.T) {
	t.Parallel()
	refuse := func(word string) func(string) error {
		return func(text string) error {
			if strings.Contains(text, word) {
				return &mysql.MySQLError{Number: 1105, Message: word + " is not allowed here"}
			}
			return nil
		}
	}
	for _, c := range []struct {
		what string
		s    standIn
		push bool
		skip bool   // can pass over locked rows
		want string // of the error
		log  string
	}{
		{what: "a server that can everything", push: true, skip: true},
		{what: "GET_LOCK is refused", s: standIn{refuse: refuse("GET_LOCK")}, skip: true, log: "GET_LOCK is not allowed here"},
		{what: "named locks have no effect", skip: true, log: "no effect",
			s: standIn{rewrite: func(text string) string {
				return strings.ReplaceAll(strings.ReplaceAll(text, "GET_LOCK", "NULLIF"), "COALESCE(RELEASE_LOCK(", "COALESCE(NULLIF(1, 1), (")
			}}},
		{what: "TiDB", skip: true, log: "TiDB",
			s: standIn{rewrite: func(text string) string { return strings.ReplaceAll(text, "VERSION()", "'8.0.11-TiDB-v8.5.0'") }}},
		{what: "locked rows cannot be passed over", s: standIn{refuse: refuse("SKIP LOCKED")}, push: true},
		{what: "LAST_INSERT_ID is lost", s: standIn{noInsert: true}, want: "LAST_INSERT_ID"},
		{what: "LAST_INSERT_ID is refused", s: standIn{refuse: refuse("LAST_INSERT_ID")}, want: "LAST_INSERT_ID is not allowed here"},
	} {
		t.Run(c.what, func(t *testing.T) {
			connector, err := mysql.NewConnector(config(t, server(t).URL()))
			testkit.Must(t, err)
			c.s.Connector = connector
			db := sql.OpenDB(&c.s)
			defer db.Close()
			var log bytes.Buffer
			l, err := New(db, &Options{Table: freshTable(t), Create: true, WaitDB: pool(t, nil),
				Options: distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("New: %v, want %q", err, c.want)
				}
				return
			}
			testkit.Must(t, err)
			defer l.Close()
			if push := l.Capabilities().Push; push != c.push {
				t.Errorf("Push is %t, want %t", push, c.push)
			}
			if lines := strings.Count(log.String(), "\n"); (lines == 1) != (c.log != "") || lines > 1 || !strings.Contains(log.String(), c.log) {
				t.Errorf("the log is %q, want one line with %q, or none", log.String(), c.log)
			}
			d := l.driverOf(t)
			if d.renewals.skip != c.skip {
				t.Errorf("skip is %t, want %t", d.renewals.skip, c.skip)
			}
			testBatch(t, d)
			held, err := l.Lock(t.Context(), "n")
			testkit.Must(t, err)
			next := handOff(t, held, l, func() { time.Sleep(50 * time.Millisecond) })
			testkit.Should(t, next.Unlock(t.Context()))
		})
	}
}
