//go:build unix

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
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
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestServers is what scripts cannot say of the backends.
func TestServers(t *testing.T) {
	for _, kind := range servers.Sample(1, drawn...) {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			url := sharedURL(t, kind)
			t.Run("interrupted", func(t *testing.T) { t.Parallel(); interruptedWait(t, url) })
			t.Run("break", func(t *testing.T) { t.Parallel(); breakEndsVictim(t, url) })
			t.Run("break asks", func(t *testing.T) { t.Parallel(); breakWhatWasSeen(t, url) })
			t.Run("secrets", func(t *testing.T) { t.Parallel(); secrets(t, url) })
		})
	}
}

// interruptedWait has a wait interrupted: it ends soon, after a second that it has to close its Locker, and leaves no waiter
// behind.
func interruptedWait(t *testing.T, url string) {
	l, err := backends.Open(t.Context(), url)
	testkit.Must(t, err)
	defer l.Close()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
		var left func()
		testkit.WithinFresh(t, 2*time.Second, func() (interrupt func()) {
			interrupt, left = interruptWait(t, url, l, sig)
			return interrupt
		})
		left()
	}
}

// interruptWait has the command wait, and returns a function that interrupts it, and one that looks at what it has left.
func interruptWait(t *testing.T, url string, l distlock.Locker, sig syscall.Signal) (interrupt, left func()) {
	name := "interrupted/" + rand.Text()
	if _, err := l.Lock(t.Context(), name); err != nil { // until l is closed
		t.Fatal(err)
	}
	look := func() distlock.Status {
		st, err := distlock.Inspect(t.Context(), l, name)
		testkit.Must(t, err)
		return st
	}
	cmd := exec.CommandContext(t.Context(), "distlock", "run", "--url", url, name, "--", "true")
	must(t, cmd.Start())
	testkit.Until(t, "a waiter", func() bool { return look().Wanted }) // it takes signals since before its first request
	var took time.Duration
	interrupt = func() {
		start := time.Now()
		must(t, cmd.Process.Signal(sig))
		_ = cmd.Wait() // its outcome is read from ProcessState
		took = time.Since(start)
	}
	left = func() {
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if sig == syscall.SIGINT && ws.Signal() != sig || sig != syscall.SIGINT && ws.ExitStatus() != 128+int(sig) {
			t.Errorf("ended with %v after %v", cmd.ProcessState, sig)
		}
		// In that time it gives up what it had not tidied away by then.
		if n := look().Waiters; n > 0 && took < time.Second {
			t.Errorf("%d waiters are left", n)
		}
	}
	return interrupt, left
}

// A backend that accepts a connection and says nothing is given up.
func TestSilence(t *testing.T) {
	silent := testkit.Silent(t)
	for _, args := range [][]string{{"inspect"}, {"inspect", "job"}, {"inspect", "--token-base"}, {"break", "--yes", "job"}, {"break", "--token", "7", "job"}} {
		cmd := root(nil)
		cmd.SetArgs(append(args, "--timeout", "100ms", "--url", "redis://"+silent+"?dial_timeout=1m"))
		e := exitOf(cmd.ExecuteContext(t.Context()))
		if e.status != statusUnavailable || !strings.HasPrefix(fmt.Sprint(e.err), "no answer within 100ms (--timeout): open redis://127.0.0.1") {
			t.Errorf("%v: exit status %d: %v", args, e.status, e.err)
		}
	}
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
	const ttl, name = 15 * time.Second, "broken"
	var dir string
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // none is empty
		return strings.TrimSpace(string(text))
	}
	distlock := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "distlock", args...)
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "DISTLOCK_URL="+url), os.Stderr
		return cmd
	}
	// The period is a third of the TTL; half as much is for the programs.
	testkit.WithinFresh(t, ttl/3*3/2, func() func() {
		dir = t.TempDir()
		for file, text := range map[string]string{"store": store, "go": "",
			"victim": `touch held; while [ -f go ]; do sleep 0.01; done; sh store late; touch wrote; exec sleep 1000`} {
			must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		victim := distlock("run", "--ttl", ttl.String(), name, "--", "sh", "victim")
		must(t, victim.Start())
		testkit.Until(t, "the victim's lock", func() bool { _, err := os.Stat(filepath.Join(dir, "held")); return err == nil })
		next := distlock("run", name, "--", "sh", "store", "early") // waits, so that its start does not count
		must(t, next.Start(), distlock("break", "--yes", name).Run())
		return func() {
			must(t, next.Wait(), os.Remove(filepath.Join(dir, "go")))
			_ = victim.Wait() // its outcome is read from ProcessState
			if victim.ProcessState.ExitCode() != statusLost {
				t.Errorf("the victim ended with %v", victim.ProcessState)
			}
		}
	})
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
	testkit.Must(t, err)
	defer l.Close()
	first, err := l.Lock(t.Context(), "seen", distlock.Holder("the first"))
	testkit.Must(t, err)
	c := newTerminalWith(t, "DISTLOCK_URL="+url, "sh", "-c", `distlock break seen; echo "status $?"`)
	c.expect(`break "seen", held by the first, token \d+\? \[y/N\] `)
	testkit.Must(t, first.Unlock(t.Context()))
	second, err := l.Lock(t.Context(), "seen", distlock.Holder("the second"))
	testkit.Must(t, err)
	c.send("y\n")
	c.expect(`not broken: "seen" is another's by now: held by the second, token ` + fmt.Sprint(second.Token()))
	c.expect("status 1\r")
	if err := second.Unlock(t.Context()); err != nil {
		t.Errorf("the second holder: %v", err)
	}
}

