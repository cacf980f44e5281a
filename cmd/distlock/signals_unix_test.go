//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/distlock-go/distlock/internal/testkit"
)

// A signal that was ignored when the program began stays ignored, by it and by the
// command: after nohup(1) the hang-up, and in the background of a script Ctrl-C.
func TestInheritedIgnoredSignals(t *testing.T) {
	for name, signals := range map[string][]syscall.Signal{
		"HUP":      {syscall.SIGHUP},
		"INT QUIT": {syscall.SIGINT, syscall.SIGQUIT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "up")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", `trap "" `+name+`; exec distlock run job -- sh -c 'kill -`+
				strings.Fields(name)[0]+` $$; touch "$1"; while [ -e "$1" ]; do sleep 0.02; done; exit 9' sh "$1"`, "sh", file)
			cmd.Env = append(os.Environ(), "DISTLOCK_URL=alone://nohup")
			testkit.Must(t, cmd.Start())
			testkit.Until(t, "the command", func() bool { _, err := os.Stat(file); return err == nil })
			for range 2 { // the second would end the program, should the first be heeded
				for _, s := range signals {
					testkit.Must(t, cmd.Process.Signal(s))
				}
			}
			testkit.Must(t, os.Remove(file))
			_ = cmd.Wait() // its outcome is read from ProcessState
			if status := cmd.ProcessState.ExitCode(); status != 9 {
				t.Errorf("ended with %v", cmd.ProcessState)
			}
		})
	}
}

// TestStatus130IsNoSignal: what exits by itself with the status of Ctrl-C was not interrupted.
func TestStatus130IsNoSignal(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "distlock", "run", "--url", "alone://x", "job", "--", "sh", "-c", "exit 130")
	_ = cmd.Run() // its outcome is read from ProcessState
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signaled() || status.ExitStatus() != 130 {
		t.Errorf("ended with %v", cmd.ProcessState)
	}
}

// TestNobodyReads: a lock is not held until somebody reads what is told of it.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-v", "job", "--", "true"}, {"job", "--", "./missing"}} {
		r, w, err := os.Pipe()
		testkit.Must(t, err)
		defer r.Close()
		defer w.Close()
		testkit.Must(t, fill(w))
		cmd := exec.CommandContext(t.Context(), "distlock", append([]string{"run", "--url", "alone://x"}, args...)...)
		cmd.Stderr = w
		_ = cmd.Run() // it returns
		if status := cmd.ProcessState.ExitCode(); status != 0 && status != statusNotFound {
			t.Errorf("%q ended with %v", args, cmd.ProcessState)
		}
	}
}

// fill writes to a pipe until it takes nothing any more.
func fill(w *os.File) error {
	fd := int(w.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		return err
	}
	for {
		if _, err := syscall.Write(fd, make([]byte, 1)); err != nil {
			return syscall.SetNonblock(fd, false)
		}
	}
}
