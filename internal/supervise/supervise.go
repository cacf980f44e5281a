// Package supervise runs a program while a lock is held, and ends it, with all of its process
// group, before anybody else can hold the lock. What has left the group is not ended, nor is
// what the program has left in the background when it ends by itself: nothing waits for that.
// On Windows, which has no such groups, the program alone is ended.
package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
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

	// Signals are passed on to the process group of the program.
	Signals <-chan os.Signal

	// Trouble returns why the lock was not renewed the last time, or nil.
	Trouble func() error

	// Tell receives what the user should know while the program runs.
	Tell func(format string, args ...any)
}

// ErrNotFound and ErrNotExecutable are why a program could not be started, as
// shells tell them apart (exit status 127 and 126). ErrNotStarted means that the lock was
// lost before.
var (
	ErrNotFound      = errors.New("command not found")
	ErrNotExecutable = errors.New("command cannot be executed")
	ErrNotStarted    = errors.New("the command was not started")
)

// Outcome is how a program has ended.
type Outcome struct {
	// Status is the exit status, or 128 and the signal's number.
	Status int
	// Lost is the loss of the lock, if it came before the end of the program.
	Lost error
	// Interrupted says that Ctrl-C has ended the program, and that the parent of this
	// process, like a script, has not seen it.
	Interrupted bool
	// Running says that the program had to end, and that processes that it has started run on: they are another user's.
	Running bool
}

// maxSettle is what the kernel and a slow machine may need until the last process is gone.
const maxSettle = 100 * time.Millisecond

// settle returns how much before the deadline KILL is sent. It is a part of a short lease, or
// a program would be ended before the first renewal.
func settle(lease time.Duration) time.Duration { return min(maxSettle, lease/8) }

// Run starts the program in a process group of its own and waits for its end. The
// error is ErrNotFound, ErrNotExecutable, ErrNotStarted or what the system said; then
// nothing has run. lock is not unlocked.
//
// On Unix the program has the terminal, as in a shell, and a shell can stop and
// continue it by stopping and continuing this process.
func Run(lock distlock.Lock, c Command) (Outcome, error) {
	w := &watch{lock: lock, command: c, settle: settle(time.Until(lock.Deadline()))}
	defer w.told.wait()
	if err := lock.Err(); err != nil { // this process may have slept since it was granted
		return Outcome{}, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
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
	w.group = g
	w.until(g.done)
	return Outcome{Status: g.exitStatus(), Lost: w.lost, Interrupted: g.restore(), Running: w.running}, nil
}

func startError(name string, err error) error {
	if name == "" { // os/exec says only that there is no command
		return fmt.Errorf("%w: its name is empty", ErrNotFound)
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return fmt.Errorf("%w: %s: %w", ErrNotExecutable, name, err)
}

// watch looks after a group while it runs.
type watch struct {
	lock    distlock.Lock
	command Command
	settle  time.Duration
	group   *group
	lost    error
	waited  time.Time // the deadline for which catchUp has given time
	refused bool      // the user knows that the command cannot be ended
	running bool      // what is left of the group runs on
	told    messages
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
			w.sent(w.group.signal(s))
		case s := <-w.group.jobs:
			if w.group.job(s) && w.awake(done) {
				return
			}
			timer.Reset(w.untilTerm())
		case s := <-w.group.stopped:
			if w.group.suspend(s) && w.awake(done) {
				return
			}
			timer.Reset(w.untilTerm())
		case <-lost:
			if w.lose(w.lock.Err()) {
				w.end(done, w.grace())
				return
			}
			lost = nil
		case <-timer.C:
			// The deadline has moved on if a renewal has come through.
			left := w.untilTerm()
			if left <= 0 {
				left = w.catchUp(-left)
			}
			if left > 0 {
				timer.Reset(left)
				continue
			}
			if !w.command.KeepRunning && w.lose(w.ending()) {
				w.end(done, w.grace())
				return
			}
		}
	}
}

