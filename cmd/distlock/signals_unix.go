//go:build unix

package main

import (
	"os"
	"syscall"
)

// passedOn are the signals that a command under a lock gets from us.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}
