// Package driver is the contract for authors of drivers, and the engine that makes a
// Locker of a driver. Programs that only take locks need package distlock alone.
//
// A [Driver] makes claims on names in one store, and renews many at once. A [Claim] is
// three operations on one entry: Try, Wait and Release. [New] adds what is the same on
// every store, and returns a [Client], which is a [distlock.Locker]:
//
//	client.go    New and Close, and what Close waits for; options.go, errors.go
//	attempt.go   Lock and TryLock: check, queue, try, wait, win
//	names.go     one record a name: first come, first served, and how many claims are under way
//	call.go      the context of a call of the driver, and its panics; Detach, for drivers
//	backoff.go   how long until the next try; outage.go: how long a call outlives a store that fails
//	handle.go    the lock: its deadline, its loss, Extend
//	release.go   from Unlock, a loss, Close or a failed attempt, until the entry is gone
//	schedule.go  when each lock is renewed, and in which batch
//	lanes.go     how many calls run side by side; RenewEach, for drivers
//	operate.go   the requests of operators; stat.go: their numbers
//	fault.go     for drivers: what a failed request may have done, Retry, NoAnswer
//
// A guide leads through a first driver:
// https://github.com/distlock-go/distlock/blob/main/docs/writing-a-driver.md
//
// The design follows a lock through the files above:
// https://github.com/distlock-go/distlock/blob/main/docs/design.md
//
// Package conformance tests any driver.
package driver

import (
	"context"
	"time"

	"github.com/distlock-go/distlock"
)

// Driver makes claims on names in one store. [New] turns it into a Locker.
//
// The engine does everything that is the same on all stores: it checks arguments,
// queues the goroutines of one process, loops and sleeps, bounds every call in time,
// schedules renewals, keeps the holder's deadline, cleans up after calls that failed
// or came too late, and words errors. A driver adds the operations of [Claim] and
// keeps no timer, no goroutine and no retry loop of its own, other than what its
// client library needs to receive notifications.
//
// A Driver must be safe for concurrent use. It may also implement [LockWrapper],
// [Inspector], [Breaker], [Sweeper] and [io.Closer]. Close is
// called once, and last: no call begins after it, and none is running that heeds its
// context. Behind a call that does not, one Release may come, on a context that has ended.
type Driver interface {
	// Capabilities says what the driver promises. It must not send a request and
	// must always return the same value.
	Capabilities() Capabilities

	// Claim prepares a claim on r.Name. It must not send a request.
	Claim(r Request) Claim

	// Renew makes the entry of each claim in batch, 1 to 500 of them and all of this
	// driver, last for at least its TTL from now, and tells what became of each by its
	// Renewal.Answer, and in no other way. It is the only renewal: Lock.Extend is a batch of
	// one. RenewEach helps drivers that cannot renew many in one request.
	//
	//  1. It must test the ownership and move the expiry of an entry in one atomic step.
	//  2. The error must be ErrLost, and the entry unchanged, if the store says that the
	//     entry is gone, has expired or belongs to another claim.
	//  3. It must never shorten a lease. Where a write replaces the TTL of the store, it writes what may be left of it, counted
	//     from the reply to the write before, if that is more; and it takes effect only if no later one has: a renewal that
	//     had no answer may arrive behind an Extend. Grant.Token is ignored.
	//  4. Its context ends when two thirds of what the lease with the least time has left are
	//     over. A stuck server, row or key must not take the answers of the others with it:
	//     parts that may fail by themselves run side by side, and each is answered as soon as
	//     it is known; or else each is bounded to a part of ctx. Locks that failed their
	//     last renewal come in batches of their own.
	//  5. The rules of Claim hold for it as for the methods of each claim: none of them is
	//     called meanwhile.
	Renew(ctx context.Context, batch []Renewal)
}

// Request is what a claim asks for. The engine has checked every field.
type Request struct {
	Name      string        // valid UTF-8, 1 to MaxName bytes; drivers encode it injectively
	Owner     string        // 32 hexadecimal digits, random, of this acquisition alone
	TTL       time.Duration // from MinTTL to MaxTTL of Capabilities, and so in renewals
	Holder    string        // free text for operators; valid UTF-8, up to MaxHolder bytes
	NoRenewal bool          // a fixed term: renewed by Extend only
	NoWait    bool          // Wait will not be called: a refused Try must leave nothing in the queue
}

