package distlock

import (
	"fmt"
	"strings"
	"time"
)

// Error says what a call was about when it failed. The errors of Open, of Lockers, Locks
// and the functions of this package are of this type, except those that a caller's own
// function has returned. Where several locks or stores act as one, an error may join several of them.
type Error struct {
	Op   string // "open redis://host", "lock", "trylock", "extend", "unlock", "inspect", ...
	Name string // of the lock; empty where there is none
	Err  error  // the reason; match it with errors.Is
}

// Error implements error. The text is one line, also where the reason is several.
func (e *Error) Error() string {
	reason := lineEnds.Replace(fmt.Sprint(e.Err))
	if e.Name == "" {
		return fmt.Sprintf("distlock: %s: %s", e.Op, reason)
	}
	return fmt.Sprintf("distlock: %s %q: %s", e.Op, shortened(e.Name), reason)
}

// lineEnds puts those of errors.Join and of client libraries into one line.
var lineEnds = strings.NewReplacer(":\n\t", ": ", "\n\t", "; ", "\n", "; ")

// shortened cuts a name that is longer than MaxName, so that it does not fill a log.
func shortened(name string) string {
	if len(name) <= MaxName {
		return name
	}
	return strings.ToValidUTF8(name[:64], "") + "..."
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

func opError(op, name string, err error) error { return &Error{Op: op, Name: name, Err: err} }

// HeldError is an ErrHeld with what the store has said of the holder. errors.As finds one in
// every error that matches ErrHeld. What is not known is left out: MySQL tells Remaining alone,
// etcd all but Remaining, and ZooKeeper that only to a Lock that waits. The name may have passed to another since a Lock that
// gives up was told: its text names the holder of that time, and how long ago that was, and the fields do not.
type HeldError struct {
	Remaining time.Duration // until the name is free if nothing renews it, by the store's clock; 0 if not known
	Holder    string        // the text of the option Holder; "" if not known
	Token     int64         // of the holder; 0 if not known
}

// Error returns the text of ErrHeld, with the holder and the token if they are known.
func (e *HeldError) Error() string {
	var known []string
	if e.Holder != "" {
		known = append(known, fmt.Sprintf("%q", e.Holder))
	}
	if e.Token != 0 {
		known = append(known, fmt.Sprintf("token %d", e.Token))
	}
	if known == nil {
		return ErrHeld.Error()
	}
	return ErrHeld.Error() + " (" + strings.Join(known, ", ") + ")"
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
