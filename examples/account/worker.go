package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
)

// job is what a worker process is told, on its standard input. Everybody on the machine
// can read its arguments, and the URL may hold a password. "go" follows it, once the
// worker is to begin, and once more if it is to stall.
type job struct {
	Worker  int
	URL     string // of the backend
	Account remote
	Name    string // of the lock; empty: take none
	TTL     backends.Duration
	Version bool // write only if nobody has written since the balance was read
	Try     bool // give up if another holds the lock
	Retry   bool // try again each retryEvery, and do not wait in between
	Outlast bool // work for twice as long as the lock was granted for
	Stall   bool // between the last look at the lock and the write, wait for a "go"
}

// pause is how long it takes to compute a new balance. It is long enough for other
// workers to come in between, if they can.
const pause = 100 * time.Millisecond

// retryEvery is what a client waits that polls.
const retryEvery = 100 * time.Millisecond

// What a worker tells.
const (
	ready    = "ready"    // and waits for a "go"
	holds    = "holds"    // the lock, with Token, until Until unless it is renewed
	reads    = "reads"    // Balance
	checked  = "checked"  // that it still holds the lock, and waits for a "go"
	wrote    = "wrote"    // Balance
	refused  = "refused"  // by the account, for a stale token; Balance
	released = "released" // the lock; Until is when it began to, or the Deadline if it is too late
	gaveUp   = "gave up"  // with Text: what its caller is told
	done     = "done"
	failed   = "failed" // with Text
)

// event is what a worker tells, in JSON, on its standard output.
type event struct {
	Worker  int
	What    string
	At      time.Time
	Token   int64
	Balance int
	Until   time.Time
	Text    string
}

// worker is one process that withdraws once.
type worker struct {
	job
	in   *json.Decoder
	out  *json.Encoder
	stop context.CancelCauseFunc
	goes chan struct{}
}

// work runs a worker process until it has withdrawn, or has failed and has said so.
func work(in io.Reader, out io.Writer) {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	w := &worker{in: json.NewDecoder(in), out: json.NewEncoder(out), stop: stop, goes: make(chan struct{})}
	err := w.in.Decode(&w.job)
	if err == nil {
		go w.listen(ctx)
		err = w.run(ctx)
	}
	if err != nil {
		w.tell(event{What: failed, Text: err.Error()})
		return
	}
	w.tell(event{What: done})
}

// listen passes on every "go". When its input ends, so has the parent, and nobody
// waits for this worker any more.
func (w *worker) listen(ctx context.Context) {
	for {
		var word string
		if err := w.in.Decode(&word); err != nil {
			w.stop(fmt.Errorf("the parent is gone: %w", err))
			return
		}
		select {
		case w.goes <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

func (w *worker) await(ctx context.Context) error {
	select {
	case <-w.goes:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *worker) tell(e event) {
	e.Worker = w.Worker
	if e.At.IsZero() {
		e.At = time.Now()
	}
	w.out.Encode(e) // if nobody listens, the input has ended, too
}

func (w *worker) run(ctx context.Context) error {
	if w.Name == "" {
		w.tell(event{What: ready})
		if err := w.await(ctx); err != nil {
			return err
		}
		if err := w.withdraw(ctx, nil); !errors.Is(err, errChanged) {
			return err
		}
		w.tell(event{What: gaveUp, Text: errChanged.Error()})
		return nil
	}
	// For all locks, rather than for one call: on ZooKeeper, all locks of a Locker
	// live by one session, and this decides how long that lasts.
	locker, err := backends.Config{URL: w.URL, TTL: w.TTL}.Open(ctx)
	if err != nil {
		return err
	}
	defer locker.Close()
	w.tell(event{What: ready})
	if err := w.await(ctx); err != nil {
		return err
	}
	for {
		err := w.withdrawLocked(ctx, locker)
		switch {
		case errors.Is(err, distlock.ErrHeld) && w.Try:
			w.tell(event{What: gaveUp, Text: "another holds the lock"})
			return nil
		case !errors.Is(err, errStale) && !errors.Is(err, distlock.ErrLost):
			return err
		}
		// The lock was lost, and nothing has been withdrawn. Once more, from the
		// start, under a new lock.
		w.Stall = false
	}
}

// withdrawLocked withdraws under the lock.
func (w *worker) withdrawLocked(ctx context.Context, locker distlock.Locker) error {
	lock, err := w.lock(ctx, locker)
	if err != nil {
		return err
	}
	w.tell(event{What: holds, Token: lock.Token(), Until: lock.Deadline()})
	err = w.withdraw(ctx, lock)

	// A worker that was stalled may find that its lock ended long ago.
	until := time.Now()
	if d := lock.Deadline(); d.Before(until) {
		until = d
	}
	w.tell(event{What: released, Token: lock.Token(), Until: until})
	if unlocked := lock.Unlock(ctx); err == nil && !errors.Is(unlocked, distlock.ErrLost) {
		err = unlocked
	}
	return err
}

// lock takes the lock as the job says: it waits, or it looks once, or again and again.
func (w *worker) lock(ctx context.Context, locker distlock.Locker) (distlock.Lock, error) {
	if !w.Try && !w.Retry {
		return locker.Lock(ctx, w.Name)
	}
	for {
		lock, err := locker.TryLock(ctx, w.Name)
		if !w.Retry || !errors.Is(err, distlock.ErrHeld) {
			return lock, err
		}
		time.Sleep(retryEvery)
	}
}

// withdraw reads the balance, computes and writes. Each of the three steps is atomic;
// all of them together are not. A nil lock means none.
func (w *worker) withdraw(ctx context.Context, lock distlock.Lock) error {
	var token int64
	computing := pause
	if lock != nil {
		token = lock.Token()
		if w.Outlast {
			computing = 2 * time.Until(lock.Deadline())
		}
	}
	balance, read, err := w.Account.read(ctx, token)
	if err != nil {
		return err
	}
	w.tell(event{What: reads, Token: token, Balance: balance})
	time.Sleep(computing)
	balance -= amount

	if w.Stall {
		// However late a worker looks at its lock, it can be stopped right after
		// that, and what it writes then comes too late. Only the account can tell.
		if err := lock.Err(); err != nil {
			return err
		}
		w.tell(event{What: checked, Token: token})
		if err := w.await(ctx); err != nil {
			return err
		}
	}
	var version *int
	if w.Version {
		version = &read
	}
	if err := w.Account.write(ctx, balance, token, version); err != nil {
		if errors.Is(err, errStale) {
			w.tell(event{What: refused, Token: token, Balance: balance})
		}
		return err
	}
	w.tell(event{What: wrote, Token: token, Balance: balance})
	return nil
}
