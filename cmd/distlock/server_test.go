//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/servers"
)

// TestServers is what scripts cannot say of each backend.
func TestServers(t *testing.T) {
	for _, kind := range servers.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			url := backendURL(servers.ForTest(t, kind))
			t.Run("interrupted", func(t *testing.T) { interruptedWait(t, url) })
			t.Run("break", func(t *testing.T) { breakEndsVictim(t, url) })
			t.Run("break asks", func(t *testing.T) { breakWhatWasSeen(t, url) })
			t.Run("secrets", func(t *testing.T) { secrets(t, url) })
		})
	}
}

// eventually waits until what must come to be true is.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// interruptedWait has a wait interrupted: it ends within a second and leaves no waiter behind.
func interruptedWait(t *testing.T, url string) {
	l, err := backends.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	held, err := l.Lock(t.Context(), "interrupted")
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
		var err error
		for range 3 { // the machine may stall, but not each time
			if err = interruptWait(t, url, l, sig); err == nil {
				break
			}
			t.Log(err)
		}
		if err != nil {
			t.Errorf("%v: %v", sig, err)
		}
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func interruptWait(t *testing.T, url string, l distlock.Locker, sig syscall.Signal) error {
	waiters := func() int {
		st, err := distlock.Inspect(t.Context(), l, "interrupted")
		if err != nil {
			t.Fatal(err)
		}
		return st.Waiters
	}
	before := waiters() // what an attempt that was too slow has left
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "distlock", "run", "-v", "--url", url, "interrupted", "--", "true")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told := bufio.NewScanner(stderr)
	for told.Scan() && !strings.Contains(told.Text(), "is held by") {
	}
	if before < 0 { // not counted on this backend
		time.Sleep(100 * time.Millisecond) // for it to wait; sooner is no different
	} else {
		eventually(t, "a waiter", func() bool { return waiters() > before })
	}
	start := time.Now()
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its outcome is read from ProcessState
	took := time.Since(start)
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if sig == syscall.SIGINT && ws.Signal() != sig || sig != syscall.SIGINT && ws.ExitStatus() != 128+int(sig) {
		t.Errorf("ended with %v after %v", cmd.ProcessState, sig)
	}
	if took > time.Second {
		return fmt.Errorf("it took %v", took)
	}
	if now := waiters(); now > before {
		return fmt.Errorf("%d waiters are left", now)
	}
	return nil
}

// store is a file that refuses a write whose token is not above all that it has
// seen, as databases can.
const store = `
while ! mkdir store.lock 2> /dev/null; do sleep 0.01; done
trap 'rmdir store.lock' EXIT
if [ "$DISTLOCK_TOKEN" -gt "$(cat store.fence 2> /dev/null || echo 0)" ]; then
	echo "$DISTLOCK_TOKEN" > store.fence
	echo "$1" >> store.data
else
	echo "$1" >> store.refused
fi
`

// breakEndsVictim: the victim of break is told within a renewal period; what it writes before it has
// heard of it is refused, because its token is out of date.
func breakEndsVictim(t *testing.T, url string) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // none is empty
		return strings.TrimSpace(string(text))
	}
	distlock := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "distlock", args...)
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "DISTLOCK_URL="+url), os.Stderr
		return cmd
	}
	write("store", store)
	write("go", "")
	write("victim", `touch held; while [ -f go ]; do sleep 0.01; done; sh store late; touch wrote; exec sleep 1000`)

	// Renewed every four seconds.
	victim := distlock("run", "--ttl", "12s", "broken", "--", "sh", "victim")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the victim's lock", func() bool { _, err := os.Stat(filepath.Join(dir, "held")); return err == nil })
	if err := distlock("break", "--yes", "broken").Run(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := distlock("run", "--wait", "10s", "broken", "--", "sh", "store", "early").Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "go")); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // its outcome is read from ProcessState
	// The period, and half as much for the machine.
	if took := time.Since(start); victim.ProcessState.ExitCode() != statusLost || took > 6*time.Second {
		t.Errorf("the victim ended with %v after %v", victim.ProcessState, took)
	}
	if got := read("store.data"); got != "early" {
		t.Errorf("the store has %q", got)
	}
	// It may have been told before it could write.
	if got := read("store.refused"); got != "late" && (got != "" || read("wrote") != "") {
		t.Errorf("the store has refused %q", got)
	}
}

