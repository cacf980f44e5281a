//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// TestKeeps has names kept by --once-per and --min-hold: for what was asked, whatever
// lives longer in the store, a session or a lease.
func TestKeeps(t *testing.T) {
	for _, kind := range servers.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := servers.ForTest(t, kind)
			k := &keeper{url: backendURL(s)}
			t.Run("min-hold", func(t *testing.T) { t.Parallel(); k.minHold(t) })
			t.Run("once-per", func(t *testing.T) { t.Parallel(); k.oncePer(t, "4s") })
			t.Run("once-per shorter than the TTL", func(t *testing.T) { t.Parallel(); k.oncePer(t, "20s") })
		})
	}
}

type keeper struct{ url string }

// run starts the command and returns when it has begun, and when it was seen to.
func (k *keeper) run(t *testing.T, args ...string) (started time.Time, cmd *exec.Cmd) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ran")
	cmd = exec.CommandContext(t.Context(), "distlock", append(append([]string{"run"}, args...), "--", "touch", file)...)
	cmd.Env = append(os.Environ(), "DISTLOCK_URL="+k.url)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command", func() bool { _, err := os.Stat(file); return err == nil })
	return time.Now(), cmd
}

// status runs a command that takes no time, and returns its exit status.
func (k *keeper) status(t *testing.T, args ...string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "distlock", append(append([]string{"run"}, args...), "--", "true")...)
	cmd.Env = append(os.Environ(), "DISTLOCK_URL="+k.url)
	_ = cmd.Run() // its outcome is read from ProcessState
	return cmd.ProcessState.ExitCode()
}

// minHold: three seconds are not thirty, the TTL of the lock.
func (k *keeper) minHold(t *testing.T) {
	begin := time.Now()
	seen, cmd := k.run(t, "--min-hold", "3s", "hold")
	if status := k.status(t, "--wait", "60s", "hold"); status != 0 {
		t.Errorf("the next one ended with %d", status)
	}
	if took := time.Since(begin); took < 3*time.Second {
		t.Errorf("the name was free after %v", took)
	}
	if took := time.Since(seen); took > 13*time.Second {
		t.Errorf("the name was free after %v only", took)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// oncePer: cron starts the next run a period after this one, not sooner, and at most
// once in it.
func (k *keeper) oncePer(t *testing.T, ttl string) {
	const period = 20 * time.Second
	args := []string{"--no-wait", "--ttl", ttl, "--once-per", period.String(), "job/" + ttl}
	begin := time.Now()
	seen, cmd := k.run(t, args...)
	for _, early := range []time.Duration{0, period / 2, period * 8 / 10} {
		time.Sleep(time.Until(seen.Add(early)))
		status := k.status(t, args...)
		if took := time.Since(begin); status != statusBusy && took < period*9/10 {
			t.Errorf("another run, after %v, ended with %d", took, status)
		}
	}
	time.Sleep(time.Until(seen.Add(period)))
	// It waits, as on a busy machine the first one is late in giving the name back.
	if status := k.status(t, "--wait", "60s", "--ttl", ttl, "job/"+ttl); status != 0 {
		t.Errorf("the run of the next period ended with %d", status)
	}
	if took := time.Since(seen); took > period+10*time.Second {
		t.Errorf("the run of the next period ended after %v only", took)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
