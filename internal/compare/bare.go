package compare

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// OpenBare connects to the store behind a URL with its client library alone. It
// returns nil for schemes whose store has no commands.
func OpenBare(ctx context.Context, rawURL string) (Bare, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("bare commands: the URL cannot be parsed")
	}
	switch u.Scheme {
	case "redis":
		return openBareRedis(rawURL)
	case "mysql":
		return openBareMySQL(ctx, u)
	case "zk":
		return openBareZooKeeper(u)
	case "etcd":
		return openBareEtcd(u)
	}
	return nil, nil
}

type bareRedis struct{ client *redis.Client }

func openBareRedis(rawURL string) (Bare, error) {
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return &bareRedis{redis.NewClient(o)}, nil
}

var bareDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

func (b *bareRedis) Commands() string { return "SET NX PX, EVALSHA of compare-and-delete" }
func (b *bareRedis) Close() error     { return b.client.Close() }

func (b *bareRedis) Pair(ctx context.Context, key string) error {
	if err := b.client.Do(ctx, "set", key, "owner", "nx", "px", 30000).Err(); err != nil {
		return err
	}
	return bareDelete.Run(ctx, b.client, []string{key}, "owner").Err()
}

type bareMySQL struct {
	db    *sql.DB
	table string
}

// openBareMySQL makes a table of its own: a row that is written twice, as taking
// and freeing a lock that has been held before does.
func openBareMySQL(ctx context.Context, u *url.URL) (Bare, error) {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	c.InterpolateParams = true // one round trip a statement, as the driver under test
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	b := &bareMySQL{db: sql.OpenDB(connector), table: "distlock_compare_bare"}
	_, err = b.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+b.table+
		" (name VARBINARY(255) PRIMARY KEY, owner VARBINARY(64) NULL, token BIGINT NOT NULL) ENGINE=InnoDB")
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bareMySQL) Commands() string { return "INSERT … ON DUPLICATE KEY UPDATE, UPDATE" }

func (b *bareMySQL) Close() error {
	_, err := b.db.Exec("DROP TABLE IF EXISTS " + b.table)
	if err != nil {
		return err
	}
	return b.db.Close()
}

func (b *bareMySQL) Pair(ctx context.Context, key string) error {
	_, err := b.db.ExecContext(ctx, "INSERT INTO "+b.table+
		" VALUES (?, 'owner', 1) ON DUPLICATE KEY UPDATE owner = 'owner', token = token + 1", key)
	if err != nil {
		return err
	}
	_, err = b.db.ExecContext(ctx, "UPDATE "+b.table+" SET owner = NULL WHERE name = ? AND owner = 'owner'", key)
	return err
}

type bareZooKeeper struct {
	conn *zk.Conn
	root string
}

func openBareZooKeeper(u *url.URL) (Bare, error) {
	conn, _, err := zk.Connect(strings.Split(u.Host, ","), 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	b := &bareZooKeeper{conn, "/distlock-compare-bare"}
	if _, err := conn.Create(b.root, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists {
		conn.Close()
		return nil, err
	}
	return b, nil
}

func (b *bareZooKeeper) Commands() string { return "create ephemeral sequential, delete" }

func (b *bareZooKeeper) Close() error {
	err := b.conn.Delete(b.root, -1)
	b.conn.Close()
	return err
}

func (b *bareZooKeeper) Pair(_ context.Context, _ string) error {
	path, err := b.conn.Create(b.root+"/n-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return err
	}
	return b.conn.Delete(path, -1)
}

type bareEtcd struct{ client *clientv3.Client }

func openBareEtcd(u *url.URL) (Bare, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(u.Host, ","), Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return &bareEtcd{client}, nil
}

func (b *bareEtcd) Commands() string { return "put, delete" }
func (b *bareEtcd) Close() error     { return b.client.Close() }

func (b *bareEtcd) Pair(ctx context.Context, key string) error {
	if _, err := b.client.Put(ctx, key, "owner"); err != nil {
		return err
	}
	_, err := b.client.Delete(ctx, key)
	return err
}

// silent keeps the client library from writing to the terminal.
type silent struct{}

func (silent) Printf(string, ...any) {}
