//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package servers

import (
	"os"
	"os/exec"
	"syscall"
)

// errPlatform is why nothing can be started here: there are no signals to pause with and no locks to sweep by. A
// given URL still serves.
var errPlatform error = unavailable{"servers are started on Unix systems only"}

const nobody = 0

const (
	sigPause  = syscall.Signal(0)
	sigResume = syscall.Signal(0)
)

func tryLock(*os.File) error                   { return errPlatform }
func ownFolder(string) bool                    { return false }
func ownGroup(*exec.Cmd)                       {}
func killGroup(*exec.Cmd) error                { return errPlatform }
func startTied(*exec.Cmd) (func(), error)      { return nil, errPlatform }
func runAs(*exec.Cmd, int)                     {}
func killChildren(int, <-chan struct{}) error  { return errPlatform }
func signalChildren(int, syscall.Signal) error { return errPlatform }
func endWithin(string)                         {}
func freeShared(string)                        {}
func freeSpace(string) (int64, bool)           { return 0, false }
func awaitStopped(int) error                   { return errPlatform }
