package patterns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

const (
	// maxEarly is what the period of OncePer ends early by, at the most.
	maxEarly = 30 * time.Second

	// minSpare is what is left of a record for its next extension, if two thirds of what the period ends
	// early by are less; but no more than that, or the record would outlast the period.
	minSpare = 2 * time.Second
)

// OncePer runs fn once per period over all processes: not if a run of it under this name
// has begun within the period, in whatever process, or is still under way. It is for jobs
// that several schedulers start at about the same time. A plain lock only keeps their
// runs from overlapping: a scheduler that comes when a short job is done runs it again.
// It reports whether fn was called here. If it was not, and there is no error, another process
// had the name when this one asked, to run fn or to find out whether it may.
//
// The period ends a tenth early, but no more than 30 s. So what the schedulers start
// every hour runs every hour, although their ticks are never exactly an hour apart; and
// the ticks that belong together must be closer to each other than that.
//
// The record of a run is a lock with a fixed term, which is not unlocked when fn
// returns nil. So the store keeps it, by its own clock, and it survives the end of this
// process, also [distlock.Locker].Close; but not on ZooKeeper, where it ends with the session of the
// process. If fn fails or panics, the name is free at once, and the next call tries again;
// a function that wants no other try returns nil. A process that crashes in the middle of
// a run has used up the period, and [distlock.Break] gives it back. So has one that was cut off from the
// store before it was told that it may run, and ended before it could undo that: Close says so.
//
// If fn runs for longer than the period, its lock is extended: runs never overlap, and
// the name is free when fn has returned. The context of fn ends with ctx, or with
// the loss of the lock as its cause, and carries the lock, for [distlock.FromContext].
//
// Errors are those of fn, ErrLost if the lock ended before fn returned, ErrUnlocked if
// the Locker was closed before, and those of TryLock other than ErrHeld: among them ErrInvalid for a period that the store cannot
// keep: one longer than the longest fixed term, on ZooKeeper and Redlock. The
// options TTL and NoRenewal have no effect.
func OncePer(ctx context.Context, l distlock.Locker, name string, period time.Duration, fn func(context.Context) error, opts ...distlock.Option) (ran bool, err error) {
	mustHave("onceper", l)
	mustRun("onceper", fn != nil)
	if period <= 0 || period > distlock.MaxTTL {
		return false, opError("onceper", name, fmt.Errorf("%w: the period is %v, allowed is more than 0, and %v at most", distlock.ErrInvalid, period, distlock.MaxTTL))
	}
	early := min(period/10, maxEarly)
	term := period - early
	// With an owner of its own: a record is no lock that its owner may take once more, by Reentrant.
	lock, err := l.TryLock(WithOwner(ctx), name, append(slices.Clone(opts), distlock.TTL(recordTTL(term)), distlock.NoRenewal())...)
	if errors.Is(err, distlock.ErrHeld) {
		return false, nil
	}
	if errors.Is(err, distlock.ErrInvalid) {
		err = opError("onceper", name, fmt.Errorf("for a period of %v, with a lock as its record: %w", period, reason(err)))
	}
	if err != nil {
		return false, err
	}
	return true, once(ctx, lock, term, min(max(early*2/3, minSpare), early), fn)
}

// recordTTL returns the lease of a record that is kept for term. It is longer by what
// Deadline comes before the end of a lease, and the answer of a store after the request: a
// process that lives ends the record exactly, and does not take it for a lost lock.
func recordTTL(term time.Duration) time.Duration {
	return term + min(max(term/50, 20*time.Millisecond), 3*time.Second)
}

// once runs fn under a lock of a fixed term, and leaves the lock for the rest of the
// term if that went well. spare is for how long the record of a job that is still running may outlast the term.
func once(ctx context.Context, lock distlock.Lock, term, spare time.Duration, fn func(context.Context) error) (err error) {
	over := time.Now().Add(term)
	inner, cancel := context.WithCancelCause(distlock.NewContext(ctx, lock))
	kept, finish := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		// By no more than usual: if this process dies after the term, others wait for it.
		keep(kept, lock, min(recordTTL(term), distlock.DefaultTTL), over.Add(spare), spare)
		if kept.Err() == nil {
			cancel(lock.Err())
		}
	}()
	failed := true // also if fn panics
	defer func() {
		finish()
		<-watched // before Unlock, which would wait for an Extend
		cancel(nil)
		ended := lock.Err() // by Close, for example
		if left := time.Until(over); !failed && ended == nil && left > 0 {
			if k, ok := distlock.As[keeper](lock); ok {
				k.KeepOnClose()
			}
			if ended = lock.Err(); ended == nil { // Close may have been quicker
				go endAfter(left, lock)
				return
			}
		}
		// If fn has said so, by the cause of its context, it is not said again.
		lost := lock.Unlock(context.WithoutCancel(ctx))
		switch {
		case errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrUnlocked):
		case errors.Is(lost, distlock.ErrLost):
			err = both(err, lost)
		case ended != nil:
			err = both(err, ended)
		}
	}()
	err = fn(inner)
	failed = err != nil || lock.Err() != nil
	return err
}

// endAfter unlocks a record that is over. Where the process ends, or the Locker is closed, it ends with its term.
func endAfter(left time.Duration, lock distlock.Lock) {
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		_ = lock.Unlock(context.Background())
	case <-lock.Done():
	}
}

// keeper is a lock that Close can leave in the store.
type keeper interface {
	distlock.Lock
	KeepOnClose()
}

// keep extends a lock of a fixed term until ctx or the lock has ended: by ttl, as soon
// as two thirds of that are left, as if it were renewed. Before the term is over, it does not extend the
// lock beyond end, which is spare later: if fn returns before, and the process ends, the record cannot be
// shortened, and the next period would have no run.
func keep(ctx context.Context, lock distlock.Lock, ttl time.Duration, end time.Time, spare time.Duration) {
	timer := time.NewTimer(time.Until(lock.Deadline()) - ttl*2/3)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-lock.Done():
			return
		case <-timer.C:
		}
		step, short := ttl, false
		if left := time.Until(end); left > spare && left < ttl {
			step, short = left, true
		}
		asked := time.Now()
		err := lock.Extend(ctx, step)
		switch slow := time.Since(asked) > spare/4 || short && end.Sub(lock.Deadline()) > spare/4; {
		case err != nil:
			// Tried again soon, and ever sooner as the deadline comes nearer.
			timer.Reset(max(time.Until(lock.Deadline())/4, time.Millisecond))
		case short && !slow:
			timer.Reset(time.Until(end) - spare)
		default:
			if short || slow {
				end = time.Time{} // a slow store may need more than what is spare
			}
			left := time.Until(lock.Deadline())
			timer.Reset(min(max(left-ttl*2/3, ttl/10), left/2))
		}
	}
}
