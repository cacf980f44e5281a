package distlock

import (
	"context"
	"errors"
	"time"
)

// Driver makes claims on names in one store. [New] turns it into a Locker.
//
// The portable half does everything that is the same on all stores: it checks
// arguments, queues the goroutines of one process, loops and sleeps, bounds every
// call in time, schedules renewals, keeps the holder's deadline, cleans up after
// calls that failed or came too late, and words errors. A driver adds four atomic
// operations and keeps no timer, no goroutine and no retry loop of its own, other
// than what its client library needs to receive notifications.
//
// A Driver must be safe for concurrent use. It may also implement [BatchRenewer],
// [Inspector], [Breaker], [Sweeper], [LockWrapper] and io.Closer; Close is called
// once, and last: no call begins after it, and none is running any more but those
// that have not returned although their context ended seconds ago.
type Driver interface {
	// Capabilities says what the driver promises. It must not send a request and
	// must always return the same value.
	Capabilities() Capabilities

	// Claim prepares a bid for r.Name. It must not send a request.
	Claim(r Request) Claim
}

// Request is what a claim asks for. The portable half has checked every field.
type Request struct {
	Name      string        // valid UTF-8, 1 to MaxName bytes; drivers encode it injectively
	Owner     string        // 32 hexadecimal digits, random, of this acquisition alone
	TTL       time.Duration // within the MinTTL and MaxTTL of Capabilities
	Holder    string        // free text for whoever inspects; valid UTF-8, up to MaxHolder bytes
	NoRenewal bool          // a fixed term: Renew is called for Extend only
	NoWait    bool          // Wait will not be called: a Try that fails must leave no queue place
}

// Claim is one bid for one name: first a candidate, then, once Try has returned a
// grant, the holder. Its methods are never called concurrently with each other,
// but come from different goroutines.
//
// The rules that all methods share:
//
//  1. A method must be prompt to return when ctx ends. (The portable half survives
//     one that is not, or that never returns, but then cannot clean up.)
//  2. A method may be repeated after an error and must then finish what the failed
//     call may have done: a request may have been applied although its reply was
//     lost, and may still be applied after the method has returned.
//  3. A method must return the store's and the client's errors as they are. It
//     returns ErrHeld and ErrLost only if the store said so; an unreachable store
//     says nothing.
//  4. A method never judges expiry by a clock of this machine.
type Claim interface {
	// Try makes the claim the holder if the name is free.
	//
	//  1. It must decide and record owner, expiry and token in one atomic step.
	//  2. It must recognise an entry that an earlier Try of this claim has left,
	//     and grant it, with a full TTL.
	//  3. If the name is held, or others come first, it must return an error that
	//     matches ErrHeld, best a HeldError with the time after which the name
	//     may be free. On a driver that queues, the claim is then in the queue,
	//     unless Request.NoWait is set.
	//  4. While the claim waits, Try is repeated at least every third of
	//     Request.TTL, which keeps its queue place alive. A place that was not
	//     refreshed for a TTL may be dropped. If it is gone, because its session
	//     or lease has died, Try or Wait must return an error other than ErrHeld.
	Try(ctx context.Context) (Grant, error)

	// Wait blocks until Try may succeed, or ctx ends. It is called only after a
	// Try that returned ErrHeld.
	//
	//  1. Its return is a hint: Try decides. It may return early; it should not
	//     return late.
	//  2. It must not lose a release that comes between that Try and this call:
	//     subscribe first, then look again, then block.
	//  3. A driver that cannot be notified just blocks until ctx ends: the
	//     portable half bounds ctx to the poll interval.
	//  4. It must not hold a pooled connection while it blocks.
	//  5. An error other than ctx's makes Lock fail.
	Wait(ctx context.Context) error

	// Renew makes the entry last for at least ttl from now.
	//
	//  1. It must test the ownership and move the expiry in one atomic step.
	//  2. It must return ErrLost, and change nothing, if the store says that the
	//     entry is gone, has expired or belongs to another claim.
	//  3. It must never shorten the lease. Grant.Token is ignored.
	Renew(ctx context.Context, ttl time.Duration) (Grant, error)

	// Release removes every trace of the claim: the hold, if it was won, the
	// queue place, if there is one.
	//
	//  1. It must touch nothing that belongs to another claim, in one atomic step.
	//  2. It returns nil if the claim held the name until now, or never held it;
	//     ErrLost if the claim had won and its hold was over before.
	//  3. If the client library may send a request twice by itself, the second
	//     answer must be that of the first.
	//  4. It is called at least once after a Try, whatever that returned, unless
	//     it returned ErrHeld to a claim with Request.NoWait.
	Release(ctx context.Context) error
}

// Grant is the answer to a successful Try or Renew.
type Grant struct {
	// Token is the fencing token: greater than zero, and greater than all that
	// were granted for the name before.
	Token int64

	// TTL is how long the store keeps the entry, at the least, counted from Sent.
	// It covers the TTL asked for, counted from the start of the call. A grant that
	// the store made during Wait may be older by up to a quarter of that.
	TTL time.Duration

	// Sent is an instant before the request that set the expiry was sent. Zero
	// means the start of the call; a driver sets it if the entry lives by
	// something that was renewed earlier, like a shared lease.
	Sent time.Time
}

// HeldError is an ErrHeld with what the store says of the holder's lease.
type HeldError struct {
	// Remaining is how long the lease still runs if it is not renewed, by the
	// store's clock. Zero means that it is not known.
	Remaining time.Duration
}

