package distlock

import (
	"context"
	"fmt"
	"time"
)

// Status is what a store knows of a name. Times are by the store's clock.
type Status struct {
	Name       string
	Held       bool
	Holder     string        // as passed by the holder
	Token      int64         // of the holder, or the last one granted; 0 if none is known
	AcquiredAt time.Time     // zero if the store does not keep it
	Remaining  time.Duration // until the lease ends unless renewed; 0 if not known or not held
	Waiters    int           // processes in the store's queue; -1 if the store keeps none
	Wanted     bool          // another waits, or has waited during this hold; false also if not known
}

// Inspector is implemented by drivers and Lockers that can show the locks and their
// holders.
type Inspector interface {
	// Inspect returns the status of one name; a name nobody holds is no error.
	Inspect(ctx context.Context, name string) (Status, error)
	// List returns the status of the held names that start with prefix, sorted by name;
	// prefix may be empty. It is for operators: it may be slow.
	List(ctx context.Context, prefix string) ([]Status, error)
}

// Breaker is implemented by drivers and Lockers that can take a lock away.
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

// Break ends the hold on name seen with this token, as Inspect tells it: its Done closes
// within a renewal period, and later grants have higher tokens. Without a token it looks
// once, and ends the hold that it sees. It fails with ErrLost, and changes nothing, if
// nobody holds the name or the hold is another's by now; with ErrInvalid for a token of
// zero or less, or more than one; with ErrUnsupported if l is not a Breaker.
func Break(ctx context.Context, l Locker, name string, token ...int64) error {
	b, ok := l.(Breaker)
	if !ok {
		return opError("break", name, ErrUnsupported)
	}
	switch len(token) {
	case 0:
		st, err := Inspect(ctx, l, name)
		if err != nil {
			return err
		}
		if !st.Held {
			return opError("break", name, fmt.Errorf("%w: nobody holds it", ErrLost))
		}
		return b.Break(ctx, name, st.Token)
	case 1:
		return b.Break(ctx, name, token[0])
	}
	return opError("break", name, fmt.Errorf("%w: %d tokens, allowed is one, or none", ErrInvalid, len(token)))
}

// Sweep removes from the store of l what is left of names that nobody has held
// for at least idle. It fails with ErrUnsupported if l is not a Sweeper: its store needs
// no sweeping then.
func Sweep(ctx context.Context, l Locker, idle time.Duration) (int, error) {
	if s, ok := l.(Sweeper); ok {
		return s.Sweep(ctx, idle)
	}
	return 0, opError("sweep", "", ErrUnsupported)
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
