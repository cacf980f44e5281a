//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package hazard

import (
	"errors"
	"os"
	"time"
)

// bootTime is the wall clock here: nothing else is the same for all processes. Only
// what needs a stopped process compares stamps of two, and that cannot be had here.
func bootTime() time.Duration { return time.Duration(time.Now().UnixNano()) }

func stopProcess(*os.Process) error { return errors.ErrUnsupported }

func resumeProcess(*os.Process) error { return errors.ErrUnsupported }
