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

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/place/lookinto"
	"github.com/distlock-go/distlock/internal/servers"
)

// TestCheckLeavesNothing: a check leaves on the server what was there before and
// nothing else, also after Ctrl-C.
func TestCheckLeavesNothing(t *testing.T) {
	for _, kind := range servers.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			s := servers.ForTest(t, kind)
			if !s.Controlled() {
				t.Skip("a server given by URL is not ours to look at")
			}
			look := lookinto.Server(t, s)
			// What others have left on it may go meanwhile, and a lease without a key
			// ends by itself.
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
		})
	}
}

// checkOnce runs a check; interrupted, once its first result is there.
func checkOnce(t *testing.T, url string, interrupt bool) {
	only := "^core/(acquire-release|exclusive|cross-process)$"
	if interrupt {
		only = "^(core|expiry|renew)/"
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

// TestCheckWithoutRights: a user who may not create tables is told so, and can check in
// a table that is there.
func TestCheckWithoutRights(t *testing.T) {
	s := servers.ForTest(t, servers.MySQL)
	if s.AdminURL() == "" {
		t.Skip("there is nobody who may create a user")
	}
	u, err := openurl.Parse(s.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	config := mysql.NewConfig()
	config.Net, config.Addr = "tcp", s.Addr()
	config.User, config.Passwd, _ = u.User()
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
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
	defer db.Exec("DROP USER checker") // the server is this test's, or stops soon
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
