//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package hazard

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads the clock of the machine: it never jumps, and is the same for all
// processes.
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return time.Duration(time.Now().UnixNano()) // no such system is known
	}
	return time.Duration(t.Nano())
}

func stopProcess(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
