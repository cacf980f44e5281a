package main

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
)

// kept is what came of keeping a name after its command.
type kept struct {
	left        bool  // the entry stays in the store: the Locker must not be closed
	lost        error // the lock was lost, while the command ran or since
	interrupted bool  // a signal has ended the wait
}

const (
	// keepPatience is how long the request to keep the name may take.
	keepPatience = 10 * time.Second

	// keepError is the part of a time that a store may be wrong by, if it is to keep a
	// name without this process.
	keepError = 20

	// tellOfStaying is how long the process may stay without a word after the command has ended.
	tellOfStaying = 2 * time.Second

	// maxEarly is what the period of --once-per ends early by, at the most.
	maxEarly = 30 * time.Second
)

// term returns how long the name is kept, from the start of the command. The ticks of
// cron(8) are as long apart as the period, but for what starting and connecting take.
func (o *runOptions) term() time.Duration {
	return max(o.minHold, o.oncePer-min(o.oncePer/10, maxEarly))
}

// keep has the name stay held after the command, where --min-hold or --once-per ask for
// it. Either the store alone does it, by its clock, or this process stays.
func (o *runOptions) keep(ctx context.Context, b *backend, lock distlock.Lock, start time.Time) kept {
	end := start.Add(o.term())
	if !time.Now().Before(end) {
		return kept{}
	}
	if after := o.leave(ctx, b, lock, end); after.left || after.lost != nil {
		return after
	}
	if left := time.Until(end); left > tellOfStaying && (o.verbose || atTerminal()) { // cron would send a mail each time
		why := "keep the name: on this store it would be free when the process ends"
		if b.outlived(left) && lock.Deadline().After(end) {
			why = "free the name then, before its lease ends; with a shorter --ttl it need not stay"
		}
		say("stays until %s to %s", end.Format(time.TimeOnly), why)
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-timer.C:
		return kept{}
	case <-lock.Done():
		return kept{lost: lock.Err()}
	case <-ctx.Done():
		return kept{left: true, interrupted: true} // the rest of the lease is better than nothing
	}
}

// outlived reports whether the store can hold a name for so long without this process, and not much longer.
func (b *backend) outlived(left time.Duration) bool {
	c, ok := b.locker.(capable)
	return ok && c.Capabilities().ExpiryLag <= left/keepError
}

// leave has the store hold the name until end, if it can. It does not for less long
// than the lease runs anyway. Nor does it where something else ends what a process
// leaves behind, like a session.
func (o *runOptions) leave(ctx context.Context, b *backend, lock distlock.Lock, end time.Time) kept {
	left := time.Until(end)
	if !b.outlived(left) || lock.Deadline().After(end) {
		return kept{}
	}
	ctx, cancel := context.WithTimeout(ctx, keepPatience)
	defer cancel()
	err := lock.Extend(ctx, left)
	switch {
	case errors.Is(err, distlock.ErrLost):
		return kept{lost: err}
	case err != nil:
		o.tell("the store does not keep the name by itself, so distlock stays: %v", err)
		return kept{}
	}
	// It may have granted less than was asked for.
	return kept{left: !lock.Deadline().Before(end.Add(-left / keepError))}
}
