package main

import (
	"os"
	"syscall"
)

// passedOn are the signals that Windows has.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// ending are those that end this program while it waits; quitting is for Unix.
var ending, quitting = passedOn, []os.Signal(nil)

// dieOfInterrupt does nothing: the console has told everybody.
func dieOfInterrupt(bool) {}

// outliveReaders does nothing: a write without a reader is an error here, and no signal.
func outliveReaders() {}
