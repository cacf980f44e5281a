package peers

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/internal/servers"
)

var bsm = Contender{
	Name: "bsm/redislock", Backend: servers.Redis, Role: Peer, Module: "github.com/bsm/redislock", Polls: true,
	Note: "Has no waiting and no renewal of its own: LinearBackoff(100ms), and Refresh from a goroutine a lock at a third of the TTL where locks are held.",
	Open: func(_ context.Context, t Target) (Client, error) {
		o, err := redis.ParseURL(t.URLs[0])
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(o)
		return &bsmClient{client, redislock.New(client), t}, nil
	},
}

type bsmClient struct {
	*redis.Client
	locks  *redislock.Client
	target Target
}

type bsmHeld struct {
	*renewal
	lock *redislock.Lock
}

func (c *bsmClient) Lock(ctx context.Context, name string) (Held, error) {
	ttl := c.target.TTL
	l, err := c.locks.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	if err != nil {
		return nil, err
	}
	h := &bsmHeld{lock: l}
	if c.target.Renew {
		h.renewal = keep(ttl, func(ctx context.Context) error { return l.Refresh(ctx, ttl, nil) })
	}
	return h, nil
}

func (h *bsmHeld) Unlock(ctx context.Context) error {
	h.stop()
	return h.lock.Release(ctx)
}
