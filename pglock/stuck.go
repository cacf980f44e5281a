package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/distlock-go/distlock/driver"
)

// stuckFor is for how long after a statement about a name had to wait for its row in vain the next ones are taken to.
const stuckFor = time.Second

// stuck has the names with a row that another transaction keeps locked. A statement about one keeps a connection for
// rowWait, so they share a part of the pool: what waits for such rows keeps no other name waiting.
type stuck struct {
	slots  chan struct{}
	claims chan struct{} // what claims may use of a pool that renewals use, too: they leave one connection; nil for all

	mu    sync.Mutex
	until map[string]time.Time
}

// newStuck lets a quarter of conns connections wait for rows.
func newStuck(conns int32, shared bool) *stuck {
	s := &stuck{slots: make(chan struct{}, max(1, conns/4)), until: make(map[string]time.Time)}
	if shared {
		s.claims = make(chan struct{}, max(1, conns-1))
	}
	return s
}

func (s *stuck) is(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.until[name]
	if ok && time.Now().After(until) {
		delete(s.until, name)
		ok = false
	}
	return ok
}

func (s *stuck) set(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.until) >= 1000 {
		for n, until := range s.until {
			if now.After(until) {
				delete(s.until, n)
			}
		}
	}
	s.until[name] = now.Add(stuckFor)
}

// sendClaim sends statements of a claim, which are no renewal.
func (d *store) sendClaim(ctx context.Context, name string, queries ...query) error {
	return d.sendAbout(ctx, name, d.stuck.claims, queries...)
}

// sendAbout sends statements about one name, over the pool. Its own share of that, or nil, is waited for last: what waits for a
// stuck row must not have a claim's slot meanwhile.
func (d *store) sendAbout(ctx context.Context, name string, share chan struct{}, queries ...query) error {
	slots := []chan struct{}{share}
	if d.stuck.is(name) {
		slots = []chan struct{}{d.stuck.slots, share}
	}
	for _, s := range slots {
		if s == nil {
			continue
		}
		select {
		case s <- struct{}{}:
			defer func() { <-s }()
		case <-ctx.Done():
			return &driver.Fault{Fate: driver.NotSent, Err: ctx.Err()}
		}
	}
	err := d.send(ctx, queries...)
	if hasCode(err, rowLocked) {
		d.stuck.set(name)
	}
	return err
}
