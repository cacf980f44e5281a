// Package distlock gives one lock interface with one contract on Redis, MySQL,
// ZooKeeper and etcd: "only one of us does this at a time", across machines.
//
//	locker, err := backends.Open(ctx, "redis://localhost:6379") // or mysql://, zk://, etcd://, mem://
//	if err != nil {
//		return err
//	}
//	defer locker.Close()
//
//	lock, err := locker.Lock(ctx, "orders/42", distlock.TTL(30*time.Second)) // waits; TryLock answers at once
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock(ctx)
//
//	res, err := db.ExecContext(ctx, // a fenced write: it changes no row if a later holder has written
//		`UPDATE orders SET state = 'paid', fence = ? WHERE id = 42 AND fence <= ?`, lock.Token(), lock.Token())
//	if err != nil {
//		return err
//	}
//	if n, err := res.RowsAffected(); err != nil || n == 0 {
//		return cmp.Or(err, errors.New("order 42 was not written: a later holder has written it"))
//	}
//
// # A lock is a lease
//
// A lock is held for a time to live (TTL) and renewed in the background at a
// third of it, until Unlock. A holder that crashes, stalls or is cut off loses
// the name when the TTL has passed, so that others can go on. A holder learns of
// it: [Lock.Done] closes before anybody else can hold the name. [Do] runs a
// function under a lock and ends its context when the lock is lost.
//
// No lock service can stop a process paused between checking Done and writing. Where a
// stale write would do harm, pass [Lock.Token] along with the write and let the store
// refuse a lower one, since it rises with every grant of a name; the UPDATE above does
// so. It accepts an equal one, since a holder may write more than once, and looks at the
// rows, since a refused UPDATE is no error of the database. In MySQL an UPDATE that
// changes nothing affects no rows either, unless the database was opened with
// clientFoundRows=true; the locks of package mysqllock have Guard instead. Tokens of
// different stores are not comparable: a service that moves needs [Options].TokenBase.
//
// # What is promised
//
// docs/contract.md states the contract in numbered clauses, and package
// conformance checks any driver against each of them. In short: at most one
// acquisition holds a name at any instant; locks are not re-entrant (but see
// package patterns); the context of a call bounds that call and nothing after it; a
// call that fails leaves nothing behind; time is judged by the store alone and,
// for the holder's own belief, by the local monotonic clock.
//
// # Patterns
//
// Package patterns has what is often built on a lock, for any Locker: leader election,
// jobs once per period, caps, semaphores, readers and writers, several names at once,
// re-entrant locks, and several stores.
//
// # Writing a driver
//
// A driver is a few atomic operations on a store. Package driver has their contract,
// and the engine that makes a Locker of them.
package distlock

import (
	"context"
	"errors"
	"time"
)

// Locker acquires locks on one backend. It is safe for concurrent use.
type Locker interface {
	// Lock waits until it holds the name, first come, first served within this
	// Locker, and across processes where the backend can queue. It waits for as
	// long as ctx lets it: there is no hidden limit.
	//
	// ctx bounds this call only; once Lock has returned a lock, the end of ctx changes
	// nothing. When ctx ends first, the error matches ctx.Err, and also ErrHeld if
	// somebody was seen to hold the name. Other errors: ErrInvalid (a name, TTL or option
	// is not allowed), ErrClosed, or the backend's own. After any error nothing is held:
	// what was in flight is undone in the background.
	Lock(ctx context.Context, name string, opts ...Option) (Lock, error)

	// TryLock is Lock without waiting for a holder: if the name is held, or others
	// are known to wait for it, it fails at once with ErrHeld. errors.As finds a
	// *HeldError in that, with the rest of the holder's lease.
	TryLock(ctx context.Context, name string, opts ...Option) (Lock, error)

	// Close unlocks what is held, fails waiting calls with ErrClosed and waits
	// for the work in the background, but for little more than ten seconds should
	// the backend not answer. What it could not release ends with its TTL, and
	// the error says so. Close is idempotent; later calls to Lock and TryLock
	// fail with ErrClosed.
	Close() error
}

