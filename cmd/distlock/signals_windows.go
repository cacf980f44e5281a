package main

import (
	"os"
	"syscall"
)

// passedOn are the signals that Windows has.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM}
