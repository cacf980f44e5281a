//go:build unix

package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestKeeps has names kept by --once-per and --min-hold: for what was asked, whatever
// lives longer in the store: a session on ZooKeeper, a lease on etcd, a row or a key elsewhere.
func TestKeeps(t *testing.T) {
	for _, kind := range servers.Sample(1, drawn...) {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			k := &keeper{url: sharedURL(t, kind)}
			t.Run("min-hold", func(t *testing.T) { t.Parallel(); k.keeps(t, 3*time.Second, 3*time.Second, "30s", "--min-hold") })
			t.Run("once-per", func(t *testing.T) { t.Parallel(); k.oncePer(t, "6s") })
			t.Run("once-per shorter than the TTL", func(t *testing.T) { t.Parallel(); k.oncePer(t, "30s") })
		})
	}
}

type keeper struct{ url string }

// command returns a run of the command.
func (k *keeper) command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "distlock", append([]string{"run"}, args...)...)
	cmd.Env = append(os.Environ(), "DISTLOCK_URL="+k.url)
	cmd.Stderr = os.Stderr
	return cmd
}

// status runs a command that takes no time, and returns its exit status.
func (k *keeper) status(t *testing.T, args ...string) int {
	t.Helper()
	cmd := k.command(t, append(args, "--", "true")...)
	_ = cmd.Run() // its outcome is read from ProcessState
	return cmd.ProcessState.ExitCode()
}

// oncePer: cron starts the next run a period after this one, not sooner than a tenth before its end.
func (k *keeper) oncePer(t *testing.T, ttl string) {
	const period = 9 * time.Second
	k.keeps(t, period, period*9/10, ttl, "--once-per")
}

// keeps has a name kept by a flag for a term, of which at least the time least must pass
// before another can have it. What was asked for is shorter than some TTL that the name would be
// held for otherwise, by more than the bound allows.
func (k *keeper) keeps(t *testing.T, term, least time.Duration, ttl, flag string) {
	testkit.WithinFresh(t, term+10*time.Second, func() func() {
		name, file := "kept/"+rand.Text(), filepath.Join(t.TempDir(), "ran")
		begin := time.Now()
		first := k.command(t, "--no-wait", "--ttl", ttl, flag, term.String(), name, "--", "touch", file)
		must(t, first.Start())
		testkit.Until(t, "the command", func() bool { _, err := os.Stat(file); return err == nil })
		return func() {
			// Without the flag: on a machine that is late it may find the name free, and must not keep it.
			if status := k.status(t, "--no-wait", "--ttl", ttl, name); status != statusBusy && time.Since(begin) < least {
				t.Errorf("another run ended with %d while the name was kept", status)
			}
			if status := k.status(t, "--ttl", ttl, name); status != 0 {
				t.Errorf("the next run ended with %d", status)
			}
			if took := time.Since(begin); took < least {
				t.Errorf("the name was free after %v", took)
			}
			testkit.Should(t, first.Wait())
		}
	})
}
