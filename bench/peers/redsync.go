package peers

import (
	"context"
	"errors"
	"math"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/internal/servers"
)

const (
	redsyncModule = "github.com/go-redsync/redsync/v4"
	redsyncNote   = "Polls after a random 50 to 250 ms, its default, and tries for as long as it takes; Extend from a goroutine a lock at a third of the TTL where locks are held."
)

var (
	redsync1 = Contender{
		Name: "redsync, 1 node", Backend: servers.Redis, Role: Peer, Module: redsyncModule, Note: redsyncNote, Polls: true,
		Open: func(_ context.Context, t Target) (Client, error) { return openRedsync(t, 1) },
	}
	redsync5 = Contender{
		Name: "redsync, 5 nodes", Backend: servers.Redis, Role: Peer, Module: redsyncModule, Note: redsyncNote, Polls: true, Nodes: 5,
		Open: func(_ context.Context, t Target) (Client, error) { return openRedsync(t, 5) },
	}
)

type redsyncClient struct {
	*redsync.Redsync
	clients []*redis.Client
	target  Target
}

type redsyncHeld struct {
	*renewal
	mutex *redsync.Mutex
}

func openRedsync(t Target, nodes int) (Client, error) {
	c := &redsyncClient{target: t}
	var pools []redsyncredis.Pool
	for _, u := range t.URLs[:nodes] {
		o, err := redis.ParseURL(u)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.clients = append(c.clients, redis.NewClient(o))
		pools = append(pools, goredis.NewPool(c.clients[len(c.clients)-1]))
	}
	c.Redsync = redsync.New(pools...)
	return c, nil
}

func (c *redsyncClient) Lock(ctx context.Context, name string) (Held, error) {
	m := c.NewMutex(name, redsync.WithExpiry(c.target.TTL), redsync.WithTries(math.MaxInt))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	h := &redsyncHeld{mutex: m}
	if c.target.Renew {
		h.renewal = keep(c.target.TTL, func(ctx context.Context) error {
			ok, err := m.ExtendContext(ctx)
			return refused(ok, err)
		})
	}
	return h, nil
}

func (c *redsyncClient) Close() error {
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

func (h *redsyncHeld) Unlock(ctx context.Context) error {
	h.stop()
	ok, err := h.mutex.UnlockContext(ctx)
	return refused(ok, err)
}

// refused makes an error of the answer "no".
func refused(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("the store says that the lock is not held")
	}
	return err
}
