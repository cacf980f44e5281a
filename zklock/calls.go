package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// turn lets one series of calls to the library run at a time.
type turn chan struct{}

// await runs f and returns when it does, or when ctx ends: the library knows no
// contexts. Who is left behind keeps the turn until it is through, so that the
// next one finds everything settled. It is for what many have to wait for, such as
// the proof of a session: while one call hangs, all other renewals come and go with
// their contexts, and need not be looked at again and again.
func await[T any](ctx context.Context, t turn, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	answers := make(chan answer, 1) // buffered: nobody may be there to read
	go func() {
		value, err := f()
		<-t
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// again makes a call that may be made twice, up to three times while the
// connection breaks under it. Twice is not enough: the library fails the call that
// was in flight, and, if it reaches no server at the first attempt, once more what
// has queued up since.
func again(ctx context.Context, call func() error) error {
	var err error
	for range 3 {
		if err = call(); !broken(err) || ctx.Err() != nil {
			break
		}
	}
	return err
}

// broken reports whether err says that a connection broke, so that nothing is
// known of what was asked.
func broken(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer)
}

// unimplemented reports whether the servers do not know the request. The library
// has no value for the code -6.
func unimplemented(err error) bool {
	return err != nil && err.Error() == "unknown error: -6"
}
