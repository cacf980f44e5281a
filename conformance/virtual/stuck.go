package virtual

import (
	"context"
	"sync"

	"github.com/distlock-go/distlock/memlock"
)

// Stuck has requests to a memlock.Store hang. The zero value has none hang. It is safe
// for concurrent use.
type Stuck struct {
	mu    sync.Mutex
	stuck []*blocked
}

// blocked is what hangs, and what ends that.
type blocked struct {
	match func(name string) bool
	freed chan struct{}
}

// Intercept is for memlock.StoreOptions.
func (s *Stuck) Intercept(ctx context.Context, c memlock.Call, apply func()) error {
	s.mu.Lock()
	var freed chan struct{}
	for _, b := range s.stuck {
		if b.match(c.Name) {
			freed = b.freed
		}
	}
	s.mu.Unlock()
	if freed != nil {
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	apply()
	return nil
}

// Block has every request about a matching name hang, until unblock is called.
func (s *Stuck) Block(match func(name string) bool) (unblock func() error) {
	b := &blocked{match, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = append(s.stuck, b)
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.stuck {
			if s.stuck[i] == b {
				s.stuck = append(s.stuck[:i], s.stuck[i+1:]...)
				break
			}
		}
		close(b.freed)
		return nil
	}
}
