package distlock

import (
	"context"
	"sync"
	"time"
)

// tasks counts the goroutines of a Client, so that Close can wait for them, and has
// the workers that they are. It is no sync.WaitGroup because that allows neither a
// bounded wait nor new goroutines after it has been at zero.
type tasks struct {
	life    context.Context // ends when Close has lost its patience: nobody waits any more
	endLife context.CancelFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when running falls to 0; nil if nobody asked

	workers map[*worker]struct{} // all of them
	spare   []*worker            // those without work, the latest last
	unused  int                  // how many of spare, from the start, have been so since the last trim
	trimmer *time.Timer          // nil if there is no spare
	sparing bool                 // between the first lock and Close
}

func (t *tasks) init() {
	t.life, t.endLife = context.WithCancel(context.Background())
	t.workers = make(map[*worker]struct{})
}

// abandon ends the contexts of all calls.
func (t *tasks) abandon() {
	t.endLife()
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.workers {
		w.abandon()
	}
}

// sleep reports false if it was cut short because nobody waits any more.
func (t *tasks) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.life.Done():
		return false
	}
}

// begin counts the calling goroutine until it calls finished.
func (t *tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
}

func (t *tasks) finished() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
}

// end is finished where t.mu is held.
func (t *tasks) end() {
	if t.running--; t.running == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns how many goroutines are left when none is, or patience is over.
func (t *tasks) wait(patience time.Duration) int {
	t.mu.Lock()
	if t.running == 0 {
		t.mu.Unlock()
		return 0
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
		return 0
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// timers keeps timers that have ended for the next who needs one: Unlock needs one
// for a moment. Each Client has its own, because a timer must not leave the
// testing/synctest bubble that it was made in.
type timers struct{ pool sync.Pool }

func (ts *timers) get(d time.Duration) *time.Timer {
	if t, ok := ts.pool.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

func (ts *timers) put(t *time.Timer) {
	t.Stop()
	ts.pool.Put(t)
}
