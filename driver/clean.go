package driver

import (
	"context"
	"time"
)

const (
	// cleanParallel is how many lost locks are released at the same time, and
	// failingParallel how many more that failed their last renewal: these may hang.
	// cleanPatience is how long one that hangs holds up the others: a part of a
	// call, so up to eleven times as many hang side by side.
	cleanParallel   = 16
	failingParallel = cleanParallel / 2
	cleanPatience   = maxCall / 10
)

// cleaning is a queue of lost locks that wait for their release.
type cleaning struct {
	queue   []*Handle
	running int // goroutines that release them
}

// cleanUp has the entry of a lost lock removed, in the background and a few at a
// time: a backend that fails loses all its locks at once, and must not get as many
// calls when it is back. h.mu is held.
func (s *scheduler) cleanUp(h *Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, parallel := &s.ended, cleanParallel
	if h.lastErr != nil {
		c, parallel = &s.failing, failingParallel
	}
	c.queue = append(c.queue, h)
	if c.running < parallel {
		c.running++
		s.client.tasks.spawn(func() { s.clean(c) })
	}
}

// clean releases lost locks until there is none. What Close finds here it releases
// itself.
func (s *scheduler) clean(c *cleaning) {
	for {
		s.mu.Lock()
		if len(c.queue) == 0 || s.stopped {
			c.running--
			s.mu.Unlock()
			return
		}
		h := c.queue[0]
		c.queue[0], c.queue = nil, c.queue[1:]
		s.mu.Unlock()
		released := h.release(context.Background())
		patience := time.NewTimer(cleanPatience)
		select {
		case <-released:
		case <-patience.C:
		case <-s.quit:
		}
		patience.Stop()
	}
}
