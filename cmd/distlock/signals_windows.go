package main

import (
	"os"
	"syscall"
)

// passedOn are the signals that Windows has.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// dieOfInterrupt does nothing: the console has told everybody.
func dieOfInterrupt(bool) {}
