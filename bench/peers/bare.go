package peers

import (
	"context"
	"database/sql"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock/internal/servers"
)

// The two commands of each store that a lock on it cannot do without, the same as
// "distlock compare" sends: nobody waits, and nobody is kept out.

// bareHeld is the second command.
type bareHeld func(ctx context.Context) error

func (h bareHeld) Unlock(ctx context.Context) error { return h(ctx) }
func (h bareHeld) Lost() bool                       { return false }

var bareRedis = Contender{
	Name: "bare SET NX PX + EVALSHA", Backend: servers.Redis, Role: Bare, Module: "github.com/redis/go-redis/v9",
	Note: "EVALSHA of a script that compares and deletes.",
	Open: func(_ context.Context, t Target) (Client, error) {
		o, err := redis.ParseURL(t.URLs[0])
		if err != nil {
			return nil, err
		}
		return &bareRedisClient{redis.NewClient(o), t.TTL}, nil
	},
}

var bareDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

type bareRedisClient struct {
	*redis.Client
	ttl time.Duration
}

func (c *bareRedisClient) Lock(ctx context.Context, name string) (Held, error) {
	if err := c.Do(ctx, "set", name, "owner", "nx", "px", c.ttl.Milliseconds()).Err(); err != nil {
		return nil, err
	}
	return bareHeld(func(ctx context.Context) error {
		return bareDelete.Run(ctx, c.Client, []string{name}, "owner").Err()
	}), nil
}

var bareMySQL = Contender{
	Name: "bare upsert + UPDATE", Backend: servers.MySQL, Role: Bare, Module: "github.com/go-sql-driver/mysql",
	Note: "INSERT … ON DUPLICATE KEY UPDATE, then UPDATE of the same row, which stays.",
	Open: func(ctx context.Context, t Target) (Client, error) {
		db, err := openTable(ctx, t.URLs[0], poolSize, `CREATE TABLE IF NOT EXISTS bench_bare
			(name VARBINARY(255) PRIMARY KEY, owner VARBINARY(64) NULL, token BIGINT NOT NULL) ENGINE=InnoDB`)
		return &bareMySQLClient{db}, err
	},
}

type bareMySQLClient struct{ *sql.DB }

func (c *bareMySQLClient) Lock(ctx context.Context, name string) (Held, error) {
	_, err := c.ExecContext(ctx, `INSERT INTO bench_bare VALUES (?, 'owner', 1)
		ON DUPLICATE KEY UPDATE owner = 'owner', token = token + 1`, name)
	if err != nil {
		return nil, err
	}
	return bareHeld(func(ctx context.Context) error {
		_, err := c.ExecContext(ctx, "UPDATE bench_bare SET owner = NULL WHERE name = ? AND owner = 'owner'", name)
		return err
	}), nil
}

var bareZooKeeper = Contender{
	Name: "bare create + delete", Backend: servers.ZooKeeper, Role: Bare, Module: "github.com/go-zookeeper/zk",
	Note: "Of an ephemeral sequential node.",
	Open: func(ctx context.Context, t Target) (Client, error) {
		conn, err := openZooKeeper(ctx, t, "/bench-bare")
		return &bareZooKeeperClient{zkClient{conn}}, err
	},
}

type bareZooKeeperClient struct{ zkClient }

func (c *bareZooKeeperClient) Lock(_ context.Context, name string) (Held, error) {
	path, err := c.Conn.Create("/bench-bare/"+name+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return nil, err
	}
	return bareHeld(func(context.Context) error { return c.Conn.Delete(path, -1) }), nil
}

var bareEtcd = Contender{
	Name: "bare put + delete", Backend: servers.Etcd, Role: Bare, Module: etcdModule,
	Note: "Of a key without a lease.",
	Open: func(_ context.Context, t Target) (Client, error) {
		client, err := openEtcd(t)
		return &bareEtcdClient{client}, err
	},
}

type bareEtcdClient struct{ *clientv3.Client }

func (c *bareEtcdClient) Lock(ctx context.Context, name string) (Held, error) {
	if _, err := c.Put(ctx, "bench-bare/"+name, "owner"); err != nil {
		return nil, err
	}
	return bareHeld(func(ctx context.Context) error {
		_, err := c.Delete(ctx, "bench-bare/"+name)
		return err
	}), nil
}
