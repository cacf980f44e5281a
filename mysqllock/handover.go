package mysqllock

import (
	"context"
	"sync"
	"time"
)

// handOvers look after releases. The server gives a released named lock to the waiter that came first. That may have died while
// its connection still stands: then nobody takes the name, and those behind it sleep until they look by themselves, up to ten
// seconds. So the one that released the name looks after a moment. It ends the connection that has the named lock of a
// name that is free. A release costs no more for that: only the last of several that follow each other is looked after, if
// anybody has waited.
type handOvers struct {
	mu      sync.Mutex
	pending map[string]*handOver
	closed  bool
}

type handOver struct {
	released time.Time
	timer    *time.Timer
}

const (
	// awakeAfter is how long the next has to take the name. It needs a millisecond. A slow one that loses its connection gets
	// the name all the same, but its own release wakes nobody: the next has the named lock then, and polls.
	awakeAfter = 250 * time.Millisecond

	// awakePoll lies between two looks, and awakeMost bounds them all: Close waits for them.
	awakePoll = 10 * time.Millisecond
	awakeMost = time.Second
)

// released is called when a name was given back, or taken away, for which somebody has waited.
func (d *store) released(name string) {
	if d.locks == nil {
		return
	}
	h := &d.locks.handOvers
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if next := h.pending[name]; next != nil {
		next.released = time.Now()
		next.timer.Reset(awakeAfter)
		return
	}
	if h.pending == nil {
		h.pending = make(map[string]*handOver)
	}
	h.pending[name] = &handOver{time.Now(), time.AfterFunc(awakeAfter, func() { d.lookAfter(name) })}
}

// lookAfter sees in the background to it that somebody takes a released name, unless nobody wants it.
func (d *store) lookAfter(name string) {
	h := &d.locks.handOvers
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.pending[name]
	if next == nil {
		return
	}
	next.timer.Stop()
	delete(h.pending, name)
	d.locks.shared.background(func() {
		for began, since := time.Now(), next.released; time.Since(began) < awakeMost && d.stuck(name); {
			if time.Since(since) < awakeAfter {
				time.Sleep(awakePoll)
			} else if d.endLock(context.Background(), name) != nil {
				return
			} else {
				since = time.Now() // the next may have died, too
			}
		}
	})
}

// stuck reports whether a connection has the named lock of a name that is free.
func (d *store) stuck(name string) (used bool) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	err := d.db.QueryRowContext(ctx, d.sql.fill("stuck-lock", d.sql.namedLock(name))).Scan(&used)
	return err == nil && used
}

// lookAfterAll looks after all that was released lately, at once. It is called by Close.
func (d *store) lookAfterAll() {
	h := &d.locks.handOvers
	h.mu.Lock()
	h.closed = true
	var names []string
	for name := range h.pending {
		names = append(names, name)
	}
	h.mu.Unlock()
	for _, name := range names {
		d.lookAfter(name)
	}
}
