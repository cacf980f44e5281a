package mysqllock

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// handOvers sees to it that a released name is taken by the next waiter. The server gives a released named lock to the waiter that came
// first. If that has died while its connection still stands, nobody takes the name, and those behind it sleep for up to ten seconds. So
// the one that released the name looks after a moment, and ends the connection that has the named lock if the name is still free. Only
// the last of several releases that follow each other is looked after, if anybody has waited.
type handOvers struct {
	mu      sync.Mutex
	pending map[string]*handOver
	closed  bool

	awakeAfter time.Duration // the constant, but in tests
}

type handOver struct {
	owner    string // of the row since the release, until another takes the name
	released time.Time
	within   time.Duration // in which the next is to take it
	timer    *time.Timer   // stopped until begin, if the named lock is released later
}

const (
	// awakeAfter is how long the next has to take the name, at least: eight times what the release took. It needs about as
	// long as that, a millisecond on a quick server. A slow one that loses its connection gets
	// the name all the same, but its own release wakes nobody: the next has the named lock then, and polls.
	awakeAfter = 250 * time.Millisecond
	awakeSlow  = 2 * time.Second // and at the most

	// awakePoll lies between two looks. Once the first connection has had its time, others are ended for awakeMost at the most:
	// Close waits for them.
	awakePoll = 10 * time.Millisecond
	awakeMost = time.Second
)

// released is called when a name was given back, or taken away, for which somebody has waited, by a request that was begun at a
// time. The row has an owner since.
func (d *store) released(name, owner string, began time.Time) {
	if d.locks == nil {
		return
	}
	h := &d.locks.handOvers
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	now := time.Now()
	within := max(h.awakeAfter, min(8*now.Sub(began), awakeSlow))
	next := h.pending[name]
	if next == nil {
		if h.pending == nil {
			h.pending = make(map[string]*handOver)
		}
		next = &handOver{timer: time.AfterFunc(within, func() { d.lookAfter(name) })}
		h.pending[name] = next
	}
	next.owner, next.released, next.within = owner, now, within
	next.timer.Reset(within)
	// Of many releases, that of the last named lock is sent late. Until then the connection that has it is our own, with those
	// of other names.
	if d.locks.shared.releases(name) {
		next.timer.Stop()
	}
}

// begin has the time of the next begin now: the named lock of a name has been released.
func (h *handOvers) begin(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next := h.pending[name]; next != nil {
		next.released = time.Now()
		next.timer.Reset(next.within)
	}
}

// lookAfter ends, in the background, the connections of waiters that do not take a released name.
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
		for first, since := true, next.released; ; {
			asked := time.Now()
			conn, err := d.connOf("stuck-lock", name, next.owner)
			switch {
			case err != nil || conn == 0, !first && asked.Sub(next.released) > next.within+awakeMost:
				return
			case asked.Sub(since) >= next.within:
				if d.endLockOf(conn, name) != nil {
					return
				}
				first, since = false, time.Now() // the next may have died, too
			default:
				time.Sleep(awakePoll)
			}
		}
	})
}

// lookAfterAll looks after all that was released lately, at once. It is called by Close.
func (d *store) lookAfterAll() {
	h := &d.locks.handOvers
	h.mu.Lock()
	h.closed = true
	names := slices.Collect(maps.Keys(h.pending))
	h.mu.Unlock()
	for _, name := range names {
		d.lookAfter(name)
	}
}

// expel ends the connection that keeps the named lock of a name without holding the name: its process has died, or is frozen,
// and all that wait behind it would sleep on. Until then, or where that is not allowed, claims of this process do without the
// named lock. Mostly the lease of its holder has just ended, and it is about to be released: its connection may have
// the named locks of a thousand other names, so it has a second for that.
func (d *store) expel(w *waiter, name string) {
	l := d.locks
	l.disabled.Set(name, disabledFor)
	l.shared.background(func() {
		conn, err := d.connOf("used-lock", name, "")
		if err == nil && conn > 0 && !w.comesWithin(l.expelAfter) {
			err = d.endLockOf(conn, name)
		}
		if err == nil {
			l.disabled.Remove(name)
		}
	})
}

// comesWithin reports whether the named lock comes to w in the time d. It returns sooner only if it does.
func (w *waiter) comesWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.done:
		if w.conn != nil {
			return true
		}
		<-timer.C
	case <-timer.C:
	}
	return false
}

// connOf asks which connection has the named lock of a name; 0 if there is none.
func (d *store) connOf(statement, name, owner string) (conn int64, err error) {
	lock := d.sql.namedLock(name)
	lock.owner = owner
	err = d.ask(context.Background(), lockTimeout, d.sql.fill(statement, lock), func(row *sql.Rows) error { return row.Scan(&conn) })
	return conn, err
}

// endLockOf ends a connection if that has the named lock of a name.
func (d *store) endLockOf(conn int64, name string) error {
	lock := d.sql.namedLock(name)
	lock.number = strconv.FormatInt(conn, 10)
	_, err := d.change(context.Background(), lockTimeout, "end-lock-of", lock)
	if hasNumber(err, errNoThread) {
		return nil // another has it by now
	}
	return err
}

// endLock ends whatever connection has the named lock of a name. It takes no more than named locks away: waiters of
// other names, for which it has some, wake up, too, and poll.
func (d *store) endLock(ctx context.Context, name string) {
	_, _ = d.change(ctx, lockTimeout, "end-lock", d.sql.namedLock(name))
}