// Error returns the text of ErrHeld.
func (e *HeldError) Error() string { return ErrHeld.Error() }

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Capabilities is what a driver promises. Package conformance tests that it keeps
// every promise, and that it does not have what it says it lacks.
type Capabilities struct {
	Backend string // for error texts and reports: "redis"

	Fair bool // Try serves the claims on one name in the order of their first Try, over all processes
	Push bool // Wait returns soon after a release; otherwise the portable half polls

	Durability Durability // what happens to locks and tokens when the store restarts or fails over

	MinTTL         time.Duration // the shortest TTL that can be asked for; 0 means 1 ms
	MaxTTL         time.Duration // the longest; 0 means distlock.MaxTTL
	TTLGranularity time.Duration // TTLs are rounded up to a multiple of it; 0 means 1 ms
	ExpiryLag      time.Duration // how long after its TTL a dead holder's name may stay held, at the most
}

// Durability says what a store keeps.
type Durability int

// The durability classes, from the weakest.
const (
	// Volatile: a crash of the server loses locks; tokens still rise as long as
	// the server's clock does.
	Volatile Durability = iota + 1
	// Restart: a restarted server still has its locks and tokens; a fail-over to
	// a replica may lose the latest.
	Restart
	// Quorum: locks and tokens survive the loss of any minority of servers.
	Quorum
)

// String returns the name of the class in lower case.
func (d Durability) String() string {
	switch d {
	case Volatile:
		return "volatile"
	case Restart:
		return "restart"
	case Quorum:
		return "quorum"
	}
	return "undeclared"
}

// Renewal is one entry of a batch: Claim and TTL are the question, Grant and Err
// the answer, with the meaning they have in Claim.Renew.
type Renewal struct {
	Claim Claim
	TTL   time.Duration
	Grant Grant
	Err   error
}

// BatchRenewer is implemented by drivers that can renew many claims in one
// request. Without it, each claim is renewed by a request of its own.
type BatchRenewer interface {
	// RenewBatch renews the claims, all of this driver and 1 to 500 of them, by
	// the rules of Claim.Renew, and fills in Grant and Err of every entry. No
	// other method of those claims is called meanwhile.
	RenewBatch(ctx context.Context, batch []Renewal)
}

// LockWrapper is implemented by drivers whose locks offer more than Lock does.
type LockWrapper interface {
	// WrapLock returns the Lock that the caller gets: h, or a type that embeds
	// it. It must not send a request.
	WrapLock(h *Handle, c Claim) Lock
}

// Status is what a store knows of a name. Times are by the store's clock.
type Status struct {
	Name       string
	Held       bool
	Holder     string        // as passed by the holder
	Token      int64         // of the holder, or the last one granted; 0 if none is known
	AcquiredAt time.Time     // zero if the store does not keep it
	Remaining  time.Duration // until the lease ends unless renewed; 0 if not known or not held
	Waiters    int           // processes in the store's queue; -1 if the store keeps none
}

// Inspector is implemented by drivers and Lockers that can show who holds what.
type Inspector interface {
	// Inspect returns the status of one name; a name nobody holds is no error.
	Inspect(ctx context.Context, name string) (Status, error)
	// List returns the status of the held names that start with prefix, which may
	// be empty, sorted by name. It is for operators: it may be slow.
	List(ctx context.Context, prefix string) ([]Status, error)
}

// Breaker is implemented by drivers and Lockers that can take a lock away.
type Breaker interface {
	// Break ends the hold on a name, whoever has it, so that its holder's next
	// renewal returns ErrLost and the next token is higher. It returns ErrLost if
	// nobody held it. Waiters keep their places.
	Break(ctx context.Context, name string) error
}

// Sweeper is implemented by drivers whose store keeps something of a name after
// its last release, such as a row with the last token.
type Sweeper interface {
	// Sweep removes what is left of names that nobody has held for at least idle,
	// and returns how many it removed. It must never let a token fall.
	Sweep(ctx context.Context, idle time.Duration) (removed int, err error)
}

// Inspect returns what the backend of l knows of name. It fails with
// ErrUnsupported if l is not an Inspector.
func Inspect(ctx context.Context, l Locker, name string) (Status, error) {
	if i, ok := l.(Inspector); ok {
		return i.Inspect(ctx, name)
	}
	return Status{}, opError("inspect", name, ErrUnsupported)
}

// List returns the status of the held names of l that start with prefix, sorted
// by name. It fails with ErrUnsupported if l is not an Inspector.
func List(ctx context.Context, l Locker, prefix string) ([]Status, error) {
	if i, ok := l.(Inspector); ok {
		return i.List(ctx, prefix)
	}
	return nil, opError("list", prefix, ErrUnsupported)
}

// Break ends the hold on name, whoever has it: its Done closes within a renewal
// period, and later grants have higher tokens. It fails with ErrLost if nobody
// held it, with ErrUnsupported if l is not a Breaker.
func Break(ctx context.Context, l Locker, name string) error {
	if b, ok := l.(Breaker); ok {
		return b.Break(ctx, name)
	}
	return opError("break", name, ErrUnsupported)
}

// Sweep removes from the store of l what is left of names that nobody has held
// for at least idle. It fails with ErrUnsupported if l is not a Sweeper, that is,
// if its store needs no sweeping.
func Sweep(ctx context.Context, l Locker, idle time.Duration) (int, error) {
	if s, ok := l.(Sweeper); ok {
		return s.Sweep(ctx, idle)
	}
	return 0, opError("sweep", "", ErrUnsupported)
}

var _ error = (*HeldError)(nil)

// heldFor returns what err says of the holder's lease.
func heldFor(err error) time.Duration {
	var h *HeldError
	if errors.As(err, &h) {
		return h.Remaining
	}
	return 0
}
