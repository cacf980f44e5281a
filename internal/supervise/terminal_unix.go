//go:build unix

package supervise

import (
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal. All methods may be called on nil, for none.
type terminal struct {
	file  *os.File
	modes *term.State // at first; nil if they cannot be had
}

func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	t := &terminal{file: f}
	t.modes, _ = term.GetState(t.fd())
	return t
}

func (t *terminal) fd() int { return int(t.file.Fd()) }

func (t *terminal) close() {
	if t != nil {
		_ = t.file.Close() // nothing was written
	}
}

// talksToUser reports whether this process is in the foreground, and both ends of
// it are at the terminal: whatever it runs may expect to have it for itself.
func (t *terminal) talksToUser() bool {
	return t.foreground() == unix.Getpgrp() && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// foreground returns the process group that may use the terminal, or -1.
func (t *terminal) foreground() int {
	if t == nil {
		return -1
	}
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// reset gives the terminal the modes that it had at first: echo, and whole lines.
func (t *terminal) reset() {
	if t != nil && t.modes != nil {
		_ = term.Restore(t.fd(), t.modes) // a user can type "reset"
	}
}

// give moves a process group into the foreground. That cannot always be done, for
// example if it has just ended; a shell sorts it out when we return to it.
func (t *terminal) give(group int) {
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group)
}
