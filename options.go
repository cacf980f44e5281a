package distlock

import (
	"context"
	"log/slog"
	"time"
)

// Options configure a Locker. The zero value, and nil where a pointer is taken,
// mean the defaults.
type Options struct {
	// TTL is the lease of calls that do not pass their own. 0 means DefaultTTL, brought
	// within what the backend can do. One that is longer than the backend can promise is
	// treated as the option TTL says.
	TTL time.Duration

	// Holder is the text that Inspect shows for calls that do not pass their own;
	// MaxHolder bytes at most. Empty means host, process id and program name.
	Holder string

	// TokenBase is added to every token given out or shown by this Locker, and taken off every
	// token passed to it. Tokens of different stores are not comparable. After a move to a store
	// with lower tokens, or one built anew, all fenced writes would be refused: a base no lower
	// than the last token of the old store prevents that. It must be the same in all processes
	// that share the store, and must never be lowered.
	TokenBase int64

	// Observer is told what happens. Nil costs nothing.
	Observer *Observer

	// Logger receives what a caller cannot see from results: a lost lock, with the error of the
	// renewal that failed last, and a release or a clean-up that gave up, at Warn; at Info, a
	// call to Lock that has waited for its TTL for a lock which this Locker holds, and so may wait for itself; at
	// Debug, each lock that is acquired or released; at Error, a driver that has panicked. Where
	// a store promises less than what was asked for, that is said once: at Open, or with the
	// first lock. The keys of lines about a lock are lock, token, backend and err, or panic and
	// stack. A handler gets the context of the call, and for a loss the values of the one that
	// has acquired the lock. Nil means no logging. Names of locks are logged, credentials never.
	Logger *slog.Logger
}

// Observer is a set of functions that a Locker calls as things happen, for metrics
// and traces; each may be nil. They are called from several goroutines, among them
// the caller's, so they must be quick and must not call the Locker.
type Observer struct {
	Acquired  func(Acquired)
	Contended func(Contended)
	Failed    func(Failed)
	Renewed   func(Renewed)
	Lost      func(Lost)
	Released  func(Released)
	CleanedUp func(CleanedUp)
}

// Acquired reports a call to Lock or TryLock that got its lock.
type Acquired struct {
	Ctx   context.Context // the caller's, for the values in it
	Name  string
	Token int64
	Wait  time.Duration // from the call to the grant
	Tries int           // requests for the lock that this took, 1 if it was free
}

// Contended reports that a call found the name held: once per call to Lock, when
// it begins to wait, and once per TryLock that fails with ErrHeld. Lock waits for the
// function for 30 ms at most, and goes on beside it then; TryLock waits until it returns.
type Contended struct {
	Ctx  context.Context // the caller's
	Name string
}

// Failed reports a call to Lock or TryLock that has asked the backend, or queued for it,
// and got no lock. A TryLock that found the name held is reported as Contended alone.
type Failed struct {
	Ctx  context.Context // the caller's
	Op   string          // "lock" or "trylock"
	Name string
	Wait time.Duration // from the call to its end
	Err  error         // what the call returns
}

// Renewed reports a renewal in the background, or an Extend, and its outcome.
type Renewed struct {
	Ctx   context.Context // of Extend; else the values of the call that has acquired the lock
	Name  string
	Token int64
	TTL   time.Duration // as asked for
	Took  time.Duration
	Left  time.Duration // of the lease when the answer came: how close it was
	Err   error         // nil if confirmed; a failed one is tried again until the deadline
}

// Lost reports a lock that ended other than by Unlock. Unlock or Close may be the
// first to find that out. Such a lock is not reported as released.
//
// Reason is one of a few words, for the label of a metric:
//   - "expired": no renewal was confirmed before its deadline;
//   - "overrun": it was taken with NoRenewal, and its term was over before Unlock;
//   - "gone": the store has let go of it. Somebody broke it, its lease or session has
//     ended there, or the store forgot it;
//   - "closed": the connection that it was held by was closed.
//
// A lock that MaxHold ends is freed by Unlock, and reported as released.
type Lost struct {
	Ctx    context.Context // the values of the call that has acquired it, or of Unlock
	Name   string
	Token  int64
	Held   time.Duration // from the grant until it was found out
	Reason string
	Cause  error // what Lock.Err returns, or Unlock if that has found it out
}

// Released reports the outcome of the release begun by Unlock or Close, unless it was a
// loss. A record of patterns.OncePer that Close leaves in the store is reported as well.
type Released struct {
	Ctx   context.Context // of Unlock, for the values in it
	Name  string
	Token int64
	Held  time.Duration // from the grant to the call to Unlock
	Took  time.Duration // from the call to Unlock to the outcome
	Err   error         // what Unlock returns, or would have if it had waited
}

// CleanedUp reports the clean-up behind an acquisition that failed, was cancelled or
// came too late.
type CleanedUp struct {
	Ctx  context.Context // the values of the call
	Name string
	Took time.Duration
	Err  error // nil if nothing of it is left; else it ends with its TTL
}
