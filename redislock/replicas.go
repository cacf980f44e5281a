package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// This file has grants and renewals wait until replicas have them. WAIT counts the replicas that
// have acknowledged the writes of its own connection. A grant may have been written on another
// connection, or by the release of another client. So a grant is followed by a renewal, a write on
// the connection of WAIT: a replica with the renewal also has the grant before it.
//
//	claim                          master                            replicas
//	Try ─────────────────────────▶ entry ──────────────────────────▶ some time later
//	  ◀── token (or a release's)
//	renew, WAIT 1 ───────────────▶ entry for a TTL ────────────────▶ entry, expiry
//	  ◀── 1: granted               ◀──────────────────────────────── acknowledged
//	  ◀── 0: errUnreplicated, and the engine releases the claim

const (
	// maxReplicaWait bounds what a caller waits for replicas. They are as far away as a
	// round trip, unless something is wrong.
	maxReplicaWait = time.Second

	maxReplicas = 100
)

var (
	// errUnreplicated is in the error of a grant or renewal that too few replicas have.
	errUnreplicated = errors.New("too few replicas have acknowledged the lock")

	// errForgotten is the outcome of a grant that is gone before it was confirmed: there was a
	// failover, or an operator ended it. It was never believed, so the claim tries again.
	errForgotten = errors.New("redislock: the grant is gone before the replicas had it")
)

// replicas says how many replicas must have a write.
type replicas struct {
	needed int           // 0: nothing is waited for
	max    time.Duration // of a wait
}

// maxAck returns the longest wait of a client. Its reads end after timeout, if that is above 0.
func maxAck(timeout time.Duration) time.Duration {
	if timeout > 0 {
		return min(timeout/2, maxReplicaWait)
	}
	return maxReplicaWait
}

// ask appends to pipe the question how many replicas have the writes before it, for limit at the
// most. It returns nil if no replicas are needed.
func (r replicas) ask(ctx context.Context, pipe redis.Pipeliner, limit time.Duration) *redis.Cmd {
	if r.needed == 0 {
		return nil
	}
	limit = min(limit, r.max)
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)*3/4) // the rest is for the answer to come
	}
	return pipe.Do(ctx, "wait", r.needed, max(limit.Milliseconds(), 1)) // 0 would be for ever
}

// judge reads the answer to ask.
func (r replicas) judge(acks *redis.Cmd) error {
	if acks == nil {
		return nil
	}
	n, err := acks.Int()
	if err == nil && n < r.needed {
		err = fmt.Errorf("redislock: %w: %d of %d", errUnreplicated, n, r.needed)
	}
	return err
}

// confirm waits until replicas have the grant of c. It gives the lock a full TTL again, because
// the wait has taken a part of the one before.
func (c *claim) confirm(ctx context.Context) (driver.Grant, error) {
	one := []driver.Renewal{{Claim: c, TTL: c.request.TTL}}
	c.driver.Renew(ctx, one)
	if errors.Is(one[0].Err, distlock.ErrLost) {
		c.token = 0
		return driver.Grant{}, &driver.Fault{Fate: driver.Again, Err: errForgotten}
	}
	return one[0].Grant, one[0].Err
}
