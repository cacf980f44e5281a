// Package distlock gives one lock interface with one contract on Redis, MySQL, Postgres,
// ZooKeeper and etcd: "only one of us does this at a time", across machines.
//
//	locker, err := backends.Open(ctx, url) // redis://, mysql://, postgres://, zk://, etcd:// or mem://; one for the process
//	if err != nil {
//		return err
//	}
//	defer locker.Close()
//
//	lock, err := locker.Lock(ctx, "orders/42") // waits; TryLock answers at once
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock(ctx)
//	return payUnlessPaid(ctx, 42) // nobody else pays it now, but the holder before may have
//
// # A lock is a lease
//
// A lock is held for a time to live (TTL), 30 s unless the option [TTL] says otherwise or
// the store promises less, as ZooKeeper does. It is renewed in the background at a third of
// that, until Unlock. A holder that crashes, stalls or is cut off loses the name when the TTL
// has passed, so that others can go on. [Lock.Done] tells a holder of it. [Do] runs a function
// under a lock and ends its context when the lock is lost.
//
// # Fencing
//
// A process may be paused, lose its lock, and write as if it still had it: no lock can stop
// that. The store that is written to can. Each grant of a name has a token, higher than
// all before. Pass [Lock.Token] along with the write, and have a lower one refused:
//
//	res, err := db.ExecContext(ctx, // changes no row if a later holder has written
//		`UPDATE orders SET state = 'paid', fence = ? WHERE id = 42 AND fence <= ?`, lock.Token(), lock.Token())
//	if err != nil {
//		return err
//	}
//	if n, err := res.RowsAffected(); err != nil || n == 0 {
//		return cmp.Or(err, errors.New("order 42 was not written: a later holder has written it, or it does not exist"))
//	}
//
// An equal token is accepted, since a holder may write more than once. A refused UPDATE is no
// error of the database, so look at the rows; open MySQL with clientFoundRows=true, since an
// UPDATE that changes nothing affects no rows there. Exec of package fence does all this. Locks
// of packages mysqllock and pglock have Guard, which needs no column. Tokens of different stores
// are not comparable: a service that moves needs [Options].TokenBase.
//
// # What is promised
//
// The contract has numbered clauses, and package conformance checks any driver against each
// of them: https://github.com/distlock-go/distlock/blob/main/docs/contract.md
// In short:
//   - at most one acquisition holds a name at any instant, as long as the store keeps what it has
//     granted;
//   - locks are not re-entrant;
//   - the context of a call bounds that call, and nothing after it;
//   - a call that fails leaves nothing behind;
//   - the store's clock alone decides when a lock expires; the holder's own deadline is on
//     its monotonic clock.
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

// Locker acquires locks on one backend. It is safe for concurrent use: a process opens one,
// and shares it.
type Locker interface {
	// Lock waits until it holds the name, first come, first served within this Locker, and across
	// processes where the backend can queue. It waits for a holder for as long as ctx lets it:
	// there is no hidden limit. It does not wait for a store that cannot be reached: until the
	// store has answered this call for the first time, the call fails at once if the store cannot
	// be reached, and after its TTL or ten seconds, whichever is shorter, if the store is silent,
	// or says that it cannot serve for now, as in a failover.
	// Once the store has said that the name is held, the call survives an outage of its TTL or a
	// minute, whichever is shorter.
	//
	// ctx bounds this call only; once Lock has returned a lock, the end of ctx changes nothing. A
	// nil ctx panics. If ctx ends first, the error matches ctx.Err and its cause. It also matches
	// ErrHeld if the store has said during the call that another holds the name. After an outage
	// it carries the backend's error as well. If the cause of ctx is an error of this package,
	// the text has it, but errors.Is does not match it. Other errors: ErrInvalid (a name, TTL or
	// option is not allowed), ErrClosed, or the backend's own. After any error nothing is held:
	// what was in flight is undone, in the background if that takes longer than 10 ms.
	Lock(ctx context.Context, name string, opts ...Option) (Lock, error)

	// TryLock is Lock without waiting for a holder: if the name is held, or others are known to
	// wait for it, it fails at once with ErrHeld. errors.As finds a *HeldError in that, with what
	// the store says of the holder. Its other errors are those of Lock. A backend that does not
	// answer holds it up for its TTL or ten seconds, whichever is shorter, unless ctx ends
	// before.
	TryLock(ctx context.Context, name string, opts ...Option) (Lock, error)

	// Close unlocks what is held, fails waiting calls with ErrClosed and waits
	// for the work in the background, but for little more than ten seconds should
	// the backend not answer. What it could not release ends with its TTL, and
	// the error says so. Close is idempotent; later calls to Lock and TryLock
	// fail with ErrClosed.
	Close() error
}

