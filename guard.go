package distlock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// bid is a claim whose methods are called one at a time, as the driver contract
// promises, from whatever goroutine comes next. The turn is no mutex because nobody
// may wait for a driver without a way out, and no channel until somebody waits,
// because of a hundred thousand locks that are held, hardly one is waited for.
type bid struct {
	Claim

	mu     sync.Mutex
	taken  bool          // a method is running
	passed chan struct{} // closed when it has returned; nil if nobody waits for that
}

// take waits for the call that is running, if any, to return.
func (b *bid) take(ctx context.Context) error {
	for {
		taken, passed := b.tryTake()
		if taken {
			return nil
		}
		select {
		case <-passed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryTake reports whether no call was running. If one was, what it returns is closed
// when that has returned, or somebody else may have been faster.
func (b *bid) tryTake() (taken bool, passed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.taken {
		b.taken = true
		return true, nil
	}
	if b.passed == nil {
		b.passed = make(chan struct{})
	}
	return false, b.passed
}

// pass lets the next call begin.
func (b *bid) pass() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = false
	if b.passed != nil {
		close(b.passed)
		b.passed = nil
	}
}

// reply is what a driver call returned.
type reply[T any] struct {
	value T
	err   error
	ready chan struct{} // closed when value and err are final
}

// guarded calls f, on a context that lives for limit at the most, and returns its
// result, or returns without it when wait ends, quit is closed or limit has passed: a client
// library may ignore contexts (go-zookeeper does; go-redis by default), and a call
// may never return at all. Whoever is left behind runs in the tracked goroutine,
// and after runs when f has returned, however late that is.
//
// The driver's context keeps the values of wait, for tracing, but not its end:
// a request that is in flight when the caller goes away is better left to finish,
// because its outcome is then known and can be undone.
func guarded[T any](t *tasks, backend string, wait context.Context, quit <-chan struct{}, limit time.Duration,
	f func(*call) (T, error), after func()) (T, error) {
	c := newCall(wait, limit)
	r := &reply[T]{ready: make(chan struct{})}
	t.spawn(func(w *worker) {
		w.begin(c)
		value, err := f(c)
		r.value, r.err = value, c.hides(err, backend)
		// The answer goes out before the next call of the claim may begin, so
		// that two answers never overtake each other.
		close(r.ready)
		w.end(c)
		if after != nil {
			after()
		}
	})
	var zero T
	select {
	case <-r.ready:
		return r.value, r.err
	case <-wait.Done():
		return zero, wait.Err()
	case <-quit:
		return zero, ErrClosed
	case <-c.Done():
	}
	// c has ended because limit has passed, or because f has returned: then the
	// answer is there already.
	select {
	case <-r.ready:
		return r.value, r.err
	default:
		return zero, &noAnswerError{backend, limit}
	}
}

// call is the context of one driver call: with the values of the caller's, and an
// end of its own. The timer that ends it is the worker's, which costs less than one
// for each call.
type call struct {
	context.Context // the end
	values          context.Context
	cancel          context.CancelFunc
	limit           time.Duration
	deadline        time.Time
	worker          *worker // whose goroutine it is made in; set when it begins
}

func newCall(values context.Context, limit time.Duration) *call {
	c := &call{values: values, limit: limit, deadline: time.Now().Add(limit)}
	c.Context, c.cancel = context.WithCancel(context.Background())
	return c
}

// then returns a call that follows c in the same goroutine, with a limit of its own.
// Whoever waits for c waits for both.
func (c *call) then(limit time.Duration) *call {
	next := &call{Context: c.Context, values: c.values, cancel: c.cancel, limit: limit, deadline: time.Now().Add(limit)}
	c.worker.begin(next)
	return next
}

// Value implements context.Context. The end is asked first: package context looks
// for a parent to be cancelled by among the values, and must find that one.
func (c *call) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// Deadline implements context.Context.
func (c *call) Deadline() (time.Time, bool) { return c.deadline, true }

// over reports whether the limit has passed, be the timer late or not.
func (c *call) over() bool { return !time.Now().Before(c.deadline) }

// hides replaces the error of a context that the caller has never seen.
func (c *call) hides(err error, backend string) error {
	ours := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if !ours || errors.Is(err, ErrHeld) || errors.Is(err, ErrLost) || c.Err() == nil && !c.over() {
		return err
	}
	return &noAnswerError{backend, c.limit}
}
