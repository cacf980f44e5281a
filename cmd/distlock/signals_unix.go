//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// passedOn are the signals that a command under a lock gets from us.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}

// ending are those that end this program while it waits; quitting goes the way of SIGINT.
var (
	ending   = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	quitting = []os.Signal{syscall.SIGQUIT}
)

// outliveReaders keeps this process from dying of what it tells when the reader of its
// standard error has gone: it has a lock to release, and what runs without the lock to end.
// A program that it starts gets the usual SIGPIPE.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// dieOfInterrupt ends this process by SIGINT, and the rest of its group as well if
// the terminal has sent it to the command alone.
func dieOfInterrupt(group bool) {
	signal.Reset(syscall.SIGINT)
	process := os.Getpid()
	if group {
		process = 0
	}
	if syscall.Kill(process, syscall.SIGINT) == nil {
		time.Sleep(200 * time.Millisecond) // it arrives in a moment, unless the parent process ignores it
	}
}
