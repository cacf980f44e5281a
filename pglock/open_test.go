package pglock

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A server that says nothing has dial_timeout in all, however many addresses its host has.
func TestOpenOfASilentServer(t *testing.T) {
	t.Parallel()
	addr := testkit.Serve(t, nil, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	_, port, _ := net.SplitHostPort(addr)
	testkit.Within(t, 3*time.Second, func() {
		_, err := Open(t.Context(), "postgres://me:s3cret@localhost:"+port+"/shop?dial_timeout=500ms", nil)
		if err == nil || !strings.Contains(err.Error(), "no answer from localhost:"+port+" within 500ms") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error is %v", err)
		}
	})
}

// Several hosts that say nothing are not the end of the caller's context, which the library's error looks like.
func TestOpenOfSilentServers(t *testing.T) {
	t.Parallel()
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	a, b := testkit.Serve(t, nil, silent), testkit.Serve(t, nil, silent)
	_, err := Open(t.Context(), "postgres://me:s3cret@"+a+","+b+"/shop?dial_timeout=200ms", nil)
	if err == nil || errors.Is(err, context.DeadlineExceeded) || driver.FateOf(err) != driver.NotSent || !strings.Contains(err.Error(), b) {
		t.Errorf("fate %v: %v", driver.FateOf(err), err)
	}
}

// The library reports each of several hosts on a line of its own.
func TestErrorHasOneLine(t *testing.T) {
	t.Parallel()
	hangsUp := func(net.Conn) {}
	a, b := testkit.Serve(t, nil, hangsUp), testkit.Serve(t, nil, hangsUp)
	_, err := Open(t.Context(), "postgres://me:s3cret@"+a+","+b+"/shop", nil)
	if err == nil || !strings.HasPrefix(err.Error(), "distlock: open postgres://me:xxxxx@"+a+","+b+"/shop: ") || strings.ContainsAny(err.Error(), "\n\t") || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), "; "+b) {
		t.Errorf("the error is %q", err)
	}
}

// A MariaDB speaks first, and another protocol. The second has a message that is one of a Postgres, but of another hour.
func TestOpenOfAnotherServer(t *testing.T) {
	t.Parallel()
	for _, greeting := range []string{"j\x00\x00\x00\x0a5.5.5-10.11.6-MariaDB", "C\x00\x00\x00\x07OK\x00"} {
		addr := testkit.Serve(t, nil, func(c net.Conn) {
			_, _ = c.Write([]byte(greeting))
			_, _ = io.Copy(io.Discard, c) // a Close would be a reset if something is unread
		})
		_, err := Open(t.Context(), "postgres://me:s3cret@"+addr+"/shop", nil)
		if err == nil || !strings.Contains(err.Error(), "what listens there does not answer like a Postgres") {
			t.Errorf("%q: the error is %v", greeting, err)
		}
	}
}

// TestPasswordFile: it has the password of a database, also of the one that the user's name stands for.
func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pgpass")
	testkit.Must(t, os.WriteFile(file, []byte("db1:5432:me:me:right\n*:*:*:*:wrong\n"), 0o600))
	t.Setenv("PGPASSFILE", file)
	t.Setenv("PGDATABASE", "other")
	for _, url := range []string{"postgres://me@db1", "postgres://me@db1/me"} {
		config, _, err := parseURL(url, Options{})
		testkit.Must(t, err)
		if got := config.ConnConfig.Password; got != "right" {
			t.Errorf("%s: the password is %q", url, got)
		}
	}
}

// What the environment says of the server, the database and the session does not count: two processes with one URL would have
// two tables. What it says of the user does.
func TestEnvironment(t *testing.T) {
	service := filepath.Join(t.TempDir(), "services")
	testkit.Must(t, os.WriteFile(service, []byte("[other]\ndbname=other\nsearch_path=other\nsslmode=require\n"), 0o600))
	for name, value := range map[string]string{"PGOPTIONS": "-c search_path=other", "PGDATABASE": "other", "PGTZ": "Asia/Tokyo", "PGAPPNAME": "other",
		"PGTARGETSESSIONATTRS": "standby", "PGSSLMODE": "require", "PGSSLROOTCERT": "system", "PGSSLNEGOTIATION": "direct", "PGHOST": "other", "PGPORT": "1",
		"PGSERVICEFILE": service, "PGSERVICE": "other", "PGUSER": "me", "PGPASSWORD": "s3cret", "PGCHANNELBINDING": "require", "PGREQUIREAUTH": "oauth",
		"PGSSLCERTMODE": "require", "PGMINPROTOCOLVERSION": "3.2"} {
		t.Setenv(name, value)
	}
	for url, want := range map[string]string{"postgres://db1/shop": "shop", "postgres://db1": "me", "postgres://you:pw@db1": "you"} {
		config, _, err := parseURL(url, Options{})
		testkit.Must(t, err)
		c := config.ConnConfig
		if c.Host != "db1" || c.Port != 5432 || c.Database != want || c.TLSConfig != nil || c.ValidateConnect != nil || len(c.Fallbacks) > 0 ||
			!maps.Equal(c.RuntimeParams, map[string]string{"application_name": "distlock"}) || c.Password == "" || c.SSLNegotiation != "" ||
			c.ChannelBinding != "prefer" || c.RequireAuth != "" || c.SSLCertMode != "allow" || c.MinProtocolVersion != "3.0" {
			t.Errorf("%s: %s, port %d, database %q, TLS %v, parameters %v, fallbacks %v", url, c.Host, c.Port, c.Database, c.TLSConfig, c.RuntimeParams, c.Fallbacks)
		}
	}
	config, _, err := parseURL("postgres://db1,db2/shop", Options{})
	testkit.Must(t, err)
	if c := config.ConnConfig; c.ValidateConnect == nil || len(c.Fallbacks) != 1 {
		t.Errorf("of two hosts: %v", c.Fallbacks)
	}
}

// A number of connections that cannot be is named before anything is asked of the server.
func TestMaxConns(t *testing.T) {
	for _, n := range []int{-1, 1 << 32} {
		if _, err := Open(t.Context(), "postgres://127.0.0.1:1/x", &Options{MaxConns: n}); !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), "MaxConns is ") {
			t.Errorf("MaxConns of %d: %v", n, err)
		}
	}
}

// No statement is returned for a table that cannot be.
func TestSchemaOfBadName(t *testing.T) {
	for _, table := range []string{"", "a-b", "a.b.c"} {
		if text, err := Schema(table); text != "" || !errors.Is(err, distlock.ErrInvalid) {
			t.Errorf("Schema(%q): %q, %v", table, text, err)
		}
	}
}
