package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// pause is about how long a worker rests between two locks. It bounds the record, and
// leaves a machine with two processors something for the servers.
const pause = 10 * time.Millisecond

// work locks and unlocks until stop ends.
func (r *run) work(stop context.Context, client string, l distlock.Locker, random *rand.Rand) {
	for stop.Err() == nil {
		name := fmt.Sprintf("chaos/%d", random.IntN(r.Names))
		op := oracle.OpLock
		if random.IntN(4) == 0 {
			op = oracle.OpTry
		}
		ctx, cancel := context.WithTimeout(stop, r.TTL/4+time.Duration(random.Int64N(int64(2*r.TTL))))
		hold, err := r.record.Acquire(ctx, op, client, l, name, distlock.TTL(r.TTL))
		cancel()
		r.count(err)
		if err == nil {
			r.hold(hold, time.Duration(random.Int64N(int64(r.TTL))), random)
		}
		_ = sleep(stop, time.Duration(random.Int64N(int64(2*pause))))
	}
}

// count notes the outcome of an acquisition.
func (r *run) count(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.result.Grants++
		r.latest = time.Now()
	case errors.Is(err, distlock.ErrHeld):
		r.result.Refusals++
	case errors.Is(err, context.Canceled): // the run is over
	default:
		r.result.Failures++
	}
}

// hold keeps the lock for d, or until it is lost. It writes to the resource at the
// beginning, at the end, and once more when the lock has ended. The last write is that of
// a process stopped between its look at the lock and its write.
func (r *run) hold(h *oracle.Hold, d time.Duration, random *rand.Rand) {
	write := func() {
		if !r.resource.write(h.Name(), h.Token()) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.result.Stale++
		}
	}
	write()
	if random.IntN(4) > 0 {
		d /= 20 // most holds are short
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.Done():
	}
	if h.Believes() {
		write()
	}
	// Not bounded by the end of the run: what is held is given back.
	ctx, cancel := context.WithTimeout(context.Background(), r.TTL)
	defer cancel()
	if random.IntN(8) == 0 {
		_ = h.Extend(ctx, r.TTL) // its outcome is in the record
	}
	if err := h.Unlock(ctx); errors.Is(err, distlock.ErrLost) {
		r.mu.Lock()
		r.result.Lost++
		r.mu.Unlock()
		write()
	}
}

// resource is what the locks protect: it refuses a write with a token lower than the
// highest it has seen for the name.
type resource struct {
	mu      sync.Mutex
	highest map[string]int64
}

func newResource() *resource { return &resource{highest: make(map[string]int64)} }

// write reports whether the write was accepted.
func (r *resource) write(name string, token int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.highest[name] {
		return false
	}
	r.highest[name] = token
	return true
}
