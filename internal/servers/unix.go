//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package servers

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// errPlatform is why nothing can be started here; nil where it can.
var errPlatform error

const (
	sigPause  = syscall.SIGSTOP
	sigResume = syscall.SIGCONT
)

// tryLock locks an open file for this process, or fails at once.
func tryLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// ownGroup gives the command its own process group: Ctrl-C at the terminal reaches us and not the server. Otherwise
// the server would be gone before the check that uses it could say so.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// killGroup kills a command started in its own group, with whatever it has started.
func killGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
