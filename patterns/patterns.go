// Package patterns has what is often built on a lock, for any [distlock.Locker].
//
// [Elect] elects a leader, [OncePer] runs a job once per period over all processes,
// [LockAll] takes several names or none, [MaxHold] bounds how long a stuck holder keeps a
// name, [Wanted] tells a holder that others wait, [Semaphore] and [ReadWrite] let several
// in, [Reentrant] lets one in again, [Shard] spreads names over several stores. A wrapper
// is a Locker itself, so they can be put together. Each with its limits:
// https://github.com/distlock-go/distlock/blob/main/docs/patterns.md
package patterns

import "github.com/distlock-go/distlock"

func opError(op, name string, err error) error {
	return &distlock.Error{Op: op, Name: name, Err: err}
}

// reason is what an error of a Locker says beside operation and name, which are not those
// that the caller of a wrapper knows.
func reason(err error) error {
	if e, ok := err.(*distlock.Error); ok {
		return e.Err
	}
	return err
}
