//go:build unix

package supervise

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// start runs cmd as the leader of a process group, and in the foreground of the
// terminal if there is one, so that it can read from it and Ctrl-C reaches it.
func start(cmd *exec.Cmd) (*group, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	restore := func() {}
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) && inForeground(fd) {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, fd
		restore = func() { takeTerminal(fd) }
	}
	dieWithParent(cmd.SysProcAttr)
	g := &group{cmd: cmd, done: make(chan struct{}), restore: restore}
	started := make(chan error)
	go func() {
		// "Die with the parent" means the parent's thread: this one must live as
		// long as the program does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its outcome is read from ProcessState
			close(g.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return g, nil
}

// inForeground reports whether this process may use the terminal.
func inForeground(fd int) bool {
	pgrp, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// takeTerminal makes this process the foreground again. A background process that
// does so is stopped by SIGTTOU unless it ignores that.
func takeTerminal(fd int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, unix.Getpgrp()) // the shell does the same anyway
	signal.Reset(syscall.SIGTTOU)
}

func (g *group) send(s syscall.Signal) {
	// Only this package waits for the program, so its number is not reused while
	// anything of the group is left; an empty group is no error here.
	_ = syscall.Kill(-g.cmd.Process.Pid, s)
}

func (g *group) signal(s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok {
		g.send(sig)
	}
}

// terminate also wakes what is stopped, or it could not react.
func (g *group) terminate() {
	g.send(syscall.SIGTERM)
	g.send(syscall.SIGCONT)
}

func (g *group) kill() { g.send(syscall.SIGKILL) }

// empty reports whether no process of the group is left.
func (g *group) empty() bool {
	return errors.Is(syscall.Kill(-g.cmd.Process.Pid, 0), syscall.ESRCH)
}

func exitStatus(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}