// Claim is one acquisition of one name: first a candidate, then, once Try has returned
// a grant, the holder. Its methods are never called concurrently with each other, but
// from different goroutines: Lock, TryLock, Extend and Unlock call them on their own.
//
// The rules that all methods share:
//
//  1. A method must return within 20 ms of the end of ctx. That of Wait ends with that of the
//     caller, those of the others 20 ms later, so that most requests have their answer. Each
//     also ends with the limit of the call or the Client. A call that does not return hangs for its caller as well; the
//     deadline of held locks still ends on time, other names go on, and Close gives up
//     after some seconds. Detach helps where a client library cannot be interrupted.
//  2. A method may be repeated after an error and must then finish what the failed
//     call may have done: a request may have been applied although its reply was
//     lost, and may still be applied after the method has returned.
//  3. A method must return the store's and the client's errors as they are. It
//     returns ErrHeld and ErrLost only if the store said so; an unreachable store
//     says nothing.
//  4. A method never judges expiry by a clock of this machine.
//  5. Once the client library was closed by its owner, or says anything else for good,
//     a method must return an error that matches ErrClosed as well as the library's.
//     Such an error is final: a renewal loses the lock at once, a release is not
//     repeated, Lock and TryLock fail with it.
//  6. A method must not wait for what other claims have under way, beyond what they
//     have in common by nature, like a server: a stuck name must not delay the others.
//  7. An error that is no answer says by a [Fault] what the call may have done. One
//     without a Fault is taken for Unknown.
//  8. A method should not panic. If it does, the panic is logged with its stack and becomes an
//     error of fate Unknown: a renewal has failed and is tried again until the deadline, a release is
//     repeated. A lock is believed no longer for it, and the process goes on. What runs on
//     goroutines of the driver is the driver's own, but RenewEach and Detach keep this rule.
type Claim interface {
	// Try makes the claim the holder if the name is free.
	//
	//  1. It must decide and record owner, expiry and token in one atomic step.
	//  2. It must recognise an entry that an earlier Try of this claim has left,
	//     and grant it, with a full TTL.
	//  3. If the name is held, or others come first, it must return an error that
	//     matches ErrHeld, best a [Held] with the time after which the name may be
	//     free. On a driver that queues, the claim is then in the queue,
	//     unless Request.NoWait is set.
	//  4. While the claim waits, Try is repeated at least every third of Request.TTL, and so
	//     it stays in the queue. A claim not seen for a TTL may be dropped from the queue; its
	//     next Try puts it at the end. If its session or lease has died, and another place would
	//     need another claim, Try or Wait must return an error of fate Answered: any other the claim outlives.
	Try(ctx context.Context) (Grant, error)

	// Wait blocks until Try may succeed, or ctx ends. It is called only after a
	// Try that returned ErrHeld.
	//
	//  1. A return of nil is a wake-up, and a wake-up is a hint: Try decides, and is called at
	//     once. It may come in vain, now and then; it should not come late.
	//  2. It must not lose a release that comes between that Try and this call:
	//     subscribe first, then look again, then block.
	//  3. Where nothing can wake the claim, because the driver lacks Push or Try has
	//     answered NoWake, it blocks until ctx ends: the engine bounds ctx to the
	//     poll interval. It needs no timer. If something can wake it after all, such as a
	//     subscription that was confirmed meanwhile, it may return.
	//  4. It must not hold a pooled connection while it blocks.
	//  5. A subscription that breaks is a return of nil: Try then decides, and answers NoWake until there is another. An
	//     error other than ctx's is judged by its fate, like one of Try.
	Wait(ctx context.Context) error

	// Release removes every trace of the claim: the hold, if it was won, and its
	// entry in the queue, if there is one.
	//
	//  1. It must touch nothing that belongs to another claim, in one atomic step.
	//  2. It returns nil if the claim held the name until now, or never held it;
	//     ErrLost if the claim had won and its hold was over before.
	//  3. If the client library may send a request twice by itself, the second
	//     answer must be that of the first. Better switch that off.
	//  4. It is called at least once after a Try that may have left something: one that
	//     returned a grant, ErrHeld, or an error of fate Unknown. It is not called where each
	//     Try returned an error of another fate, or ErrHeld to a claim with
	//     Request.NoWait: such a claim must have left nothing, in this process neither.
	//  5. It is repeated, with the pauses of Retry, until the TTL and ExpiryLag are over: by
	//     then the store has let go of the entry by itself. The engine then gives up, or when Close
	//     cannot wait for it, and makes a last call on a context that has ended, unless the client library was closed. That call need
	//     send nothing: what it returns does not count. A driver with entries that live by a session or
	//     lease keeps in mind from then on what it could not remove. After a stop of the process, another
	//     call may find its context ended.
	Release(ctx context.Context) error
}

// Grant is the answer to a successful Try or renewal.
type Grant struct {
	// Token is the fencing token: greater than zero, and greater than every token granted
	// for the name before.
	Token int64

	// TTL is how long the store keeps the entry, at the least, counted from Sent.
	// It covers the TTL asked for, counted from the start of the call. A grant that
	// the store made during Wait may be older by up to a quarter of that. It is not
	// believed beyond the TTL asked for plus TTLGranularity.
	TTL time.Duration

	// Sent is an instant before the request that set the expiry was sent. Zero
	// means the start of the call; a driver sets it if the entry lives by something renewed
	// earlier, like a shared lease. An instant after the start of the call is not
	// believed.
	Sent time.Time
}

