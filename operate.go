package distlock

import (
	"context"
	"fmt"
	"time"
)

// Status is what a store knows of a name. Times are by the store's clock. ZooKeeper tells neither
// AcquiredAt nor Remaining, etcd no AcquiredAt. MySQL, Postgres and Redlock do not count Waiters.
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

// Operator is implemented by Lockers that show the locks of their store and can take them
// away: those of package driver are. What a store cannot do is ErrUnsupported. Inspect and Break
// fail after ten seconds without an answer; List and Sweep take as long as ctx allows.
type Operator interface {
	// Inspect returns the status of one name; a name nobody holds is no error.
	Inspect(ctx context.Context, name string) (Status, error)
	// List returns the status of the held names that start with prefix, sorted by name;
	// prefix may be empty.
	List(ctx context.Context, prefix string) ([]Status, error)
	// Break ends the hold on name that has this token, which is greater than zero.
	Break(ctx context.Context, name string, token int64) error
	// Sweep removes what is left of names that nobody has held for at least idle, and
	// returns how many it removed, also beside an error.
	Sweep(ctx context.Context, idle time.Duration) (removed int, err error)
}

// operator returns the first Operator in the chain that begins with l and goes on with what
// Unwrap returns. So operators see through wrappers. The error is the reason for none.
func operator(l Locker) (Operator, error) {
	if l == nil {
		return nil, fmt.Errorf("%w: the Locker is nil", ErrInvalid)
	}
	for {
		if o, ok := l.(Operator); ok {
			return o, nil
		}
		u, ok := l.(interface{ Unwrap() Locker })
		if !ok {
			return nil, ErrUnsupported
		}
		l = u.Unwrap()
	}
}

// Inspect returns what the store of l knows of name. It sees through wrappers with a method
// Unwrap() Locker, and so do List, Break and Sweep; names are those of the first
// [Operator] inside. A patterns.Semaphore or ReadWrite locks names that it derives, NAME/0,
// NAME/1 and so on: List shows those, and NAME itself is free. Inspect fails with
// ErrUnsupported if there is no Operator, or if its store cannot be looked at.
func Inspect(ctx context.Context, l Locker, name string) (Status, error) {
	o, err := operator(l)
	if err != nil {
		return Status{}, opError("inspect", name, err)
	}
	return o.Inspect(ctx, name)
}

// List returns the status of the held names of l that start with prefix, sorted by name. It
// is for people: on a large store it may be slow. It fails with ErrUnsupported as Inspect
// does.
func List(ctx context.Context, l Locker, prefix string) ([]Status, error) {
	o, err := operator(l)
	if err != nil {
		return nil, opError("list", prefix, err)
	}
	return o.List(ctx, prefix)
}

// Break ends the hold on name that has this token, as Inspect tells it, and later grants have
// higher tokens. The holder is told within a renewal period; without renewal (see NoRenewal) at
// its Deadline, or by its next Extend or Unlock. If token is 0, Break asks for the present holder
// once, and ends that hold. It fails with ErrLost, and changes nothing, if nobody holds the name
// or the hold is another's by now; with ErrInvalid for any other token that is not above
// Options.TokenBase; with ErrUnsupported as Inspect does.
func Break(ctx context.Context, l Locker, name string, token int64) error {
	o, err := operator(l)
	if err != nil {
		return opError("break", name, err)
	}
	if token == 0 {
		st, err := o.Inspect(ctx, name)
		if e, ok := err.(*Error); ok {
			err = e.Err
		}
		if err == nil && !st.Held {
			err = fmt.Errorf("%w: nobody holds it", ErrLost)
		}
		if err != nil {
			return opError("break", name, err)
		}
		token = st.Token
	}
	return o.Break(ctx, name, token)
}

// Sweep removes from the store of l what is left of names that nobody has held for at least idle,
// and returns how many it removed, also if it then fails. It fails with ErrInvalid unless idle is above zero, and with
// ErrUnsupported on a store that keeps nothing of a free name, and as Inspect does.
func Sweep(ctx context.Context, l Locker, idle time.Duration) (int, error) {
	o, err := operator(l)
	if err != nil {
		return 0, opError("sweep", "", err)
	}
	return o.Sweep(ctx, idle)
}
