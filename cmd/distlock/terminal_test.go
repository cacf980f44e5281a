//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// console is a terminal, with an interactive shell if nothing else, in a folder of its own.
type console struct {
	t      *testing.T
	tty    *os.File
	folder string

	mu   sync.Mutex
	text string // what is on the screen, from after what was last expected
}

func newConsole(t *testing.T) *console {
	t.Helper()
	c := newTerminal(t, "sh", "-i")
	c.send("stty -echo; echo re''ady\n")
	c.expect(`ready`)
	return c
}

// newTerminal runs a program at a terminal of its own.
func newTerminal(t *testing.T, args ...string) *console {
	t.Helper()
	t.Parallel()
	return newTerminalWith(t, "DISTLOCK_URL=alone://console", args...)
}

// newTerminalWith does so with a variable in the environment.
func newTerminalWith(t *testing.T, variable string, args ...string) *console {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	c := &console{t: t, folder: t.TempDir()}
	cmd.Dir = c.folder
	cmd.Env = append(os.Environ(), "PS1=", "PS2=", "ENV=", variable)
	tty, err := pty.Start(cmd)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		t.Skip("this machine gives no terminals, as a chroot without /dev/pts:", err)
	}
	testkit.Must(t, err)
	c.tty = tty
	// A read that blocks would keep the terminal from being closed.
	testkit.Must(t, syscall.SetNonblock(int(tty.Fd()), true))
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			c.mu.Lock()
			c.text += string(buf[:n])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		tty.Close() // hangs up on all that runs there
		cmd.Process.Kill()
		cmd.Wait()
		<-read
	})
	return c
}

func (c *console) send(text string) {
	c.t.Helper()
	if _, err := c.tty.WriteString(text); err != nil {
		c.t.Fatal(err)
	}
}

// take returns what the screen shows up to the end of what matches a pattern, after what was last
// expected, and reports whether it shows that by now.
func (c *console) take(re *regexp.Regexp) (text string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := re.FindStringIndex(c.text)
	if at == nil {
		return "", false
	}
	text, c.text = c.text[:at[1]], c.text[at[1]:]
	return text, true
}

// expect waits until the screen shows what matches a pattern, and returns all up to that.
func (c *console) expect(pattern string) (text string) {
	c.t.Helper()
	re, shown := regexp.MustCompile(pattern), false
	defer func() {
		if c.mu.Lock(); !shown {
			c.t.Logf("the terminal does not show %q, but %q", pattern, c.text)
		}
		c.mu.Unlock()
	}()
	testkit.Until(c.t, pattern, func() bool {
		text, shown = c.take(re)
		return shown
	})
	return text
}

// expectStopped waits until the shell has a job that has stopped.
func (c *console) expectStopped() {
	c.t.Helper()
	stopped := regexp.MustCompile("(?i)stopped")
	testkit.Until(c.t, "a job that has stopped", func() bool {
		c.send("jobs\n")
		time.Sleep(100 * time.Millisecond)
		_, ok := c.take(stopped)
		return ok
	})
}

func (c *console) file(name string) string {
	text, _ := os.ReadFile(filepath.Join(c.folder, name)) // none is empty
	return string(text)
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	ctrlZ = "\x1a"
)

func TestCtrlCReachesTheCommandOnce(t *testing.T) {
	c := newConsole(t)
	c.send(`distlock run job -- sh -c 'trap "echo int >> log" INT; echo started
		while ! [ -s log ]; do sleep 0.05; done; sleep 0.5; exit 3'; echo "status $?"` + "\n")
	c.expect("started")
	c.send(ctrlC)
	c.expect("status 3\r")
	if log := c.file("log"); log != "int\n" {
		t.Errorf("the command has seen %q", log)
	}
}

// Ctrl-C at a script ends the script, not only the command that it happens to run.
func TestCtrlCEndsTheScriptAround(t *testing.T) {
	mute := testkit.Silent(t)
	for name, command := range map[string]string{
		"running":    `distlock run job -- sh -c "echo started > f; exec tail -f f"`,
		"connecting": `echo started; distlock run --url redis://` + mute + ` job -- true`,
		"redirected": `distlock run job -- sh -c "echo started > /dev/tty; exec tail -f /dev/null" > f`, // so it has not got the terminal
	} {
		t.Run(name, func(t *testing.T) {
			c := newConsole(t)
			c.send("bash -c '" + command + "; echo went on'\n") // dash ends whatever becomes of the command
			c.expect("started")
			time.Sleep(100 * time.Millisecond) // for the one that connects; sooner is no different
			c.send(ctrlC)
			c.send("echo \"script $?\"\n")
			if screen := c.expect("script 130\r"); strings.Contains(screen, "went on") {
				t.Errorf("the script has gone on: %q", screen)
			}
		})
	}
}

