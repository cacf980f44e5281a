//go:build unix

package supervise

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// group is a running program and what it has started, but for what has left its process group.
type group struct {
	pid  int
	tty  *terminal     // nil if there is none
	done chan struct{} // closed when the program itself has ended
	ws   syscall.WaitStatus
	told bool // to end, by this process
	fore bool // uses the terminal, as far as is known
	held bool // was stopped by yield, of which await may tell later

	// stopped receives the signal that has stopped the program. One element: a
	// second stop before the first is looked at says nothing new.
	stopped chan syscall.Signal
	// jobs are the signals with which a shell controls this process as a job.
	jobs chan os.Signal

	system func(pid int, s syscall.Signal) error // syscall.Kill, but in tests
}

// start runs cmd as the leader of a process group, and hands it the terminal if
// that is ours to use and the program is what the user talks to. In a pipeline that
// may be another; then the program gets it when it asks for it.
func start(cmd *exec.Cmd) (*group, error) {
	g := &group{
		tty: openTerminal(), done: make(chan struct{}),
		stopped: make(chan syscall.Signal, 1), jobs: make(chan os.Signal, 4), system: syscall.Kill,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if g.tty.talksToUser() {
		g.fore, cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, true, g.tty.fd()
	}
	dieWithParent(cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		// "Die with the parent" means the parent's thread: this one must live as
		// long as the program does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if script, ok := shellScript(cmd, err); ok {
			// It has the same attributes: the first attempt has moved the terminal already.
			cmd = script
			err = cmd.Start()
		}
		if err == nil {
			g.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			g.await()
			close(g.done)
			if first {
				bury()
			}
		}
	}()
	err := <-started
	// From now on this process may be in the background of the terminal. It must
	// not be stopped for what it writes there, or for moving the terminal: it has
	// a lock to watch, and to release. Not before: the program would inherit it.
	signal.Ignore(syscall.SIGTTOU)
	if err != nil {
		g.restore() // a program is given the terminal before the system looks at its file
		return nil, err
	}
	g.listen()
	return g, nil
}

// listen asks for the signals of jobs. Without SIGTTIN, another program of a pipeline that reads the terminal would stop this
// process too, and the program would run unwatched.
func (g *group) listen() { signal.Notify(g.jobs, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGCONT) }

// first reports whether this is the first process of a container, which inherits those that have lost their parent. Nobody else
// takes note of their end, and until then they count as a part of their group.
var first = os.Getpid() == 1

// await returns when the program has ended. os.Process does not tell of a program
// that was stopped.
func (g *group) await() {
	whom := g.pid
	if first {
		whom = -1
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(whom, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && pid != g.pid: // what was inherited
		case err == nil && ws.Stopped():
			select {
			case g.stopped <- ws.StopSignal():
			default:
			}
		default:
			g.ws = ws
			return
		}
	}
}

