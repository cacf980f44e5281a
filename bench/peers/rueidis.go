package peers

import (
	"context"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/distlock-go/distlock/internal/servers"
)

var rueidisLock = Contender{
	Name: "rueidislock", Backend: servers.Redis, Role: Peer, Module: "github.com/redis/rueidis",
	Note: "KeyMajority 1, as there is one node; without NoLoopTracking, with which it hangs. Without it, the server tells a holder of its own extension, upon which it extends again, from the first one on.",
	Open: openRueidis,
}

type rueidisClient struct{ locks rueidislock.Locker }

type rueidisHeld struct {
	ctx    context.Context // ends with the lock
	cancel context.CancelFunc
}

func openRueidis(_ context.Context, t Target) (Client, error) {
	o, err := goredis.ParseURL(t.URLs[0])
	if err != nil {
		return nil, err
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: []string{o.Addr}, Username: o.Username, Password: o.Password, SelectDB: o.DB,
		},
		KeyMajority: 1,
		KeyValidity: t.TTL,
	})
	if err != nil {
		return nil, err
	}
	return &rueidisClient{l}, nil
}

// Lock gives the library a context without an end: the one that it takes bounds
// the lock as well as the call.
func (c *rueidisClient) Lock(ctx context.Context, name string) (Held, error) {
	held, cancel, err := c.locks.WithContext(context.WithoutCancel(ctx), name)
	if err != nil {
		return nil, err
	}
	return &rueidisHeld{held, cancel}, nil
}

func (c *rueidisClient) Close() error {
	c.locks.Close()
	return nil
}

// Unlock returns when the key is gone; whether it was there the library does not tell.
func (h *rueidisHeld) Unlock(context.Context) error {
	h.cancel()
	return nil
}

func (h *rueidisHeld) Lost() bool { return h.ctx.Err() != nil }
