package driver

import (
	"context"
	"sync"
	"time"
)

// tasks counts what a Client has under way, so that Close can wait for it: calls on
// the goroutines of callers, and goroutines of its own. It is no sync.WaitGroup: that
// allows no bounded wait, and nothing new after it was at zero.
type tasks struct {
	life    context.Context // ends when Close has lost its patience: nobody waits any more
	endLife context.CancelCauseFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when running falls to 0; nil if nobody asked
}

func (t *tasks) init() { t.life, t.endLife = context.WithCancelCause(context.Background()) }

// begin counts the calling goroutine until it calls finished.
func (t *tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
}

func (t *tasks) finished() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// spawn runs f in a goroutine of its own.
func (t *tasks) spawn(f func()) {
	t.begin()
	go func() {
		defer t.finished()
		f()
	}()
}

// wait returns how many are left when none is, or patience is over.
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
