package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// journal records a History. Every acquisition goes through acquire, and what is
// done with the lock through the hold that it returns.
type journal struct {
	mu    sync.Mutex
	base  time.Time
	seq   int
	holds int
	hist  History
	// live has the holds that may still be believed in, by name. A new grant is
	// compared with them on the spot, which finds an overlap of microseconds that
	// no watching goroutine would have been awake for.
	live map[string]map[*hold]bool
}

func newJournal(head History) *journal {
	return &journal{base: time.Now(), hist: head, live: make(map[string]map[*hold]bool)}
}

// stamp takes the time. Clock and counter are read under one lock, so that the
// order of the counter is an order in which the stamps can have been taken.
func (j *journal) stamp() Stamp {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	return Stamp{time.Since(j.base), j.seq}
}

func (j *journal) add(e Event) {
	j.mu.Lock()
	j.hist.Events = append(j.hist.Events, e)
	j.mu.Unlock()
}

// history returns a copy of what was recorded so far.
func (j *journal) history() *History {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.hist
	h.Events = append([]Event(nil), j.hist.Events...)
	return &h
}

// hold is a lock whose operations are recorded. Its methods must not be called
// concurrently with each other, other than by the journal.
type hold struct {
	distlock.Lock
	j      *journal
	client string
	id     int
}

var errNilLock = errors.New("neither a lock nor an error was returned")

// acquire calls Lock or TryLock as client and records it. The options must name
// the TTL, or the model cannot tell how long the lease must last.
func (j *journal) acquire(ctx context.Context, op Op, client string, l distlock.Locker, name string, opts ...distlock.Option) (*hold, error) {
	var asked distlock.CallOptions
	for _, opt := range opts {
		opt(&asked)
	}
	j.mu.Lock()
	j.holds++
	id := j.holds
	j.mu.Unlock()
	e := Event{Op: op, Client: client, Name: name, Hold: id, TTL: asked.TTL, Fixed: asked.NoRenewal, Call: j.stamp()}
	call := l.Lock
	if op == OpTry {
		call = l.TryLock
	}
	lock, err := call(ctx, name, opts...)
	if lock == nil && err == nil {
		err = errNilLock
	}
	e.Return = j.stamp()
	e.Outcome = classify(op, err)
	if err != nil {
		e.Err = err.Error()
		j.add(e)
		return nil, err
	}
	e.Token, e.Deadline = lock.Token(), lock.Deadline().Sub(j.base)
	j.add(e)
	h := &hold{lock, j, client, id}
	for _, rival := range j.enter(h) {
		rival.believe()
	}
	h.believe() // last, so that it is seen to hold while the rivals did
	return h, nil
}

// enter makes h known and returns the others on its name. Of two grants at one
// time, at least the later to enter sees the other.
func (j *journal) enter(h *hold) []*hold {
	j.mu.Lock()
	defer j.mu.Unlock()
	name := h.Name()
	var rivals []*hold
	for r := range j.live[name] {
		rivals = append(rivals, r)
	}
	if j.live[name] == nil {
		j.live[name] = make(map[*hold]bool)
	}
	j.live[name][h] = true
	return rivals
}

func (j *journal) leave(h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.live[h.Name()], h)
}

// believe records whether the lock is held as far as its holder knows.
func (h *hold) believe() bool {
	e := Event{Op: OpBelief, Client: h.client, Name: h.Name(), Hold: h.id, Call: h.j.stamp()}
	err := h.Err()
	e.Return = h.j.stamp()
	e.Outcome = classify(OpBelief, err)
	e.Deadline = h.Deadline().Sub(h.j.base)
	if err != nil {
		e.Err = err.Error()
		h.j.leave(h)
	}
	h.j.add(e)
	return err == nil
}

// Extend calls Extend and records it.
func (h *hold) Extend(ctx context.Context, ttl time.Duration) error {
	h.believe()
	e := Event{Op: OpExtend, Client: h.client, Name: h.Name(), Hold: h.id, TTL: ttl, Call: h.j.stamp()}
	err := h.Lock.Extend(ctx, ttl)
	e.Return = h.j.stamp()
	e.Deadline = h.Deadline().Sub(h.j.base)
	return h.finish(e, err)
}

// Unlock calls Unlock and records it.
func (h *hold) Unlock(ctx context.Context) error {
	h.believe()
	h.j.leave(h)
	e := Event{Op: OpUnlock, Client: h.client, Name: h.Name(), Hold: h.id, Call: h.j.stamp()}
	e.Deadline = h.Deadline().Sub(h.j.base)
	err := h.Lock.Unlock(ctx)
	e.Return = h.j.stamp()
	return h.finish(e, err)
}

func (h *hold) finish(e Event, err error) error {
	e.Outcome, e.Token = classify(e.Op, err), h.Token()
	if err != nil {
		e.Err = err.Error()
	}
	h.j.add(e)
	return err
}