// Lock is one acquisition of a name: each call of Locker.Lock and TryLock returns a new one. It
// is safe for concurrent use.
type Lock interface {
	// Name returns the name as it was passed to Lock or TryLock.
	Name() string

	// Token returns the fencing token of this acquisition: greater than zero,
	// greater than the token of every earlier acquisition of the name, and the
	// same for as long as the lock is held. There may be gaps.
	Token() int64

	// Deadline returns the time at which the lock ends if it is not renewed. It is on the local
	// monotonic clock, and counted from before the granting request was sent, less a margin of a
	// hundredth of the TTL, from 1 ms to a second. So it never comes after the expiry in the store. Each confirmed
	// renewal moves it forward. Done may close up to half a second earlier, as timers may be
	// late.
	Deadline() time.Time

	// Done returns a channel that is closed when the lock has ended: by Unlock, or because
	// it was lost. It closes at Deadline at the latest, also while the store does not
	// answer, and before another can hold the name.
	//
	// There are exceptions to the last: the store has forgotten the lock, in a crash or a
	// failover; its clock has jumped; the entry was removed, as Break does. Then Done closes at
	// the next renewal, or at Deadline if there is none. While this process is stopped, or its
	// machine suspended, Done cannot close at all: look at Err before a write, or better
	// have it fenced, which covers all these cases.
	Done() <-chan struct{}

	// Err returns nil while the lock is held. After that it returns an error that matches
	// ErrUnlocked, or one that matches ErrLost and says why. It reads the clock. So it is right
	// even if this process was stopped, and Done has not closed yet. After the machine was
	// suspended it is late, since the monotonic clock stood still.
	Err() error

	// Extend makes the store keep the lock for at least ttl from now. If the backend cannot
	// promise that much, as on ZooKeeper, a lock that is renewed gets the most there is; Deadline
	// shows it. Extend never shortens the lock; renewal goes on with the TTL of the lock. A ttl
	// of zero or less, below the shortest that the backend can do, or beyond MaxTTL is
	// ErrInvalid. So is one that the backend cannot promise, for a lock of a fixed term (see
	// NoRenewal). If the lock has ended, the error matches ErrLost or ErrUnlocked. Without an
	// answer it fails after two thirds of the time left, 14 seconds at the most. After an error
	// of ctx or of the backend the lock may or may not have been extended: Deadline has not
	// moved.
	Extend(ctx context.Context, ttl time.Duration) error

	// Unlock ends the lock at once, whatever it returns, and then frees the name:
	//   - nil: the lock was held until now, and is released;
	//   - ErrLost: the lock had ended before; another holder is untouched;
	//   - anything else: not known. ctx has ended, the backend failed, or it did not answer for
	//     five seconds. The release goes on in the background until the TTL has passed; after
	//     ErrClosed it does not, and the entry ends with its TTL.
	// It releases even if ctx is already done, without waiting for the outcome.
	// Calling it again, also after Close, is safe: it waits for the same outcome.
	Unlock(ctx context.Context) error
}

// The errors that calls return, wrapped with the operation and the name. Compare
// with errors.Is. An error of the backend's own is wrapped in the same way.
var (
	// ErrHeld is returned by TryLock when another holds the name or is queued for it, and joined
	// to the context's error by a Lock that has waited for another in vain. For a moment the
	// other may be a cancelled call that is still being undone; on Redlock it may be several
	// calls of which none gets a majority. ErrHeld never stands for a backend that cannot be
	// reached. It comes as a [HeldError].
	ErrHeld = errors.New("held by another")

	// ErrLost is the cause in Lock.Err, and the result of Extend and Unlock, when
	// a lock has ended other than by Unlock: it expired before it was renewed, its
	// entry was removed from the store, or the client that it was made with was
	// closed.
	ErrLost = errors.New("lock lost")

	// ErrUnlocked is the cause in Lock.Err, and the result of Extend, after
	// Unlock or Locker.Close.
	ErrUnlocked = errors.New("unlocked")

	// ErrClosed is returned by Lock and TryLock, also by calls that were waiting, after the
	// Locker or the client library underneath was closed. If the client was closed, held locks
	// are lost at their next renewal at the latest, Unlock returns ErrClosed, and the entries end
	// with their TTL.
	ErrClosed = errors.New("locker closed")

	// ErrInvalid is returned if an argument is not allowed; nothing is held or changed then.
	// Its text names the argument and what is allowed.
	ErrInvalid = errors.New("invalid argument")

	// ErrUnsupported is returned by functions that not every backend offers, such
	// as Inspect and Break. Nothing has been changed.
	ErrUnsupported = errors.New("not supported by this backend")
)

// Limits that hold on every backend.
const (
	// MaxName is the longest name allowed, in bytes. Any non-empty valid UTF-8 up to that length
	// is a name, and different names are different locks.
	MaxName = 512

	// MaxHolder is the longest holder text allowed, in bytes.
	MaxHolder = 255

	// MaxTTL is the longest TTL allowed. A lock held for longer is renewed.
	MaxTTL = 365 * 24 * time.Hour

	// DefaultTTL is the TTL where neither the call nor Options names one, on a store that
	// promises as much; on ZooKeeper with default settings it is 18.9 s. A longer TTL lets a
	// holder survive longer outages, a shorter one frees the name sooner after a crash.
	DefaultTTL = 30 * time.Second
)

// Option changes one call to Lock or TryLock. A nil one changes nothing.
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
// ends after its TTL, unless Extend moves the end. Unlock and Close end it before that.
func NoRenewal() Option {
	return func(o *CallOptions) { o.NoRenewal = true }
}

// Holder sets the text that Inspect shows for this lock, instead of the Locker's
// default: host, process id and program name. Holder("") shows no text, whereas an empty
// Options.Holder is the default.
func Holder(text string) Option {
	return func(o *CallOptions) { o.Holder = text }
}