// A command that draws on the screen, and is killed, leaves the terminal as it was.
func TestKilledCommandLeavesNoRawTerminal(t *testing.T) {
	c := newConsole(t)
	c.send("distlock run job -- sh -c 'stty raw; echo started; kill -KILL $$'; stty -a\n")
	c.expect("started")
	c.expect(`[^-]icanon`)
}

func TestCtrlZ(t *testing.T) {
	c := newConsole(t)
	c.send(`distlock run job -- sh -c 'echo started; read x; echo "got $x"'` + "\n")
	c.expect("started")
	c.send(ctrlZ)
	c.expect("(?i)stopped")
	c.send("echo shell is ba''ck\n")
	c.expect("shell is back")
	c.send("fg\n")
	c.expect("distlock run")
	c.send("some words\n")
	c.expect("got some words")
	c.send(`echo "status $?"` + "\n")
	c.expect("status 0\r")
}

// Without a shell that could continue it, as with "ssh -t", nothing stays stopped.
func TestCtrlZWithoutAShell(t *testing.T) {
	c := newTerminal(t, "distlock", "run", "job", "--", "sh", "-c", `echo started; read x; echo "got $x"`)
	c.expect("started")
	c.send(ctrlZ)
	c.send("some words\n")
	c.expect("got some words")
}

// A stopped job does not renew. When its lease is over it must not run another step. The
// command forks nothing: a shell that starts a program by vfork when Ctrl-Z comes is stuck
// until the program runs, and what is not yet the program has stopped.
func TestCtrlZForLongerThanTheTTL(t *testing.T) {
	for _, wake := range []string{"fg", "bg; wait %1"} {
		t.Run(wake, func(t *testing.T) {
			c := newConsole(t)
			c.send("stty tostop; distlock run --ttl 5s job -- sh -c 'echo started; while :; do echo >> steps; done'\n")
			c.expect("started")
			c.send(ctrlZ)
			c.expect("(?i)stopped")
			steps := c.file("steps")
			time.Sleep(5100 * time.Millisecond)
			c.send(wake + "\n")
			c.expect("lock lost.*ending the command")
			c.send(`echo "status $?"` + "\n")
			c.expect("status 75\r")
			if more := len(c.file("steps")) - len(steps); more != 0 {
				t.Errorf("the command took %d more steps without the lock", more)
			}
		})
	}
}

func TestBackground(t *testing.T) {
	c := newConsole(t)
	c.send("distlock run job -- sh -c 'echo out; exit 4' & wait $!; echo \"status $?\"\n")
	c.expect("out")
	c.expect("status 4\r")

	// One that reads stops, as any job would, and reads in the foreground.
	c.send("distlock run job -- cat &\n")
	c.expectStopped()
	c.send("fg\n")
	c.expect("distlock run")
	c.send("some words\n")
	c.expect("some words")
	c.send(ctrlD)
	c.send(`echo "status $?"` + "\n")
	c.expect("status 0\r")
}

// A command that was moved to the background must not take the terminal with it.
func TestEndInTheBackground(t *testing.T) {
	c := newConsole(t)
	c.send("mkfifo go; distlock run job -- sh -c 'echo started; read x < go; exit 5'\n")
	c.expect("started")
	c.send(ctrlZ)
	c.expect("(?i)stopped")
	c.send("bg\n")
	c.expect("distlock run")
	c.send("echo > go; wait %1; echo \"status $?\"\n")
	c.expect("status 5\r")
	c.send("read x; echo \"shell reads $x\"\n")
	c.send("again\n")
	c.expect("shell reads again")
}