// secrets: no password is in any output, nor does a command get one that it was not given.
func secrets(t *testing.T, raw string) {
	u, err := url.Parse(raw)
	testkit.Must(t, err)
	type secret struct{ password, url string }
	var secrets []secret
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, secret{password, raw})
	}
	u.User = url.UserPassword("someone", "wrongs3cret") // some servers refuse it, and some ignore it
	secrets = append(secrets, secret{"wrongs3cret", u.String()})
	u.Host, u.RawQuery = "127.0.0.1:1", "dial_timeout=300ms"
	u.User = url.UserPassword("someone", "downs3cret")
	secrets = append(secrets, secret{"downs3cret", u.String()})
	u.User, u.RawQuery = url.UserPassword("someone", "unknowns3cret"), "no_such_parameter=x"
	secrets = append(secrets, secret{"unknowns3cret", u.String()})
	// Each command meets one of the secrets, by ways that take turns, and others in each run: all commands read a URL in one place.
	turn := mathrand.N(3)
	for i, args := range secretive {
		for _, s := range servers.Sample(1, secrets...) {
			name, flags, environ := way(t, i+turn, s.url)
			if out := output(t, args, flags, environ); strings.Contains(out, s.password) {
				t.Errorf("by %s: a password is shown: %v: %s", name, args, out)
			}
			turn++
		}
	}
}

// secretive are the commands that could show a password.
var secretive = [][]string{
	// The environment is handed down: DISTLOCK_URL is no more secret than it was.
	{"run", "-v", "secret", "--", "env", "-u", "DISTLOCK_URL"},
	{"run", "-v", "--ttl", "-1s", "secret", "--", "true"},
	{"run", "-v", "secret", "--", "distlock", "run", "-v", "-n", "secret", "--", "true"},
	{"inspect", "secret"},
	{"inspect", "--json"},
	{"break", "--yes", "secret"},
	{"check", "--run", "^core/acquire-release$", "--json", "-"},
}

// way is one of the three in which a URL is given.
func way(t *testing.T, turn int, url string) (name string, flags, environ []string) {
	switch turn % 3 {
	case 0:
		return "flag", []string{"--url", url}, nil
	case 1:
		return "environment", nil, []string{"DISTLOCK_URL=" + url}
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "url: %q\n", url), 0o600))
	return "file", []string{"--config", file}, nil
}

// output is what a command prints.
func output(t *testing.T, args, flags, environ []string) string {
	cmd := exec.CommandContext(t.Context(), "distlock", append(args[:1:1], append(flags, args[1:]...)...)...)
	cmd.Env = append(os.Environ(), environ...)
	out, err := cmd.CombinedOutput()
	var exitErr *exec.ExitError
	if err != nil && !errors.As(err, &exitErr) {
		t.Fatal(err)
	}
	return string(out)
}
