package peers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// renewal keeps a lock alive for a library that leaves it to its users: in a
// goroutine a lock, at a third of the TTL, as their documentation shows it.
type renewal struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	lost   atomic.Bool
}

// keep starts the renewal. The lock counts as lost once no extend has succeeded for a
// whole TTL.
func keep(ttl time.Duration, extend func(ctx context.Context) error) *renewal {
	ctx, cancel := context.WithCancel(context.Background())
	r := &renewal{cancel: cancel}
	r.done.Go(func() {
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		confirmed := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			sent := time.Now()
			if err := extend(ctx); err == nil {
				confirmed = sent
			}
			if time.Since(confirmed) >= ttl {
				r.lost.Store(true)
			}
		}
	})
	return r
}

// stop ends the renewal, which may be nil: the lock was not to be renewed.
func (r *renewal) stop() {
	if r != nil {
		r.cancel()
		r.done.Wait()
	}
}

// Lost implements Held.
func (r *renewal) Lost() bool { return r != nil && r.lost.Load() }