// The other end of a pipe may need the terminal more than the command does.
func TestPipelineAtTheTerminal(t *testing.T) {
	c := newConsole(t)
	c.send(`distlock run job -- sh -c 'sleep 0.3; echo piped' | sh -c 'read a < /dev/tty; read b; echo "$a and $b"'` + "\n")
	c.send("typed\n")
	c.expect("typed and piped")
	c.send(`distlock run job -- sh -c 'read a; echo "read $a"' | cat; echo "status $?"` + "\n")
	c.send("typed\n")
	c.expect("read typed")
	c.expect("status 0\r")
	c.send(`distlock run job -- sh -c 'trap "echo int >> log" INT; echo started
		while ! [ -s log ]; do sleep 0.05; done; sleep 0.5' | cat` + "\n")
	c.expect("started")
	c.send(ctrlC)
	c.send(`echo "cat $?"` + "\n")
	c.expect("cat 130\r")
	testkit.Until(t, "the signal", func() bool { return strings.Contains(c.file("log"), "\n") })
	time.Sleep(100 * time.Millisecond)
	if log := c.file("log"); log != "int\n" {
		t.Errorf("the command has seen %q", log)
	}
}

// Another program of a pipeline reads the terminal, which the command has asked for, or never had. It gets the terminal, and
// the command does not run on while distlock is stopped.
func TestPipelineThatReads(t *testing.T) {
	t.Run("after the command", func(t *testing.T) {
		c := newConsole(t)
		c.send(`mkfifo go; distlock run job -- sh -c 'read a < /dev/tty; echo "$a"; read x < go; read b < /dev/tty; echo "$b"' |
			sh -c 'read a; read x < /dev/tty; echo "$a, then $x"; echo > go; read b; echo "and $b"'` + "\n")
		c.send("one\ntwo\nthree\n")
		c.expect("one, then two")
		c.expect("and three")
	})
	t.Run("after Ctrl-Z", func(t *testing.T) {
		c := newConsole(t)
		c.send(`mkfifo go; distlock run job -- sh -c 'read x < go; echo done' | sh -c 'echo started; read a < /dev/tty; echo "got $a"; cat'` + "\n")
		c.expect("started")
		c.send(ctrlZ)
		c.expect("(?i)stopped")
		c.send("fg\n")
		c.expect("distlock run")
		c.send("typed\n")
		c.expect("got typed")
		testkit.Must(t, os.WriteFile(filepath.Join(c.folder, "go"), []byte("\n"), 0))
		c.expect("done")
	})
	t.Run("in the background", func(t *testing.T) {
		c := newConsole(t)
		c.send(`distlock run job -- sh -c 'while :; do echo >> steps; done' |
			sh -c 'while ! [ -s steps ]; do sleep 0.05; done; read a < /dev/tty; echo "got $a"' &` + "\n")
		c.expectStopped()
		steps := len(c.file("steps"))
		time.Sleep(300 * time.Millisecond)
		if more := len(c.file("steps")) - steps; more != 0 {
			t.Errorf("the command took %d more steps while distlock was stopped", more)
		}
		c.send("fg\n")
		c.expect("distlock run")
		c.send("typed\n")
		c.expect("got typed")
		testkit.Until(t, "more steps", func() bool { return len(c.file("steps")) > steps })
		c.send(ctrlC)
	})
}

// A script without "#!" is started in two attempts. It has the terminal like any other program. Nothing forks when Ctrl-C comes: a
// shell that starts a program by vfork just then loses it, and waits for that program.
func TestScriptAtTheTerminal(t *testing.T) {
	c := newConsole(t)
	c.send("printf 'echo started; read x; echo \"got $x\" > f; exec tail -f f\\n' > s; chmod +x s; distlock run job -- ./s\n")
	c.expect("started")
	c.send("some words\n")
	c.expect("got some words")
	c.send(ctrlC)
	c.send("echo \"status $?\"\n")
	c.expect("status 130\r")
}

// What cannot be started leaves the terminal to the next program, and the reason is told there.
func TestTerminalAfterNothing(t *testing.T) {
	c := newTerminal(t, "sh", "-c", `stty tostop; printf '#!/no/such/interpreter' > s; chmod +x s
		distlock run job -- ./s; echo "status $?"; read x; echo "read $x"; sleep 1000`)
	c.expect("distlock: command not found: ./s")
	c.expect("status 127\r")
	c.send("some words\n")
	c.expect("read some words")
}

// A person sees why nothing was run; a script has the status.
func TestBusyAtATerminal(t *testing.T) {
	t.Parallel()
	url := "DISTLOCK_URL=" + sharedURL(t, servers.Redis)
	c := newTerminalWith(t, url, "distlock", "run", "busy", "--", "sh", "-c",
		`distlock run -n busy -- true; echo "status $?"; distlock run -n busy -- true 2> file; echo "file has $(wc -c < file)"`)
	c.expect("busy.*held by another")
	c.expect("status 1\r")
	c.expect("file has 0\r")
}
