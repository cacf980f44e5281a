package driver

import (
	"sync"
	"time"
)

// A call takes a slot for one part in slotShare of the time left: a longer call may hang,
// and the next begins beside it.
const slotShare = 16

// slots bound how many calls run side by side: one element per call that counts.
type slots chan struct{}

// take waits for a slot and keeps it for share at the most. It returns what frees
// the slot before that, or nil if quit is closed first.
func (s slots) take(share time.Duration, quit <-chan struct{}) (free func()) {
	select {
	case s <- struct{}{}:
	case <-quit:
		return nil
	}
	once := sync.OnceFunc(func() { <-s })
	timer := time.AfterFunc(share, once)
	return func() {
		timer.Stop()
		once()
	}
}
