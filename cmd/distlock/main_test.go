//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/distlock-go/distlock/internal/servers"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"distlock": func() {
		registerMutants()
		main()
	}})
}

// TestScripts runs what needs no server.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/any", RequireExplicitExec: true})
}

// TestServerScripts runs the same scripts of the real binary on each backend.
func TestServerScripts(t *testing.T) {
	for _, kind := range servers.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // it waits for leases most of the time
			s := servers.ForTest(t, kind)
			testscript.Run(t, testscript.Params{
				Dir:                 "testdata/server",
				RequireExplicitExec: true,
				Cmds:                map[string]func(*testscript.TestScript, bool, []string){"gone": gone},
				Setup: func(e *testscript.Env) error {
					// Each script has its own names, so that all can share a server.
					e.Setenv("DISTLOCK_URL", backendURL(s))
					e.Setenv("NAME", "script/"+strings.ReplaceAll(e.WorkDir, "/", "_"))
					return nil
				},
			})
		})
	}
}

// TestBackendDies has the server killed while a command runs under a lock: the
// whole group must be gone before the lease could be granted to another, also if nobody
// reads any more what is told of it.
func TestBackendDies(t *testing.T) {
	for _, kind := range servers.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			s := servers.ForTest(t, kind)
			if !s.Controlled() {
				t.Skip("a server given by URL is not killed")
			}
			backendDies(t, s)
		})
	}
}

func backendDies(t *testing.T, s *servers.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	file := t.TempDir() + "/facts"
	// The shell ignores TERM, and so does what it has started.
	cmd := exec.CommandContext(ctx, "distlock", "run", "--url", backendURL(s), "--ttl", "6s", "job", "--",
		"sh", "-c", `trap "" TERM; sleep 1000 & echo $! $DISTLOCK_DEADLINE > "$1".new; mv "$1".new "$1"; wait; sleep 1000`, "sh", file)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = writer
	start := time.Now()
	err = errors.Join(cmd.Start(), writer.Close(), reader.Close())
	if err != nil {
		t.Fatal(err)
	}
	var pid, deadline string
	for range time.Tick(10 * time.Millisecond) {
		facts, err := os.ReadFile(file)
		if err == nil {
			pid, deadline, _ = strings.Cut(strings.TrimSpace(string(facts)), " ")
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the command has not started")
		}
	}
	end, err := time.Parse(time.RFC3339Nano, deadline)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	// No renewal has been confirmed after this; so the lease ends in as long as
	// the first one had been when it began, at the most.
	lease, killed := end.Sub(start), time.Now()
	for !ended(pid) && ctx.Err() == nil {
	}
	if took := time.Since(killed); took > lease {
		t.Errorf("what the command had started ended %v after the backend died, the lease after %v at the most", took, lease)
	}
	err = cmd.Wait()
	var exitErr *exec.ExitError
	if !errors.As(err, &exitErr) || exitErr.ExitCode() != statusLost {
		t.Errorf("got %v, want exit status %d", err, statusLost)
	}
}

// gone is the script command "gone FILE": the process whose number is in the file
// has ended.
func gone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone file")
	}
	if !ended(ts.ReadFile(args[0])) {
		ts.Fatalf("the process is still running")
	}
}

// ended waits, for a moment, until a process has ended. One that its parent has not
// reaped has ended, too: it may be the child of another process by now.
func ended(pid string) bool {
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		return false
	}
	for range 200 {
		if syscall.Kill(n, 0) != nil {
			return true
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n)); err == nil && strings.Contains(string(stat), ") Z ") {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
