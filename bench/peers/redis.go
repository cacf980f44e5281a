package peers

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

var bsm = Peer{
	Name: "bsm/redislock", Store: servers.Redis, Module: "github.com/bsm/redislock",
	Note: "Has no waiting and no renewal of its own: `LinearBackoff(100ms)`, and `Refresh` by a goroutine a lock where locks are held.",
	Open: func(_ context.Context, t Target) (distlock.Locker, error) {
		o, err := redis.ParseURL(t.URLs[0])
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(o)
		locks := redislock.New(client)
		wait := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
		return &locker{close: client.Close, lock: func(ctx context.Context, name string) (*held, error) {
			l, err := locks.Obtain(ctx, name, t.TTL, wait)
			if err != nil {
				return nil, err
			}
			renew := renewed(t, func(ctx context.Context) error { return l.Refresh(ctx, t.TTL, nil) })
			return &held{unlock: l.Release, renew: renew}, nil
		}}, nil
	},
}

const (
	redsyncModule = "github.com/go-redsync/redsync/v4"
	redsyncNote   = "Polls after a random 50 to 250 ms, its default, for as long as it takes; `Extend` by a goroutine a lock where locks are held."
)

var (
	redsync1 = Peer{Name: "redsync, 1 node", Store: servers.Redis, Module: redsyncModule, Note: redsyncNote, Open: openRedsync}
	redsync5 = Peer{Name: "redsync, 5 nodes", Store: servers.Redis, Module: redsyncModule, Nodes: 5, Open: openRedsync,
		Note: redsyncNote + " Requests are those to one of its five nodes."}
)

func openRedsync(_ context.Context, t Target) (distlock.Locker, error) {
	var clients []*redis.Client
	closeAll := func() error {
		var errs []error
		for _, c := range clients {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
	var pools []redsyncredis.Pool
	for _, u := range t.URLs {
		o, err := redis.ParseURL(u)
		if err != nil {
			return nil, errors.Join(err, closeAll())
		}
		clients = append(clients, redis.NewClient(o))
		pools = append(pools, goredis.NewPool(clients[len(clients)-1]))
	}
	locks := redsync.New(pools...)
	return &locker{close: closeAll, lock: func(ctx context.Context, name string) (*held, error) {
		m := locks.NewMutex(name, redsync.WithExpiry(t.TTL), redsync.WithTries(math.MaxInt))
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return &held{
			unlock: func(ctx context.Context) error { return refused(m.UnlockContext(ctx)) },
			renew:  renewed(t, func(ctx context.Context) error { return refused(m.ExtendContext(ctx)) }),
		}, nil
	}}, nil
}

var rueidisLock = Peer{
	Name: "rueidislock", Store: servers.Redis, Module: "github.com/redis/rueidis",
	Note: "`KeyMajority: 1`, as there is one node; without `NoLoopTracking`, with which it hangs. Without it, the server tells a holder of its own extension, upon which it extends again.",
	Open: func(_ context.Context, t Target) (distlock.Locker, error) {
		o, err := redis.ParseURL(t.URLs[0])
		if err != nil {
			return nil, err
		}
		locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{o.Addr}, Username: o.Username, Password: o.Password, SelectDB: o.DB},
			KeyMajority:  1,
			KeyValidity:  t.TTL,
		})
		if err != nil {
			return nil, err
		}
		closeAll := func() error { locks.Close(); return nil }
		return &locker{close: closeAll, lock: func(ctx context.Context, name string) (*held, error) {
			// The context that it takes bounds the lock as well as the call: here it is that
			// of the workload, which ends later.
			life, cancel, err := locks.WithContext(ctx, name)
			if err != nil {
				return nil, err
			}
			return &held{
				// It returns when the key is gone; whether it was there the library does not tell.
				unlock: func(context.Context) error { cancel(); return nil },
				lost:   func() bool { return life.Err() != nil },
			}, nil
		}}, nil
	},
}