// breakWhatWasSeen: while the operator reads the question, the holder that it names gives
// the name up, and another takes it. The answer is about the first.
func breakWhatWasSeen(t *testing.T, url string) {
	l, err := backends.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	first, err := l.Lock(t.Context(), "seen", distlock.Holder("the first"))
	if err != nil {
		t.Fatal(err)
	}
	c := newTerminalWith(t, "DISTLOCK_URL="+url, "sh", "-c", `distlock break seen; echo "status $?"`)
	c.expect(`break "seen", held by the first, token \d+\? \[y/N\] `)
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := l.Lock(t.Context(), "seen", distlock.Holder("the second"))
	if err != nil {
		t.Fatal(err)
	}
	c.send("y\n")
	c.expect(`not broken: seen is another's by now: held by the second, token ` + fmt.Sprint(second.Token()))
	c.expect("status 1\r")
	if err := second.Unlock(t.Context()); err != nil {
		t.Errorf("the second holder: %v", err)
	}
}

// secrets: no password is in any output, nor does a command get one that it was not given.
func secrets(t *testing.T, raw string) {
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{} // by the password
	if password, ok := u.User.Password(); ok {
		urls[password] = raw
	}
	u.User = url.UserPassword("someone", "wrongs3cret") // some servers refuse it, and some ignore it
	urls["wrongs3cret"] = u.String()
	u.Host, u.RawQuery = "127.0.0.1:1", "dial_timeout=300ms"
	u.User = url.UserPassword("someone", "downs3cret")
	urls["downs3cret"] = u.String()
	u.User = url.UserPassword("someone", "unknowns3cret")
	u.RawQuery = "no_such_parameter=x"
	urls["unknowns3cret"] = u.String()
	for password, given := range urls {
		for name, way := range ways(t, given) {
			for _, out := range outputs(t, way) {
				if strings.Contains(out, password) {
					t.Errorf("by %s: a password is shown: %s", name, out)
				}
			}
		}
	}
}

// way is how a URL is given.
type way struct {
	flags   []string
	environ []string
}

func ways(t *testing.T, url string) map[string]way {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "url: %q\n", url), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]way{
		"flag":        {flags: []string{"--url", url}},
		"environment": {environ: []string{"DISTLOCK_URL=" + url}},
		"file":        {flags: []string{"--config", file}},
	}
}

// outputs are what each command prints.
func outputs(t *testing.T, w way) (outs []string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		// The environment is handed down: DISTLOCK_URL is no more secret than it was.
		{"run", "-v", "secret", "--", "env", "-u", "DISTLOCK_URL"},
		{"run", "-v", "--ttl", "-1s", "secret", "--", "true"},
		{"run", "-v", "secret", "--", "distlock", "run", "-v", "-n", "secret", "--", "true"},
		{"inspect", "secret"},
		{"inspect", "--json"},
		{"break", "--yes", "secret"},
		{"check", "--run", "^core/acquire-release$", "--json", "-"},
	} {
		cmd := exec.CommandContext(ctx, "distlock", append(args[:1:1], append(w.flags, args[1:]...)...)...)
		cmd.Env = append(os.Environ(), w.environ...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		var exitErr *exec.ExitError
		if err != nil && !errors.As(err, &exitErr) {
			t.Fatal(err)
		}
		outs = append(outs, fmt.Sprintf("%v\n%s", args, &out))
	}
	return outs
}
