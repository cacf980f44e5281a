package oracle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// Recorder records what clients do to locks, as a History for Judge. Every
// acquisition goes through Acquire, and what is done with the lock through the Hold
// that it returns. A Recorder is safe for concurrent use.
type Recorder struct {
	base time.Time // zero of the clock of all stamps

	mu    sync.Mutex
	seq   int
	holds int
	hist  History
	// live has the holds that may still be believed in, by name. A new grant is
	// compared with them on the spot. That finds an overlap of microseconds, when no
	// watching goroutine would have been awake.
	live map[string]map[*Hold]bool
}

// NewRecorder returns a Recorder for a History that starts as head. In virtual time
// it must be made inside of the bubble that uses it.
func NewRecorder(head History) *Recorder {
	return &Recorder{base: time.Now(), hist: head, live: make(map[string]map[*Hold]bool)}
}

// Now is the time on the clock of the stamps.
func (r *Recorder) Now() time.Duration { return time.Since(r.base) }

// Stamp takes the time. Clock and counter are read under one lock, so that the order
// of the counter is a possible order of the stamps.
func (r *Recorder) Stamp() Stamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	return Stamp{time.Since(r.base), r.seq}
}

// Add records an event other than an operation of a Hold.
func (r *Recorder) Add(e Event) {
	r.mu.Lock()
	r.hist.Events = append(r.hist.Events, e)
	r.mu.Unlock()
}

// History returns a copy of what was recorded so far.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hist
	h.Events = append([]Event(nil), r.hist.Events...)
	return &h
}

// Hold is a lock that records its operations. Its methods must not be called
// concurrently with each other, other than by the Recorder.
type Hold struct {
	distlock.Lock
	r      *Recorder
	name   string // as it was asked for, whatever the lock says
	client string
	id     int
}

// ErrNilLock says that a call for a lock returned nil twice.
var ErrNilLock = errors.New("neither a lock nor an error was returned")

// ErrLockToo says that a call for a lock returned one with an error. Even a nil pointer in
// it is one for a caller that compares it with nil.
var ErrLockToo = errors.New("a Lock that is not nil was returned beside the error")

// Acquire calls Lock (OpLock) or TryLock (OpTry) of l as client and records it. The
// options must name the TTL, or the model cannot tell how long the lease must last.
func (r *Recorder) Acquire(ctx context.Context, op Op, client string, l distlock.Locker, name string, opts ...distlock.Option) (*Hold, error) {
	var asked distlock.CallOptions
	for _, opt := range opts {
		opt(&asked)
	}
	r.mu.Lock()
	r.holds++
	id := r.holds
	r.mu.Unlock()
	e := Event{Op: op, Client: client, Name: name, Hold: id, TTL: asked.TTL, Fixed: asked.NoRenewal, Call: r.Stamp()}
	call := l.Lock
	if op == OpTry {
		call = l.TryLock
	}
	lock, err := call(ctx, name, opts...)
	switch {
	case lock == nil && err == nil:
		err = ErrNilLock
	case lock != nil && err != nil:
		err = fmt.Errorf("%w: %w", ErrLockToo, err)
	}
	e.Return = r.Stamp()
	e.Outcome = classify(op, err)
	if err != nil {
		e.Err = err.Error()
		r.Add(e)
		return nil, err
	}
	e.Token, e.Deadline = lock.Token(), lock.Deadline().Sub(r.base)
	r.Add(e)
	h := &Hold{lock, r, name, client, id}
	for _, rival := range r.enter(h) {
		rival.Believes()
	}
	h.Believes() // last, so that it is seen to hold while the rivals did
	return h, nil
}

// enter makes h known and returns the others on its name. Of two grants at one
// time, at least the later to enter sees the other.
func (r *Recorder) enter(h *Hold) []*Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rivals []*Hold
	for rival := range r.live[h.name] {
		rivals = append(rivals, rival)
	}
	if r.live[h.name] == nil {
		r.live[h.name] = make(map[*Hold]bool)
	}
	r.live[h.name][h] = true
	return rivals
}

func (r *Recorder) leave(h *Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live[h.name], h)
}

// Ends is the lock's Deadline on the clock of the stamps.
func (h *Hold) Ends() time.Duration { return h.Deadline().Sub(h.r.base) }

// Believes records, and returns, whether the lock is held as far as its holder knows.
func (h *Hold) Believes() bool {
	e := Event{Op: OpBelief, Client: h.client, Name: h.name, Hold: h.id, Call: h.r.Stamp()}
	err := h.Err()
	e.Return = h.r.Stamp()
	e.Outcome = classify(OpBelief, err)
	e.Deadline = h.Ends()
	if err != nil {
		e.Err = err.Error()
		h.r.leave(h)
	}
	h.r.Add(e)
	return err == nil
}

// Extend calls Extend and records it.
func (h *Hold) Extend(ctx context.Context, ttl time.Duration) error {
	h.Believes()
	e := Event{Op: OpExtend, Client: h.client, Name: h.name, Hold: h.id, TTL: ttl, Call: h.r.Stamp()}
	err := h.Lock.Extend(ctx, ttl)
	e.Return = h.r.Stamp()
	e.Deadline = h.Ends()
	return h.finish(e, err)
}

// Unlock calls Unlock and records it.
func (h *Hold) Unlock(ctx context.Context) error {
	h.Believes()
	h.r.leave(h)
	e := Event{Op: OpUnlock, Client: h.client, Name: h.name, Hold: h.id, Call: h.r.Stamp()}
	e.Deadline = h.Ends()
	err := h.Lock.Unlock(ctx)
	e.Return = h.r.Stamp()
	return h.finish(e, err)
}

func (h *Hold) finish(e Event, err error) error {
	e.Outcome, e.Token = classify(e.Op, err), h.Token()
	if err != nil {
		e.Err = err.Error()
	}
	h.r.Add(e)
	return err
}
