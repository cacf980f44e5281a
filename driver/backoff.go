package driver

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// maxPushPoll bounds how long a waiter relies on notifications alone.
	maxPushPoll = 10 * time.Second

	// A waiter without wake-ups polls: at minPoll first, to catch a short hold, backing off
	// to maxPoll, ten requests a second.
	minPoll = 5 * time.Millisecond
	maxPoll = 100 * time.Millisecond

	// afterExpiry is added to the remaining lease, so that the look at an expired
	// entry does not come just too early and cost a second one.
	afterExpiry = 2 * time.Millisecond

	// If a lease does not end when the store has said, the pause before the next look doubles.
	minLeast = time.Millisecond
	maxLeast = 50 * time.Millisecond

	// Wake-ups that come sooner than maxPoll and in vain, more than maxSpurious times in a row, are
	// of a driver that wakes for nothing; it is slowed down to one look per maxPoll. A few are
	// not: others may have been faster, or have left the queue.
	maxSpurious = 8
)

// backoff says how long one attempt waits between two tries.
type backoff struct {
	bound    time.Duration // of the next wait
	poll     time.Duration // the last poll interval
	spurious int           // wake-ups in a row that came soon, and in vain but for the last
	slow     Retry         // between more of them
	least    time.Duration // of the next wait, after some for a lease that was about to end
}

// next sets how long to wait for a notification. Wake-ups are hints and may be
// lost, so there is always a bound: a third of the waiter's TTL, so that its place in the
// queue stays alive, or the end of the holder's lease if sooner.
func (b *backoff) next(caps Capabilities, ttl time.Duration, held Held) {
	if !caps.Push || held.NoWake {
		b.poll = min(max(b.poll*8/5, minPoll), maxPoll)
		b.bound = min(b.poll*3/4+rand.N(b.poll/2), ttl/3)
	} else {
		// Up to a tenth is taken off, so that the waiters of many processes do not all
		// look at the same moment.
		b.bound = min(ttl/3, maxPushPoll)
		b.bound -= rand.N(b.bound/10 + 1)
	}
	left := held.Remaining
	if left > 0 && left < b.bound {
		b.bound = min(b.bound, max(left+afterExpiry+rand.N(afterExpiry), b.least))
	}
	// A name can stay taken after the time that was said: its lease is a short one that is
	// renewed, or the store is late. The looks must not follow each other ever faster.
	if left <= 0 || left >= maxLeast {
		b.least = 0
		return
	}
	b.least = min(max(2*b.least, minLeast), maxLeast)
}

// pause slows down a loop of waits of a driver that wakes for nothing. took is how long the last
// wait has taken; ctx ends with the bound. The wake-ups before it were in vain: else
// there would have been no other wait.
func (b *backoff) pause(ctx context.Context, took time.Duration) {
	if took >= maxPoll {
		b.spurious, b.slow = 0, Retry{}
		return
	}
	if b.spurious++; b.spurious > maxSpurious {
		b.slow.First, b.slow.Most = time.Millisecond, maxPoll
		_ = b.slow.Pause(ctx)
	}
}
