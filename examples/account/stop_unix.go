//go:build unix

package main

import (
	"os"
	"syscall"
)

// stall stops a process as a paged-out or suspended machine would: between any two
// instructions, and without telling it.
func stall(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// resume lets it go on.
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
