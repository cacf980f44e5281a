//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A password changed while a lock is held ends its renewals; the message of the
// loss says that it is the password.
func TestLossTellsItsReason(t *testing.T) {
	t.Parallel()
	s := sharedServer(t, servers.Redis)
	if !s.Controlled() {
		t.Skip("the users of a server that was given are not changed")
	}
	admin := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer admin.Close()
	user := func(password string) {
		must(t, admin.Do(t.Context(), "acl", "setuser", "app", "on", "resetpass", ">"+password, "~*", "&*", "+@all").Err())
	}
	user("s3cret")
	file := t.TempDir() + "/held"
	cmd := exec.CommandContext(t.Context(), "distlock", "run", "--ttl", "12s", "of a user", "--", "sh", "-c", `touch "$1"; exec sleep 1000`, "sh", file)
	cmd.Env = append(os.Environ(), "DISTLOCK_URL=redis://app:s3cret@"+s.Addr())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	testkit.Until(t, "the lock", func() bool { _, err := os.Stat(file); return err == nil })
	user("an0ther")
	must(t, admin.Do(t.Context(), "client", "kill", "user", "app").Err())
	_ = cmd.Wait() // its outcome is read from ProcessState
	if status := cmd.ProcessState.ExitCode(); status != statusLost || !strings.Contains(stderr.String(), "WRONGPASS") {
		t.Errorf("exit status %d: %s", status, &stderr)
	}
}

// What a store warns of is told by a check, and with -v by run; a cron job sends no mail for it.
func TestWarnings(t *testing.T) {
	t.Parallel()
	s := servers.ConfiguredForTest(t, servers.Redis, "maxmemory-policy allkeys-lru")
	for want, args := range map[bool][]string{true: {"-v"}, false: {}} {
		args = append(append([]string{"run", "--url", s.URL()}, args...), "job", "--", "true")
		out, err := exec.CommandContext(t.Context(), "distlock", args...).CombinedOutput()
		testkit.Should(t, err)
		if told := strings.Contains(string(out), ": warning: this Redis may evict locks"); told != want {
			t.Errorf("%v: %s", args, out)
		}
	}
}