// bury takes note of the end of what is left, until nothing is.
func bury() {
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// restore takes the terminal back, if the program has it, and reports whether it
// was ended from there by Ctrl-C. A program that was killed could not put back the modes of the terminal.
func (g *group) restore() (interrupted bool) {
	signal.Stop(g.jobs)
	// A shell that was the program may leave the terminal to a group of its own.
	front, own := g.tty.foreground(), syscall.Getpgrp()
	killed := g.told || g.ws.Signaled()
	if front == g.pid || front > 0 && errors.Is(syscall.Kill(-front, 0), syscall.ESRCH) {
		g.tty.give(own)
		front = own
		interrupted = g.ws.Signaled() && g.ws.Signal() == syscall.SIGINT
	}
	if killed && g.fore && front == own {
		g.tty.reset()
	}
	g.tty.close()
	return interrupted
}

// send returns os.ErrPermission if all of the group runs as another user, as with sudo.
func (g *group) send(s syscall.Signal) error {
	// Only this package waits for the program, so its number is not reused while
	// anything of the group is left; an empty group is no error to the callers.
	return g.system(-g.pid, s)
}

func (g *group) signal(s os.Signal) error {
	if sig, ok := s.(syscall.Signal); ok {
		return g.send(sig)
	}
	return nil
}

// terminate also wakes what is stopped, or it could not react.
func (g *group) terminate() error {
	g.told = true
	return errors.Join(g.send(syscall.SIGTERM), g.send(syscall.SIGCONT))
}

func (g *group) kill() error {
	g.told = true
	return g.send(syscall.SIGKILL)
}

// empty reports whether no process of the group is left.
func (g *group) empty() bool {
	return errors.Is(syscall.Kill(-g.pid, 0), syscall.ESRCH)
}

// exitStatus is that of the program, after done.
func (g *group) exitStatus() int {
	if g.ws.Signaled() {
		return 128 + int(g.ws.Signal())
	}
	return g.ws.ExitStatus()
}

// stays reports whether processes of another user are left of the group a moment after it was killed.
func (g *group) stays() bool {
	for end := time.Now().Add(maxSettle); errors.Is(g.system(-g.pid, 0), syscall.EPERM); time.Sleep(maxSettle / 20) {
		if time.Now().After(end) {
			return true
		}
	}
	return false
}

// job acts on a signal for this process as a job of a shell, and reports whether the job is continued: the group must then be
// resumed, or killed.
func (g *group) job(s os.Signal) (continued bool) {
	switch s {
	case syscall.SIGTSTP:
		_ = g.send(syscall.SIGTSTP) // the program may have its reasons not to stop
	case syscall.SIGTTIN:
		return g.yield()
	}
	return s == syscall.SIGCONT
}

// yield acts on another program of this job having been stopped because it has read the terminal: it gets the terminal from the
// program, or the job stops as a whole, if it is in the background. It reports whether this process was stopped.
func (g *group) yield() bool {
	front, own := g.tty.foreground(), syscall.Getpgrp()
	if front != g.pid && front != own {
		g.held = true
		g.stop()
		return true
	}
	g.fore = false // until it asks for the terminal once more
	g.tty.give(own)
	_ = syscall.Kill(0, syscall.SIGCONT)
	return false
}

// suspend acts on the program having been stopped, and reports whether this process
// was stopped as well, so that a shell sees a stopped job. The group must then be
// resumed, or killed if the lock has been lost: until that it does not run.
//
// Without a shell that could wake this process it stays awake, and keeps the lock:
// somebody may have stopped the program to look at it.
func (g *group) suspend(s syscall.Signal) bool {
	if g.held && s == syscall.SIGSTOP {
		g.held = false
		return false
	}
	wantsTerminal := s == syscall.SIGTTIN || s == syscall.SIGTTOU
	switch front := g.tty.foreground(); {
	case front < 0:
		return false
	case wantsTerminal && front == syscall.Getpgrp():
		g.fore = true
		g.resume()
		return false
	case front != g.pid && front != syscall.Getpgrp() && !wantsTerminal:
		return false
	case front == g.pid:
		g.tty.give(syscall.Getpgrp())
	}
	g.fore = g.fore || wantsTerminal
	g.stop()
	return true
}

// stop stops the group, also what has ignored another signal, and then this process: nothing may run unwatched.
func (g *group) stop() {
	_ = g.send(syscall.SIGSTOP)
	g.stopSelf()
}

// stopSelf stops this process, and what else is of its job, like the other programs
// of a pipeline. It returns when the job was continued, or soon if there is nobody to
// do that.
//
// A Go program that has once asked for SIGTSTP or SIGTTIN cannot be stopped by it again, so this
// process stops by SIGSTOP. It takes its own SIGTSTP first: one that were still on its
// way when a shell continues the job would stop the job a second time.
func (g *group) stopSelf() {
	own, continued := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(own, syscall.SIGTSTP)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(own)
	defer signal.Stop(continued)
	signal.Stop(g.jobs)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	<-own
	if !orphaned() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	select {
	case <-continued:
	case <-time.After(time.Second):
	}
}

// orphaned reports whether there is no shell that could continue this process. The kernel has a rule for that, which does not
// hold for SIGSTOP: what has a parent of its session, but in another process group, has one. A parent in the same group is a script,
// which has one unless it leads the session.
func orphaned() bool {
	session, _ := unix.Getsid(0)
	of, err := unix.Getsid(os.Getppid())
	return err != nil || of != session || unix.Getpgrp() == session
}

// resume lets the program run on: with the terminal if a shell has given it to us, and the program uses it. Another of a pipeline
// may read there.
func (g *group) resume() {
	g.listen()
	if g.fore && g.tty.foreground() == syscall.Getpgrp() {
		g.tty.give(g.pid)
	}
	select {
	case <-g.stopped: // of our own making
		g.held = false
	default:
	}
	_ = g.send(syscall.SIGCONT)
}
