package main

import (
	"errors"
	"fmt"
)

// The exit statuses, as far as they are this program's own. They are those of flock(1)
// where it has one, else of sysexits.h; the shell's for what cannot be run.
const (
	statusBusy          = 1
	statusUsage         = 64 // EX_USAGE
	statusUnavailable   = 69 // EX_UNAVAILABLE
	statusFailed        = 70 // EX_SOFTWARE
	statusLost          = 75 // EX_TEMPFAIL
	statusNotExecutable = 126
	statusNotFound      = 127
)

const exitHelp = `
Exit status:
  0      the command ran and succeeded, or the request was carried out
  1      the name is held by another, or did not become free in time (-E changes it);
         break: nobody holds it, or another by now, or its question was not answered with
         yes; inspect NAME: nobody holds it; check: the contract is not kept
  64     usage: a flag, argument, URL or configuration that is not allowed
  69     the backend cannot be reached or failed
  70     another failure
  75     the lock was lost: while the command ran, which was ended unless it had ended by
         itself, or before that, and it was not started, or while --once-per or --min-hold
         kept the name; with --on-lost warn only if it was not started
  126    the command cannot be executed
  127    the command was not found
  128+n  the command, or distlock while it waited, was ended by signal n; after Ctrl-C
         distlock ends by that signal itself, so that a script around it ends too
  other  that of the command`

// exit is an error with an exit status. A nil error says nothing more: the user has
// been told already.
type exit struct {
	status int
	err    error

	// interrupted has the process, and if group is set what else the terminal
	// would have interrupted, die of SIGINT. A script goes on after a command that
	// has been interrupted and then exits, whatever its status.
	interrupted, group bool
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func usage(err error) error { return &exit{status: statusUsage, err: err} }

// exitOf returns how the process ends. Nobody says more than err.
func exitOf(err error) *exit {
	var e *exit
	switch {
	case err == nil:
		return &exit{}
	case errors.As(err, &e):
		return e
	}
	return &exit{status: statusFailed, err: err}
}
