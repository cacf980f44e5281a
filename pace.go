package distlock

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// maxPushPoll bounds how long a waiter relies on notifications alone.
	maxPushPoll = 10 * time.Second

	// A waiter that must poll starts at minPoll, to catch a short hold, and backs
	// off to maxPoll, which costs the server ten requests a second.
	minPoll = 5 * time.Millisecond
	maxPoll = 100 * time.Millisecond

	// afterExpiry is added to the remaining lease, so that the look at an expired
	// entry does not come just too early and cost a second one.
	afterExpiry = 2 * time.Millisecond

	// A wake-up within idleWake, freeWakes times in a row, is a
	// driver that wakes for nothing; it is slowed down to one look per maxPoll.
	idleWake  = time.Millisecond
	freeWakes = 4
)

// pacer says how long one attempt waits between two tries.
type pacer struct {
	bound time.Duration // of the next wait
	poll  time.Duration // the last poll interval, where the driver cannot push
	empty int           // waits in a row that returned at once
}

// next sets how long to wait for a notification. Wake-ups are hints and may be
// lost, so there is always a bound: a third of the waiter's TTL, which also keeps
// its queue place alive, or the end of the holder's lease if that is sooner.
func (p *pacer) next(caps Capabilities, ttl, remaining time.Duration) {
	if caps.Push {
		// Up to a tenth is taken off, so that the waiters of many processes
		// do not all look at the same moment.
		p.bound = min(ttl/3, maxPushPoll)
		p.bound -= rand.N(p.bound/10 + 1)
	} else {
		p.poll = min(max(p.poll*8/5, minPoll), maxPoll)
		p.bound = p.poll*3/4 + rand.N(p.poll/2)
	}
	if remaining > 0 {
		p.bound = min(p.bound, remaining+afterExpiry+rand.N(afterExpiry))
	}
}

// woke notes how long a wait has taken.
func (p *pacer) woke(after time.Duration) {
	if p.empty++; after > idleWake {
		p.empty = 0
	}
}

// rest slows down a loop whose waits return at once again and again.
func (p *pacer) rest(ctx context.Context, quit <-chan struct{}) error {
	if p.empty <= freeWakes {
		return nil
	}
	d := min(idleWake<<min(p.empty-freeWakes, 10), maxPoll)
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-quit:
		return ErrClosed
	}
}