// Lock is one acquisition of a name: a handle that no other goroutine, handle or
// process shares. It is safe for concurrent use.
type Lock interface {
	// Name returns the name as it was passed to Lock or TryLock.
	Name() string

	// Token returns the fencing token of this acquisition: greater than zero,
	// greater than the token of every earlier acquisition of the name, and the
	// same for as long as the lock is held. There may be gaps.
	Token() int64

	// Deadline returns the instant when the lock ends unless it is renewed before. It
	// lies on the local monotonic clock and is counted from before the granting request
	// was sent, so it never comes after the end that the store sees. Every confirmed
	// renewal moves it on.
	Deadline() time.Time

	// Done returns a channel, closed when the lock has ended: by Unlock, or because it
	// was lost. A lost lock closes it at Deadline at the latest, and before anybody else
	// can hold the name; but a lock forgotten by the store, or taken away by Break, at
	// the next renewal.
	Done() <-chan struct{}

	// Err returns nil while the lock is held. After that it returns an error that
	// matches ErrUnlocked, or one that matches ErrLost and says why. It consults
	// the clock, so it is right even before Done could be closed, as in a process just back
	// from a stop.
	Err() error

	// Extend makes the lock last for at least ttl from now; it never shortens it. What
	// the option TTL says of too long a ttl holds here, too. It fails with ErrLost or
	// ErrUnlocked if the lock has ended, with ErrInvalid if Lock would not take ttl, or
	// with ctx's or the backend's error; then the lock may or may not have been extended,
	// and Deadline has not moved.
	Extend(ctx context.Context, ttl time.Duration) error

	// Unlock ends the lock at once, whatever it returns, and then frees the name:
	//   - nil: the lock was held, and the name is free now;
	//   - ErrLost: the lock had ended before; another holder is untouched;
	//   - anything else: not known (ctx ended, or the backend failed). The release
	//     goes on in the background until the TTL has passed.
	// It releases even if ctx is already done, without waiting for the outcome.
	// Calling it again, also after Close, is safe and reports the same outcome.
	Unlock(ctx context.Context) error
}

// The errors that calls return, wrapped with the operation and the name. Compare
// with errors.Is. An error of the backend's own is wrapped in the same way.
var (
	// ErrHeld is returned by TryLock when somebody else holds the name or is
	// queued for it, and joined to the context's error by a Lock that waited for
	// somebody in vain. It never stands for a backend that cannot be reached.
	ErrHeld = errors.New("held by another")

	// ErrLost is the cause in Lock.Err, and the result of Extend and Unlock, when
	// a lock has ended other than by Unlock: it expired before it was renewed, its
	// entry was removed from the store, or the client that it was made with was
	// closed.
	ErrLost = errors.New("lock lost")

	// ErrUnlocked is the cause in Lock.Err, and the result of Extend, after
	// Unlock or Locker.Close.
	ErrUnlocked = errors.New("unlocked")

	// ErrClosed is returned by Lock and TryLock, also by calls that were waiting, once
	// the Locker has been closed, or the client underneath. In the second case locks end
	// with it as well, at their next renewal at the latest, and Unlock returns it: their
	// entries end with their TTL.
	ErrClosed = errors.New("locker closed")

	// ErrInvalid is returned if an argument is not allowed, before the backend is asked.
	// Its text names the argument and what is allowed.
	ErrInvalid = errors.New("invalid argument")

	// ErrUnsupported is returned by functions that not every backend offers, such
	// as Inspect and Break. Nothing has been changed.
	ErrUnsupported = errors.New("not supported by this backend")
)

// Limits that hold on every backend.
const (
	// MaxName is the longest name allowed, in bytes. Any non-empty valid UTF-8 up
	// to that length is a name, and different names never meet.
	MaxName = 512

	// MaxHolder is the longest holder text allowed, in bytes.
	MaxHolder = 255

	// MaxTTL is the longest TTL allowed. A lock held for longer is renewed.
	MaxTTL = 365 * 24 * time.Hour

	// DefaultTTL is the TTL where neither the call nor Options names one. It
	// weighs how long a crashed holder blocks the others against how long a
	// holder can be out of touch with the store without losing its lock.
	DefaultTTL = 30 * time.Second
)

// Option changes one call of Lock or TryLock.
type Option func(*CallOptions)

// CallOptions are what the options of one call add up to. It is exported for
// implementations of Locker not built on package driver.
type CallOptions struct {
	TTL       time.Duration // greater than zero, MaxTTL at most
	NoRenewal bool          // a fixed term: the lock ends after TTL unless extended
	Holder    string        // Inspect shows it; MaxHolder bytes at most
}

// TTL asks for a lease of d, instead of the Locker's default. A backend may round it up.
// A renewed lock asking for more than the backend can promise gets the most there is; its
// holder may then be out of touch for less time. Lock.Deadline tells what was granted. A
// fixed term (see NoRenewal) that the backend cannot keep makes the call fail with
// ErrInvalid, and so does a d of zero or less, below the shortest that the backend can
// do, or beyond MaxTTL.
func TTL(d time.Duration) Option {
	return func(o *CallOptions) { o.TTL = d }
}

// NoRenewal asks for a fixed term: the lock is not renewed in the background and
// ends after its TTL, unless Extend moves the end.
func NoRenewal() Option {
	return func(o *CallOptions) { o.NoRenewal = true }
}

// Holder sets the text that Inspect shows for this lock, instead of the Locker's
// default: host, process id and program name.
func Holder(text string) Option {
	return func(o *CallOptions) { o.Holder = text }
}
