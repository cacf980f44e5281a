package distlock

import (
	"slices"
	"sync"
	"time"
)

const (
	// maxSpare is how many goroutines without work a Client keeps, and
	// sparePeriod for how long at the least; twice as long at the most.
	maxSpare    = 64
	sparePeriod = time.Second
)

// worker is a goroutine that is kept for the next call when its own has returned.
// A new one would have to grow its stack again, call by call, deep inside of the
// client library, which takes longer than all else that the portable half does. One
// whose call hangs is no worker for anybody else: others are started meanwhile.
type worker struct {
	tasks *tasks
	next  chan func(*worker) // one element, so that nobody waits for a worker; closed if there is no next
	timer *time.Timer        // ends the call; of its goroutine alone

	mu   sync.Mutex
	call *call // that is running; nil if none is
}

// begin makes c the running call, so that it ends in time.
func (w *worker) begin(c *call) {
	c.worker = w
	w.mu.Lock()
	w.call = c
	w.mu.Unlock()
	left := time.Until(c.deadline)
	if w.timer == nil {
		w.timer = time.AfterFunc(left, w.expire)
	} else {
		w.timer.Reset(left)
	}
	if w.tasks.life.Err() != nil {
		c.cancel()
	}
}

// end ends c, which has returned.
func (w *worker) end(c *call) {
	w.timer.Stop()
	w.mu.Lock()
	w.call = nil
	w.mu.Unlock()
	c.cancel()
}

// expire ends the running call if its limit has passed. The timer may have fired
// for one before it.
func (w *worker) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call != nil && w.call.over() {
		w.call.cancel()
	}
}

// abandon ends the running call.
func (w *worker) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call != nil {
		w.call.cancel()
	}
}

// spawn runs f in a goroutine of its own.
func (t *tasks) spawn(f func(*worker)) {
	t.mu.Lock()
	t.running++
	var w *worker
	if n := len(t.spare); n > 0 {
		w, t.spare = t.spare[n-1], t.spare[:n-1]
		t.unused = min(t.unused, n-1)
		t.mu.Unlock()
		w.next <- f
		return
	}
	w = &worker{tasks: t, next: make(chan func(*worker), 1)}
	t.workers[w] = struct{}{}
	t.mu.Unlock()
	go w.work(f)
}

// work runs f, and what else comes.
func (w *worker) work(f func(*worker)) {
	t, running := w.tasks, true
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.workers, w)
		if running { // f has ended the goroutine, as a failing test does
			t.end()
		}
	}()
	for f != nil {
		running = true
		f(w)
		running = false
		if !t.rest(w) {
			return
		}
		f = <-w.next
	}
}

// keepSpare begins to keep those without work. That waits for the first lock: from
// then on there is a goroutine until Close anyway, and before, a Client that nobody
// closes, because it was only asked who holds a name, leaves none.
func (t *tasks) keepSpare() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sparing = true
}

// rest ends a task of w, and reports whether there may be another for it.
func (t *tasks) rest(w *worker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	if !t.sparing || len(t.spare) == maxSpare {
		return false
	}
	t.spare = append(t.spare, w)
	if t.trimmer == nil {
		t.trimmer = time.AfterFunc(sparePeriod, t.trim)
	}
	return true
}

// trim lets those go that have had no work since it was last called.
func (t *tasks) trim() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sparing {
		return
	}
	t.dismiss(t.unused)
	t.unused = len(t.spare)
	t.trimmer = nil
	if t.unused > 0 {
		t.trimmer = time.AfterFunc(sparePeriod, t.trim)
	}
}

// dismiss ends the first n of the spare; t.mu is held.
func (t *tasks) dismiss(n int) {
	for _, w := range t.spare[:n] {
		close(w.next)
	}
	t.spare = slices.Delete(t.spare, 0, n)
}

// close ends all that have no work, and the others when theirs is done.
func (t *tasks) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sparing = false
	t.dismiss(len(t.spare))
	if t.trimmer != nil {
		t.trimmer.Stop()
	}
}