// Held is an ErrHeld of Try. A driver that wakes all its claims, or none, may return a
// [distlock.HeldError] instead, which says the same without NoWake. Callers see nothing else of
// the error.
//
// Remaining covers what the driver knows of its ExpiryLag, too. For a claim in a queue it is
// the time until the lease of the holder, or of a waiter before it, ends: the queue may
// move then without a wake-up, so the claim looks again. Zero means that it is not
// known: then the end of a lease must wake the claim as a release does, or the driver must
// lack Push. Holder and Token are told if the answer to Try has said them without another
// request.
type Held struct {
	distlock.HeldError

	// NoWake says that a release may not wake this claim, because there is no subscription
	// or connection to wait on just now: the engine polls until a later Try says
	// otherwise, although the driver has Push. A wake-up that comes is taken all the same.
	NoWake bool
}

// Unwrap returns the HeldError, for errors.As.
func (h *Held) Unwrap() error { return &h.HeldError }

// Capabilities is what a driver promises. Package conformance tests that the driver
// keeps every promise, and that it lacks what it does not promise.
type Capabilities struct {
	Backend string // for error texts and reports: "redis"

	Fair bool // Try serves the claims on one name in the order of their first Try, over all processes
	Push bool // a release wakes the next waiter alone, and soon, unless [Held] says NoWake; otherwise the engine polls

	Durability Durability // what happens to locks and tokens when the store restarts or fails over

	MinTTL         time.Duration // the shortest TTL that can be asked for; 0 means 1 ms
	MaxTTL         time.Duration // the longest that can be promised; 0 means distlock.MaxTTL
	TTLGranularity time.Duration // the driver rounds TTLs up to a multiple of it; 0 means 1 ms
	ExpiryLag      time.Duration // how long after its TTL a dead holder's name may stay held, at the most

	// MaxExtend is the factor by which Extend can exceed the TTL that a lock was acquired with, where
	// locks live by sessions that were made for that TTL. 0 means that any TTL up to MaxTTL will do.
	MaxExtend float64
}

// Renewal is one entry of one batch: Claim and TTL are the question. The entry of the batch itself gets the answer, for
// RenewEach does not see that of a copy. Grant and Err are what
// Answer was given, for drivers that wrap another driver: the engine does not read them.
type Renewal struct {
	Claim Claim
	TTL   time.Duration
	Grant Grant
	Err   error

	answered func(Grant, error) // the engine's, which heeds the first call; nil below another driver
	done     bool               // Answer was called
}

// Answer gives the lock its answer, and before Renew returns: so its Unlock and Extend need not
// wait for stuck entries. The claim must not be used any more in this Renew. The first answer
// counts, others change nothing, and a renewal without one when Renew returns has failed.
func (r *Renewal) Answer(g Grant, err error) {
	r.Grant, r.Err, r.done = g, err, true
	if r.answered != nil {
		r.answered(g, err)
	}
}

// LockWrapper is implemented by drivers with locks that offer more than
// distlock.Lock does.
type LockWrapper interface {
	// WrapLock returns the Lock that the caller gets: h, or a type that embeds
	// it. It must not send a request.
	WrapLock(h *Handle, c Claim) distlock.Lock
}

var _ error = (*Held)(nil)

// Durability says what a store keeps.
type Durability int

// The durability classes, from the weakest.
const (
	// Volatile: a crash of the server loses locks; tokens still rise as long as
	// the server's clock does.
	Volatile Durability = iota + 1
	// Restart: a restarted server still has its locks and tokens; a failover to
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

// Inspector is implemented by drivers that can show the locks and their holders. It is
// another than conformance.Inspector, by which a test looks into the store without the
// driver.
type Inspector interface {
	// Inspect returns the status of one name; a name nobody holds is no error.
	Inspect(ctx context.Context, name string) (distlock.Status, error)
	// List returns the status of the held names that start with prefix, sorted by name;
	// prefix may be empty. It is for operators: it may be slow, and the engine bounds neither
	// it nor Sweep.
	List(ctx context.Context, prefix string) ([]distlock.Status, error)
}

// Breaker is implemented by drivers that can take a lock away.
type Breaker interface {
	// Break ends the hold on name that has this token, so that its holder's next
	// renewal returns ErrLost and the next token is higher. It tests the token and
	// ends the hold in one atomic step. It returns ErrLost, and changes nothing, if
	// nobody holds the name or the hold has another token. Waiters keep their places.
	Break(ctx context.Context, name string, token int64) error
}

// Sweeper is implemented by drivers of stores that keep something of a name after its
// last release, such as a row with the last token.
type Sweeper interface {
	// Sweep removes what is left of names that nobody has held for at least idle,
	// and returns how many it removed. It must never let a token fall.
	Sweep(ctx context.Context, idle time.Duration) (removed int, err error)
}