// awake goes on after this process was stopped, and the group with it, and reports
// whether that is the end: nothing may run another step without the lock.
func (w *watch) awake(done <-chan struct{}) bool {
	if err := w.lock.Err(); err != nil && !w.command.KeepRunning {
		refused := w.group.kill()
		w.lose(err)
		w.killed(done, refused)
		return true
	}
	w.group.resume()
	return false
}

// ending is the loss of a lock that is not renewed any more, but has not ended yet.
func (w *watch) ending() error {
	when := "it has ended"
	if left := time.Until(w.lock.Deadline()).Round(time.Millisecond); left > 0 {
		when = fmt.Sprintf("it ends in %v", left)
	}
	err := fmt.Errorf("lock %q: %w: the backend has not renewed it, and %s", w.lock.Name(), distlock.ErrLost, when)
	if w.command.Trouble == nil || w.command.Trouble() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, w.command.Trouble())
}

// untilTerm is how long the program may run if the lock is not renewed any more.
func (w *watch) untilTerm() time.Duration {
	return time.Until(w.lock.Deadline()) - w.command.Grace - w.settle
}

// catchUp returns how long a renewal has that this process could not send, because it was stopped, or the machine: it is late
// for TERM by so much. That is half of what is left of the grace, and once for each deadline.
func (w *watch) catchUp(late time.Duration) time.Duration {
	deadline := w.lock.Deadline()
	if late <= w.settle || deadline.Equal(w.waited) {
		return 0
	}
	w.waited = deadline
	return min(w.grace()/2, time.Second)
}

// grace is how long the program may take to end. It is nothing after the lease, when this
// process was stopped for longer: another may hold the lock by then.
func (w *watch) grace() time.Duration {
	return min(w.command.Grace, time.Until(w.lock.Deadline())-w.settle)
}

// lose notes the loss and reports whether the program has to end.
func (w *watch) lose(cause error) bool {
	w.lost = cause
	if w.command.KeepRunning {
		w.tell("%v; the command keeps running WITHOUT the lock", cause)
		return false
	}
	w.tell("%v; ending the command", cause)
	return true
}

// sent takes in what became of a signal to the command: where the system refuses it, the user must know, and only once that
// the command cannot be ended.
func (w *watch) sent(err error) {
	const refusal = "the system does not let distlock signal the command"
	switch {
	case !errors.Is(err, os.ErrPermission) || w.refused:
	case w.lost == nil:
		w.tell(refusal)
	default:
		w.refused = true
		w.tell(refusal + "; it keeps running WITHOUT the lock")
	}
}

// tell tells the user, and does not wait for that: a halted terminal or a full pipe must
// not hold up the end of a program.
func (w *watch) tell(format string, args ...any) {
	w.told.add(func() { w.command.Tell(format, args...) })
}

// messages are being told in the background, one after the other.
type messages struct {
	sync.WaitGroup
	last chan struct{} // closed when the last one has been told
}

func (m *messages) add(tell func()) {
	before, done := m.last, make(chan struct{})
	m.last = done
	m.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		tell()
	})
}

// wait gives them a moment.
func (m *messages) wait() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Wait()
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// killed waits until what was killed has ended. Of a group with processes of several users, the system ends those of this one.
func (w *watch) killed(done <-chan struct{}, refused error) {
	w.sent(refused)
	<-done
	if w.running = w.group.stays(); w.running {
		w.sent(os.ErrPermission)
	}
}

// end asks the whole group to end, and makes it, after grace. What may be stopped is not woken up without time to end.
func (w *watch) end(done <-chan struct{}, grace time.Duration) {
	if grace <= 0 {
		w.killed(done, w.group.kill())
		return
	}
	w.sent(w.group.terminate())
	timer := time.NewTimer(grace)
	defer timer.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case s := <-w.command.Signals:
			w.sent(w.group.signal(s))
		case <-timer.C:
			w.killed(done, w.group.kill())
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
