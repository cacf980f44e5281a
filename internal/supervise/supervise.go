// Package supervise runs a program while a lock is held, and ends it, with all that
// it has started, before anybody else can hold the lock.
package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/distlock-go/distlock"
)

// Command is a program to run under a lock.
type Command struct {
	Args []string

	// Grace is what lies between the request to end (TERM) and the end (KILL)
	// when the lock is being lost. It is taken off the lease: TERM is sent that
	// long before the deadline.
	Grace time.Duration

	// KeepRunning lets the program run on without the lock.
	KeepRunning bool

	// Signals are passed on to the program and all that it has started.
	Signals <-chan os.Signal

	// Tell receives what the user should know while the program runs.
	Tell func(format string, args ...any)
}

// ErrNotFound and ErrNotExecutable are why a program could not be started, as
// shells tell them apart (exit status 127 and 126).
var (
	ErrNotFound      = errors.New("command not found")
	ErrNotExecutable = errors.New("command cannot be executed")
)

// Outcome is how a program has ended.
type Outcome struct {
	// Status is the exit status, or 128 and the signal's number.
	Status int
	// Lost is the loss of the lock, if it came before the end of the program.
	Lost error
}

// settle is how much before the deadline KILL is sent: what the kernel and a slow
// machine may need until the last process is gone.
const settle = 100 * time.Millisecond

// Run starts the program in a process group of its own and waits for its end. The
// error is ErrNotFound, ErrNotExecutable or what the system said; then nothing has
// run. lock is not unlocked.
func Run(lock distlock.Lock, c Command) (Outcome, error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(),
		"DISTLOCK_NAME="+lock.Name(),
		"DISTLOCK_TOKEN="+strconv.FormatInt(lock.Token(), 10),
		"DISTLOCK_DEADLINE="+lock.Deadline().UTC().Format(time.RFC3339Nano))
	g, err := start(cmd)
	if err != nil {
		return Outcome{}, startError(c.Args[0], err)
	}
	defer g.restore()
	w := &watch{lock: lock, command: c, group: g}
	w.until(g.done)
	return Outcome{Status: exitStatus(cmd.ProcessState), Lost: w.lost}, nil
}

func startError(name string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return fmt.Errorf("%w: %s: %w", ErrNotExecutable, name, err)
}

// group is a running program and all that it has started.
type group struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed when the program itself has ended
	restore func()        // gives the terminal back
}

// watch looks after a group while it runs.
type watch struct {
	lock    distlock.Lock
	command Command
	group   *group
	lost    error
}

// until passes signals on and watches the lock until the program has ended.
func (w *watch) until(done <-chan struct{}) {
	timer := time.NewTimer(w.untilTerm())
	defer timer.Stop()
	lost := w.lock.Done()
	for {
		select {
		case <-done:
			return
		case s := <-w.command.Signals:
			w.group.signal(s)
		case <-lost:
			if w.lose(w.lock.Err()) {
				w.end(done, w.command.Grace)
				return
			}
			lost = nil
			timer.Stop()
		case <-timer.C:
			// The deadline has moved on if a renewal has come through.
			if left := w.untilTerm(); left > 0 {
				timer.Reset(left)
				continue
			}
			if !w.command.KeepRunning && w.lose(fmt.Errorf("%w: not renewed, and ends in %v",
				distlock.ErrLost, time.Until(w.lock.Deadline()).Round(time.Millisecond))) {
				w.end(done, time.Until(w.lock.Deadline())-settle)
				return
			}
		}
	}
}

// untilTerm is how long the program may run if the lock is not renewed any more.
func (w *watch) untilTerm() time.Duration {
	return time.Until(w.lock.Deadline()) - w.command.Grace - settle
}

// lose notes the loss and reports whether the program has to end.
func (w *watch) lose(cause error) bool {
	w.lost = cause
	if w.command.KeepRunning {
		w.command.Tell("%v; the command keeps running WITHOUT the lock", cause)
		return false
	}
	w.command.Tell("%v; ending the command", cause)
	return true
}

// end asks the whole group to end, and makes it, after grace.
func (w *watch) end(done <-chan struct{}, grace time.Duration) {
	w.group.terminate()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case s := <-w.command.Signals:
			w.group.signal(s)
		case <-timer.C:
			w.group.kill()
			<-done
			return
		case <-tick.C:
			// The program itself may end before what it has started: a shell
			// dies at TERM, and its "sleep 100 &" does not have to.
			if w.group.empty() {
				<-done
				return
			}
		}
	}
}
