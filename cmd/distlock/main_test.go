//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

func TestMain(m *testing.M) {
	testscript.Main(all{m}, map[string]func(){"distlock": func() {
		registerMutants()
		main()
	}})
}

// TestScripts runs what needs no server.
func TestScripts(t *testing.T) {
	registerMutants() // here as well, for refused
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/any",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"refused": refusedAsUsage},
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
	})
}

// refusedAsUsage runs a command line that has the exit status for usage. It does so in this process, without the files and the environment of
// the script: to start the command costs a hundred times as much.
func refusedAsUsage(ts *testscript.TestScript, neg bool, args []string) {
	cmd := root(new(interrupts))
	cmd.SetArgs(args)
	e := exitOf(cmd.ExecuteContext(context.Background()))
	if neg || e.status != statusUsage {
		ts.Fatalf("the exit status is %d: %v", e.status, e.err)
	}
	fmt.Fprintln(ts.Stderr(), e.err)
}

// drawn are the backends of this run: two by chance, since the command does not know which it has.
var drawn = servers.Sample(2, servers.Kinds...)

// scripts deals the scripts of testdata/server out to the backends: each to one of them, since most of a script's time goes into
// starting the command.
func scripts(t *testing.T) map[servers.Kind][]string {
	t.Helper()
	files, err := filepath.Glob("testdata/server/*.txt")
	if must(t, err); len(files) == 0 {
		t.Fatal("there are no scripts")
	}
	dealt := make(map[servers.Kind][]string)
	for _, file := range files {
		for _, kind := range servers.Sample(1, drawn...) {
			dealt[kind] = append(dealt[kind], file)
		}
	}
	return dealt
}

// TestServerScripts runs the same scripts of the real binary on the backends.
func TestServerScripts(t *testing.T) {
	for kind, files := range scripts(t) {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // it waits for leases most of the time
			url := sharedURL(t, kind)
			testscript.Run(t, testscript.Params{
				Files:               files,
				RequireExplicitExec: true,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){"gone": func(ts *testscript.TestScript, neg bool, args []string) {
					gone(t, ts, neg, args)
				}},
				Setup: func(e *testscript.Env) error {
					// Each script has its own names, so that all can share a server.
					e.Setenv("DISTLOCK_URL", url)
					e.Setenv("GORACE", os.Getenv("GORACE"))
					e.Setenv("NAME", "script/"+strings.ReplaceAll(e.WorkDir, "/", "_"))
					return nil
				},
			})
		})
	}
}

// TestHarmed has what is done to a server as a whole, one thing after another on a server of its own: on one of them by
// chance, since the command does not know which it has.
func TestHarmed(t *testing.T) {
	for _, kind := range servers.Some() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := servers.ForTest(t, kind)
			if !s.Controlled() {
				t.Skip("a server given by URL is neither stopped nor looked through")
			}
			t.Run("check leaves nothing", func(t *testing.T) { checkLeavesNothing(t, s) })
			t.Run("stops", func(t *testing.T) { checkOfAStoreThatStops(t, s) })
			if kind == servers.Etcd {
				t.Run("chaos", func(t *testing.T) { chaosByCommands(t, s) })
			}
			t.Run("dies", func(t *testing.T) { backendDies(t, s) })
			if restrict := documentedRights[kind]; restrict != nil {
				must(t, s.Restart(t.Context()))
				t.Run("documented rights", func(t *testing.T) { suffices(t, s, restrict) })
			}
		})
	}
}

// backendDies has the server killed while a command runs under a lock: the whole group must
// be gone before the lease could be granted to another, also if nobody reads any more what is
// told of it.
func backendDies(t *testing.T, s *servers.Server) {
	const ttl = 6 * time.Second
	ctx := t.Context()
	var cmd *exec.Cmd
	testkit.WithinFresh(t, ttl, func() func() {
		if cmd != nil {
			_ = cmd.Wait()
			must(t, s.Restart(ctx))
		}
		file := t.TempDir() + "/pid"
		// The shell ignores TERM, and so does what it has started.
		cmd = exec.CommandContext(ctx, "distlock", "run", "--url", backendURL(s), "--ttl", ttl.String(), "job", "--",
			"sh", "-c", `trap "" TERM; sleep 1000 & echo $! > "$1".new; mv "$1".new "$1"; wait; sleep 1000`, "sh", file)
		reader, writer, err := os.Pipe()
		must(t, err)
		cmd.Stderr = writer
		must(t, cmd.Start(), writer.Close(), reader.Close())
		pid := ""
		testkit.Until(t, "the command", func() bool {
			text, err := os.ReadFile(file)
			pid = string(text)
			return err == nil
		})
		// No renewal is confirmed after this: the lease ends a TTL later, at the most.
		must(t, s.Kill(ctx))
		return func() {
			testkit.Until(t, "the end of what the command had started", func() bool { return ended(pid) })
		}
	})
	_ = cmd.Wait() // its outcome is read from ProcessState
	if status := cmd.ProcessState.ExitCode(); status != statusLost {
		t.Errorf("exit status %d, want %d", status, statusLost)
	}
}

// gone is the script command "gone FILE": the process whose number is in the file ends, or has.
func gone(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone file")
	}
	pid := ts.ReadFile(args[0])
	testkit.Until(t, "the end of the process "+pid, func() bool { return ended(pid) })
}

// ended reports whether a process has ended. One that its parent has not reaped has ended, too: it
// may be the child of another process by now.
func ended(pid string) bool {
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil || n <= 0 {
		return false
	}
	if syscall.Kill(n, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
