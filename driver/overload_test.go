package driver_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// queue is a store with one server, which serves renewals one after the other, also those that were given up.
type queue struct {
	cost time.Duration // of a request for many

	mu     sync.Mutex
	free   time.Time // when it has served all there is
	served int
}

// stall has the server stand still, and returns how many requests came since the last time.
func (q *queue) stall(d time.Duration) (served int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	served = q.served
	q.free, q.served = time.Now().Add(d), 0
	return served
}

func (q *queue) serve(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
	q.mu.Lock()
	q.served++
	if now := time.Now(); q.free.Before(now) {
		q.free = now
	}
	q.free = q.free.Add(q.cost)
	answer := time.Until(q.free)
	q.mu.Unlock()
	return late(answer)(ctx, c, apply)
}

// A store that renewals keep busy for four fifths of its time stands still for four tenths of their TTL. What was asked meanwhile
// is answered late, but in time: no lock is lost, and nothing is asked twice, which would make the store slower.
func TestRenewalsOutlastAStall(t *testing.T) {
	const batches, ttl = 10, 10 * time.Second
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		q := queue{cost: ttl / 3 * 4 / 5 / batches}
		n.use(on("renew", q.serve))
		var held []distlock.Lock
		for i := range batches * 500 {
			held = append(held, mustLock(t, bg, l, fmt.Sprint("x", i), distlock.TTL(ttl)))
			if i%50 == 0 {
				time.Sleep(ttl / 3 / batches / 10)
			}
		}
		time.Sleep(10 * ttl)
		q.stall(0)
		time.Sleep(2 * ttl)
		usual := q.stall(ttl * 4 / 10)
		time.Sleep(2 * ttl)
		if after := q.stall(0); after > usual {
			t.Errorf("%d requests after a stall, %d before it", after, usual)
		}
		for _, lock := range held {
			testkit.Must(t, lock.Err())
		}
	})
}
