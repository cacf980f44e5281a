package distlock

import (
	"context"
	"sync"
)

// queues keeps the goroutines of this process in line, per name, first come,
// first served. Only the first in a line makes a claim, so a process has one
// waiter per name in the store, however many goroutines wait.
//
// A line is for candidates only. Once its first goroutine has the lock it leaves,
// and the next one makes its claim and waits in the store, behind the holder and
// in its place among the other processes.
type queues struct {
	mu    sync.Mutex
	lines map[string]*line
	spare *line // the last one that ended: most names have one place, for a moment
}

type line struct {
	front, back *place
	held        bool // the store has told the first in the line that the name is held
}

// place is one goroutine's position in a line.
type place struct {
	name       string
	line       *line
	prev, next *place
	first      chan struct{} // closed when the place has become the first; nil if it was from the start
}

// enter joins the line for name at its end.
func (q *queues) enter(name string) *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[name]
	if l == nil {
		if q.lines == nil {
			q.lines = make(map[string]*line)
		}
		if l = q.spare; l == nil {
			l = new(line)
		}
		q.spare = nil
		q.lines[name] = l
	}
	p := &place{name: name, line: l, prev: l.back}
	if p.prev == nil {
		l.front = p
	} else {
		p.prev.next = p
		p.first = make(chan struct{})
	}
	l.back = p
	return p
}

// leave gives up p and lets the next one come forward.
func (q *queues) leave(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := p.line
	if p.next == nil {
		l.back = p.prev
	} else {
		p.next.prev = p.prev
	}
	if p.prev != nil {
		p.prev.next = p.next
		return
	}
	l.front = p.next
	// What the store told the old first may no longer be so.
	l.held = false
	if l.front == nil {
		delete(q.lines, p.name)
		q.spare = l
		return
	}
	close(l.front.first)
}

// await blocks until p is the first of its line.
func (p *place) await(ctx context.Context, quit <-chan struct{}) error {
	if p.first == nil {
		return nil
	}
	select {
	case <-p.first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-quit:
		return ErrClosed
	}
}

// setHeld notes that the store has told p, the first of its line, that the name
// is held.
func (q *queues) setHeld(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.line.held = true
}

// held reports whether the line of p waits for somebody outside of it.
func (q *queues) held(p *place) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return p.line.held
}

// queued reports whether a TryLock on name would overtake somebody: a first that
// has been told to wait, or anyone behind the first. A single goroutine whose
// first request is still in flight is no queue: its backend may be down, and
// that must not be reported as ErrHeld.
func (q *queues) queued(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[name]
	return l != nil && (l.held || l.front != l.back)
}
