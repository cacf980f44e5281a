//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/internal/servers"
)

// A store of the user's is frozen and let go by commands of the user's.
func chaosByCommands(t *testing.T, s *servers.Server) {
	if s.PID() == 0 {
		t.Skip("only a local process is frozen by a command of the shell")
	}
	file := filepath.Join(t.TempDir(), "faults.yaml")
	text := fmt.Sprintf("- name: frozen\n  break: kill -STOP %d\n  mend: kill -CONT %[1]d\n", s.PID())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("distlock", "check", "--chaos", "1ms", "--faults", file, s.URL()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1 × frozen\n") || !strings.Contains(string(out), "locks granted") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// A command that breaks the store may leave something running, with the output open.
func TestFaultInTheBackground(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	must(t, shell("sleep 1000 & echo $! >"+file)(t.Context()), shell("kill $(cat "+file+")")(t.Context()))
	if err := shell("echo why; exit 3")(t.Context()); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("a command that fails: %v", err)
	}
}
