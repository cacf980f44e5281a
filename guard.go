package distlock

import (
	"context"
	"sync"
	"time"
)

// bid is a claim whose methods are called one at a time, as the driver contract
// promises, from whatever goroutine comes next.
type bid struct {
	Claim
	// turn holds one element while a method is running. It is a channel and not
	// a mutex because nobody may wait for a driver without a way out.
	turn chan struct{}
}

func newBid(c Claim) bid { return bid{Claim: c, turn: make(chan struct{}, 1)} }

// take waits for the call that is running, if any, to return.
func (b *bid) take(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryTake reports whether no call was running.
func (b *bid) tryTake() bool {
	select {
	case b.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (b *bid) pass() { <-b.turn }

// reply is what a driver call returned.
type reply[T any] struct {
	value T
	err   error
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
	f func(context.Context) (T, error), after func()) (T, error) {
	ctx, cancel := t.bounded(wait, limit)
	done := make(chan reply[T], 1) // buffered: the goroutine must not outlive f for want of a reader
	t.spawn(func() {
		defer cancel()
		value, err := f(ctx)
		// The answer goes out before the next call of the claim may begin, so
		// that two answers never overtake each other.
		done <- reply[T]{value, err}
		if after != nil {
			after()
		}
	})
	var zero T
	select {
	case r := <-done:
		return r.value, hidesContext(r.err, ctx, backend, limit)
	case <-wait.Done():
		return zero, wait.Err()
	case <-quit:
		return zero, ErrClosed
	case <-ctx.Done():
	}
	// ctx has ended because limit has passed, or because f has returned and
	// cancelled it: then the answer is there already.
	select {
	case r := <-done:
		return r.value, hidesContext(r.err, ctx, backend, limit)
	default:
		return zero, &noAnswerError{backend, limit}
	}
}

// tasks counts the goroutines of a Client, so that Close can wait for them. It is
// no sync.WaitGroup because that allows neither a bounded wait nor new goroutines
// after it has been at zero.
type tasks struct {
	life    context.Context // ends when Close has lost its patience: nobody waits any more
	abandon context.CancelFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when running falls to 0; nil if nobody asked
}

func (t *tasks) init() { t.life, t.abandon = context.WithCancel(context.Background()) }

// bounded returns a context for a driver call: with the values of ctx, limit to
// live, and the end of everything as its end.
func (t *tasks) bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(&detached{t.life, ctx}, limit)
}

// detached has the end of one context and the values of another. It is what
// context.WithoutCancel and context.AfterFunc would give together, at a third of
// the allocations, on the path of every lock and unlock.
type detached struct {
	context.Context // the end
	values          context.Context
}

// Value implements context.Context. The end is asked first: package context looks
// for a parent to be cancelled by among the values, and must find that one.
func (d *detached) Value(key any) any {
	if v := d.Context.Value(key); v != nil {
		return v
	}
	return d.values.Value(key)
}

// sleep reports false if it was cut short because nobody waits any more.
func (t *tasks) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.life.Done():
		return false
	}
}

func (t *tasks) spawn(f func()) {
	t.begin()
	go func() {
		defer t.finished()
		f()
	}()
}

// begin counts the calling goroutine until it calls finished.
func (t *tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
}

func (t *tasks) finished() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns how many goroutines are left when none is, or patience is over.
func (t *tasks) wait(patience time.Duration) int {
	t.mu.Lock()
	if t.running == 0 {
		t.mu.Unlock()
		return 0
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
		return 0
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}
