package mysqllock

import (
	"bytes"
	"context"
	"crypto/tls"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// listen accepts connections and hands each to serve, until the test is over.
func listen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String()
}

// TestMuteServer opens what accepts connections and says nothing, without a bound of the
// caller's.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	addr := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for what, open := range map[string]func() (*Locker, error){
		"Open": func() (*Locker, error) {
			return Open(context.Background(), "mysql://u:secret@"+addr+"/db?dial_timeout=200ms", nil)
		},
		"OpenDSN": func() (*Locker, error) {
			return OpenDSN(context.Background(), "u:secret@tcp("+addr+")/db?timeout=200ms", nil)
		},
	} {
		_, err := open()
		// The bound of the dial names the address, that of all of Open does not.
		if err == nil || !strings.Contains(err.Error(), "no answer from "+addr) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want one that says that there is no answer", what, err)
		}
	}
}

// TestServerGoes has a server refuse, stops it, and then kills it.
func TestServerGoes(t *testing.T) {
	t.Parallel()
	s := servers.ForTest(t, servers.MySQL)
	t.Run("refuses", func(t *testing.T) { testRefusalPasses(t, s) })
	t.Run("stopped", func(t *testing.T) { testStoppedServer(t, s) })
	t.Run("killed", func(t *testing.T) { testWaiterSurvivesOutage(t, s) })
}

// testStoppedServer stops a server that has answered before.
func testStoppedServer(t *testing.T, s *servers.Server) {
	l, err := Open(t.Context(), s.URL(), &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	d := l.driverOf(t)
	if err := s.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothing := func(*sql.Rows) error { return nil }
	asked := map[string]func() error{
		"Inspect": func() error { _, err := l.Inspect(context.Background(), "n"); return err },
		"Break":   func() error { return l.Break(context.Background(), "n", 1) },
		"a list, had it less patience": func() error {
			return d.ask(context.Background(), time.Second, d.sql.fill("list", values{number: "0"}), nothing)
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
	if err := s.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseAfterReset closes reset connections. There is nothing to be done about them, so Close
// does not fail.
func TestCloseAfterReset(t *testing.T) {
	t.Parallel()
	s := server(t)
	conns := make(chan net.Conn, 100)
	addr := listen(t, func(c net.Conn) {
		conns <- c
		up, err := net.Dial("tcp", s.Addr())
		if err != nil {
			c.Close()
			return
		}
		defer up.Close()
		go func() { _, _ = io.Copy(c, up) }()
		_, _ = io.Copy(up, c)
	})
	l, err := Open(t.Context(), strings.Replace(s.URL(), s.Addr(), addr, 1), &Options{Table: freshTable(t), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	db := l.driverOf(t).locks.db // its connections have no prepared statements, so nothing is sent on them before
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for len(conns) > 0 {
		c := (<-conns).(*net.TCPConn)
		_ = c.SetLinger(0)
		c.Close()
	}
	time.Sleep(50 * time.Millisecond) // for the resets to arrive; only a pass can be false
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// testWaiterSurvivesOutage restarts the server while a claim waits: its Lock goes on, and
// one that has just begun says that the server cannot be reached.
func testWaiterSurvivesOutage(t *testing.T, s *servers.Server) {
	var lockers []*Locker
	for range 2 {
		l, err := Open(t.Context(), s.URL(), &Options{Create: true, Options: distlock.Options{TTL: 30 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}()
		lockers = append(lockers, l)
	}
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	takesLocks(t, lockers[0].driverOf(t).locks, 1)
	next := handOff(t, held, lockers[1], func() {
		db := poolOf(t, config(t, s.URL()))
		lock := lockers[1].driverOf(t).sql.namedLock("n").lock
		testkit.Until(t, "the next waits", func() bool { return statementsWith(t, db, lock) > 0 })
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := lockers[0].Lock(t.Context(), "other"); err == nil || errors.Is(err, distlock.ErrHeld) {
			t.Errorf("Lock without a server: %v", err)
		}
		time.Sleep(time.Second) // in which the waiter asks in vain; only a pass can be false
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// tlsGreeting answers as MySQL does up to the TLS handshake. It leaves the handshake to the
// configuration.
func tlsGreeting(c net.Conn, config *tls.Config) {
	defer c.Close()
	const capabilities = 0x00000200 | 0x00000800 | 0x00008000 | 0x00080000 // protocol 4.1, TLS, password, plug-ins
	var b bytes.Buffer
	b.WriteString("\x0a8.0.0\x00")
	b.Write([]byte{1, 0, 0, 0})
	b.WriteString("12345678\x00")
	_ = binary.Write(&b, binary.LittleEndian, uint16(capabilities&0xffff))
	b.Write([]byte{45, 2, 0})
	_ = binary.Write(&b, binary.LittleEndian, uint16(capabilities>>16))
	b.WriteByte(21)
	b.Write(make([]byte, 10))
	b.WriteString("123456789012\x00mysql_native_password\x00")
	_, _ = c.Write(append([]byte{byte(b.Len()), 0, 0, 0}, b.Bytes()...))
	if _, err := io.ReadFull(c, make([]byte, 36)); err != nil { // the request for TLS
		return
	}
	secure := tls.Server(c, config)
	if secure.Handshake() != nil {
		_, _ = io.Copy(io.Discard, c) // lest a reset overtake the alert
		return
	}
	_, _ = io.Copy(io.Discard, secure)
}

// TestCertificateIsRefused shows a server a certificate that it does not accept, and one
// none at all: the error must say why there is no connection.
func TestCertificateIsRefused(t *testing.T) {
	t.Parallel()
	good, stranger := newAuthority(t), newAuthority(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := &tls.Config{
			Certificates: []tls.Certificate{good.issue(t, "127.0.0.1")},
			ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: good.pool(), MaxVersion: version,
		}
		addr := listen(t, func(c net.Conn) { tlsGreeting(c, config) })
		url := "mysqls://u:secret@" + addr + "/db?dial_timeout=5s&tls_ca=" + good.file
		for what, suffix := range map[string]string{
			"another's certificate": stranger.issueFiles(t, "client"),
			"no certificate":        "",
		} {
			_, err := Open(context.Background(), url+suffix, nil)
			if err == nil || !strings.Contains(err.Error(), "tls: ") || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("Open with %s, TLS %#x: %v, want the reason", what, version, err)
			}
		}
		_, err := Open(context.Background(), "mysqls://u:secret@"+addr+"/db?dial_timeout=5s&tls_ca="+stranger.file, nil)
		if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
			t.Errorf("Open of a server with another's certificate: %v", err)
		}
	}
}

// standIn is a connector; its server differs from the real one in some statements.
type standIn struct {
	sqldriver.Connector
	refuse   func(statement string) error
	noInsert bool        // loses LAST_INSERT_ID
	failed   func(error) // is told why prepared statements fail
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
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, text, args)
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
	r, err := s.Stmt.(sqldriver.StmtExecContext).ExecContext(ctx, args)
	if err != nil && s.s.failed != nil {
		s.s.failed(err)
	}
	if err == nil && s.s.noInsert {
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
			if err != nil {
				t.Fatal(err)
			}
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
			if err != nil {
				t.Fatal(err)
			}
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
			if err != nil {
				t.Fatal(err)
			}
			next := handOff(t, held, l, func() { time.Sleep(50 * time.Millisecond) })
			if err := next.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
