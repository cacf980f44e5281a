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

// ownFolder reports whether there is a folder that is this user's, or that of a server which refuses to run as root: any
// other is not the rest of a server of ours.
func ownFolder(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(stat.Uid) == os.Geteuid() || os.Geteuid() == 0 && stat.Uid == nobody)
}

// ownGroup gives the command its own process group: Ctrl-C at the terminal reaches us and not the server. Otherwise
// the server would be gone before the check that uses it could say so.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// nobody is the user for a server that refuses to run as root.
const nobody = 65534

// runAs has a command run as another user, if that is not 0.
func runAs(cmd *exec.Cmd, user int) {
	if user == 0 {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}
}

// killChildren kills the children of a process, which is not to have any more: it is stopped before. They would go on
// for a moment without it, and with its port.
func killChildren(parent int, ended <-chan struct{}) error {
	select {
	case <-ended: // its number may be another's by now
		return nil
	default:
	}
	err := syscall.Kill(parent, sigPause)
	if err == nil {
		err = awaitStopped(parent)
	}
	if err == nil {
		err = signalChildren(parent, syscall.SIGKILL)
	}
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ECHILD) {
		return nil
	}
	return err
}

// killGroup kills a command started in its own group, with whatever it has started.
func killGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
