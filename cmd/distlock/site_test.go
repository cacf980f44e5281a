//go:build unix

package main

import (
	"bufio"
	"database/sql"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/sandbox"
	"github.com/distlock-go/distlock/internal/sandbox/lookinto"
	"github.com/distlock-go/distlock/internal/servers"
)

// checkLeavesNothing: a check leaves on the server what was there before and nothing else, also
// after Ctrl-C.
func checkLeavesNothing(t *testing.T, s *servers.Server) {
	look := lookinto.Server(t, s)
	// A lease without a key ends by itself.
	before := append(look(t), "a lease")
	for name, interrupt := range map[string]bool{"to the end": false, "interrupted": true} {
		t.Run(name, func(t *testing.T) {
			checkOnce(t, s.URL(), interrupt)
			for _, thing := range look(t) {
				if !slices.Contains(before, thing) {
					t.Errorf("the check has left %q", thing)
				}
			}
		})
	}
}

// checkOnce runs a check; interrupted, once its first result is there.
func checkOnce(t *testing.T, url string, interrupt bool) {
	only := "^core/(acquire-release|exclusive|cross-process)$"
	if interrupt {
		only = "^(core|expiry)/"
	}
	cmd := exec.CommandContext(t.Context(), "distlock", "check", "--run", only)
	cmd.Env = append(os.Environ(), "DISTLOCK_URL="+url)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toldOf, sent := "", false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		t.Log(lines.Text())
		if what, told := strings.CutPrefix(lines.Text(), "distlock: removed "); told {
			toldOf = what
		}
		if interrupt && !sent && strings.HasPrefix(lines.Text(), "passed") {
			sent = true
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // its outcome is read from ProcessState
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if interrupt && ws.Signal() != syscall.SIGINT || !interrupt && ws.ExitStatus() != 0 {
		t.Errorf("ended with %v", cmd.ProcessState)
	}
	if !strings.Contains(toldOf, "check") {
		t.Errorf("told that it has removed %q", toldOf)
	}
}

// TestCheckWithoutRights: a user without the right to create tables is told so, and can check in
// an existing table.
func TestCheckWithoutRights(t *testing.T) {
	t.Parallel()
	s := sharedServer(t, servers.MySQL)
	if s.AdminURL() == "" {
		t.Skip("there is nobody who may create a user")
	}
	db := adminOf(t, s)
	given, err := openurl.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	schema := strings.Trim(given.Path(), "/")
	for _, statement := range []string{"CREATE USER checker IDENTIFIED BY 's3cret'",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON `" + schema + "`.* TO checker"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	defer db.Exec("DROP USER checker") // nobody else asks for it
	check := func(url string, args ...string) (int, string) {
		cmd := exec.CommandContext(t.Context(), "distlock", append([]string{"check", "--run", "^core/acquire-release$", "--url", url}, args...)...)
		out, _ := cmd.CombinedOutput() // its outcome is read from ProcessState
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if status, out := check(backendURL(s), "--as-is"); status != 0 { // makes the table
		t.Fatalf("%d: %s", status, out)
	}
	restricted := "mysql://checker:s3cret@" + s.Addr() + "/" + schema
	status, out := check(restricted)
	if status != statusUnavailable || !strings.Contains(out, "CREATE command denied") || !strings.Contains(out, "--as-is") || strings.Contains(out, "s3cret") {
		t.Errorf("%d: %s", status, out)
	}
	if status, out = check(restricted, "--as-is"); status != 0 {
		t.Errorf("%d: %s", status, out)
	}
}

// adminOf connects to a MySQL server with the right to create users.
func adminOf(t *testing.T, s *servers.Server) *sql.DB {
	t.Helper()
	u, err := openurl.Parse(s.AdminURL())
	must(t, err)
	config := mysql.NewConfig()
	config.Net, config.Addr = "tcp", s.Addr()
	config.User, config.Passwd, _ = u.User()
	connector, err := mysql.NewConnector(config)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

// TestCheckOfShortSessions: on ZooKeeper a check takes as long as the sessions, so they
// are short unless the user has said how long a lease is.
func TestCheckOfShortSessions(t *testing.T) {
	const u = "zk://127.0.0.1:2181"
	ten := backends.Duration(10 * time.Second)
	for _, c := range []struct {
		config backends.Config
		want   string // the query
	}{
		{backends.Config{URL: u}, "ttl=2s&session_timeout=8s"},
		{backends.Config{URL: u + "?session_timeout=9s"}, "session_timeout=9s&ttl=2s"},
		{backends.Config{URL: u + "?ttl=10s"}, "ttl=10s"},
		{backends.Config{URL: u, TTL: ten}, ""},
	} {
		p, err := sandbox.New(c.config.URL, "check")
		must(t, err)
		_, query, _ := strings.Cut(shortSessions(c.config, p).URL(""), "?")
		if query != c.want {
			t.Errorf("%s, TTL %v: the query is %q, want %q", c.config.URL, c.config.TTL, query, c.want)
		}
	}
}
