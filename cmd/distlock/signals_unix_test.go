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
