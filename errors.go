package distlock

import (
	"fmt"
	"strings"
)

// Error says what a call was about when it failed. The errors of Lockers, Locks and the
// functions of this package are of this type, except those that a caller's own function
// has returned.
type Error struct {
	Op   string // "lock", "trylock", "extend", "unlock", "inspect", ...
	Name string // of the lock; empty where there is none
	Err  error  // the reason; match it with errors.Is
}

// Error implements error.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("distlock: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("distlock: %s %q: %v", e.Op, shortened(e.Name), e.Err)
}

// shortened keeps a name that no store would take from filling a log.
func shortened(name string) string {
	if len(name) <= MaxName {
		return name
	}
	return strings.ToValidUTF8(name[:64], "") + "..."
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

func opError(op, name string, err error) error { return &Error{Op: op, Name: name, Err: err} }
