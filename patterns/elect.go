package patterns

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

const (
	// minStandby and maxStandby bound the pause before an Election stands again, which is
	// a random part of it, at least half. Half of the first is longer than the pause of a
	// waiter that polls, so that another process takes over; the second keeps a function
	// that fails at once, and a store that is down, from being called all the time.
	minStandby = 400 * time.Millisecond
	maxStandby = 10 * time.Second
)

// Elect takes part in the election of a leader: it waits for the lock on name, runs fn
// for as long as the lock is held, and stands again when a term has ended. It returns
// at once; the work goes on in the background until one of these, which [Election.Wait]
// reports:
//   - fn has returned nil while it led: this process leaves the election, and Wait
//     returns nil;
//   - ctx has ended: the error matches that of ctx, and the one that fn returned;
//   - the lock can never be had: ErrInvalid or ErrClosed.
//
// fn gets the number of its term: the fencing token, so a write of an earlier leader can
// be refused by it. The context of fn ends with ctx, and when the lock is lost, with
// the loss as its cause; it carries the lock, for [distlock.FromContext]. If fn does
// not return, its process is out of the election from then on.
//
// If fn returns an error, or has lost its term, the lock is released and this process
// stands again after a pause. It is random, 0.2 to 0.4 seconds at first, and doubles up to 5 to 10;
// once a term, with the wait for it, has lasted for more than ten, it begins anew. To hand the leadership to
// another process, return an error. The errors of a store that cannot be reached are
// treated likewise; [Election.Err] tells the latest. fn is never called twice at the same
// time.
func Elect(ctx context.Context, l distlock.Locker, name string, fn func(ctx context.Context, term int64) error, opts ...distlock.Option) *Election {
	mustHave("elect", l)
	mustRun("elect", fn != nil)
	mustHaveContext("elect", ctx)
	call{opts: opts}.options() // one that panics does so here, where its caller can recover
	e := &Election{done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.final = errExited
		e.final = e.run(ctx, fn, func(lead func(context.Context) error) error { return distlock.Do(ctx, l, name, lead, opts...) })
	}()
	return e
}

// errExited is what Wait returns if fn has ended its goroutine.
var errExited = errors.New("distlock: elect: the function has called runtime.Goexit")

// Election is a process's part in an election. It is safe for concurrent use.
type Election struct {
	done  chan struct{}
	final error // of Wait; set before done is closed

	mu     sync.Mutex
	lock   distlock.Lock // of the present term; nil outside of one
	latest error         // of Err
}

// Leader returns the number of the term and true while this process leads: from the
// grant of the lock until fn has returned or the lock has ended. It consults the clock,
// so it is right even in a process that was stopped for longer than its lease and has
// just come back. It sends no request. It is no readiness probe of Kubernetes: a rolling update
// would wait for a new process that waits for the old one to resign.
func (e *Election) Leader() (term int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lock == nil || e.lock.Err() != nil {
		return 0, false
	}
	return e.lock.Token(), true
}

// Err returns why the latest term ended, or why the lock could not be had. It is nil
// from the grant of a term until its end, and after fn has returned nil while it led.
func (e *Election) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latest
}

// Wait returns when this process has left the election, fn has returned and the lock
// has been released. See [Elect] for its error.
func (e *Election) Wait() error {
	<-e.done
	return e.final
}

// run serves term after term, and returns why there is no other. Do waits for the lock and
// runs a function under it.
func (e *Election) run(ctx context.Context, fn func(context.Context, int64) error, do func(func(context.Context) error) error) error {
	pause := minStandby
	for {
		began, elected := time.Now(), false
		err := do(func(ctx context.Context) error {
			elected = true
			return e.lead(ctx, fn)
		})
		e.set(nil, err)
		if elected && err == nil || !elected && (errors.Is(err, distlock.ErrInvalid) || errors.Is(err, distlock.ErrClosed)) {
			return err
		}
		if time.Since(began) > maxStandby {
			pause = minStandby
		}
		// Random, so that processes that failed together do not stand together.
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return withContext(ctx, err)
		}
		pause = min(2*pause, maxStandby)
	}
}

// withContext returns err, joined with the error of ctx unless it matches that.
func withContext(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return err
	}
	return both(ctx.Err(), err)
}

// lead runs fn for one term. Its error is nil only if fn was the leader until it
// returned nil.
func (e *Election) lead(ctx context.Context, fn func(context.Context, int64) error) error {
	lock, _ := distlock.FromContext(ctx)
	e.set(lock, nil)
	// Before the release: a leader that has resigned must not be seen beside the next.
	defer e.set(nil, nil)
	if err := fn(ctx, lock.Token()); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (e *Election) set(lock distlock.Lock, latest error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lock, e.latest = lock, latest
}
