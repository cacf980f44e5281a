package sandbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/distlock-go/distlock/internal/openurl"
)

// Client is a store through its client library alone. It shows the lower limit of a lock
// and unlock on it, and removes what a run has made.
type Client interface {
	// Pair sends the two commands that a lock cannot do without, one after the
	// other, for a key within the sandbox of the run.
	Pair(ctx context.Context, key string) error
	// Commands names them for the report: "SET NX PX, EVALSHA".
	Commands() string
	// Version asks the server what it is; empty if it does not say.
	Version(ctx context.Context) string
	// Remove removes the sandbox of the run with everything in it. RemovePatience is
	// a bound that it can keep.
	Remove(ctx context.Context) error
	Close() error
}

// MadeByOpen reports whether Open makes the sandbox, a table or a node. Keys are there as
// soon as somebody writes one.
func (s *Sandbox) MadeByOpen() bool {
	return s.Store == "mysql" || s.Store == "postgres" || s.Store == "zk"
}

// Open connects to the store of the sandbox with its client library alone. The
// maker of a table or a node knows what was there before, so it must come before all others.
func (s *Sandbox) Open(ctx context.Context) (Client, error) {
	u, err := openurl.Parse(s.URL(""), s.Store, s.Store+"s", "redis+sentinel", "postgresql")
	if err != nil {
		return nil, err
	}
	switch s.Store {
	case "redis":
		return openBareRedis(u, s.prefix)
	case "redlock":
		return openBareRedlock(u, s.prefix)
	case "mysql":
		return openBareMySQL(ctx, u, s.prefix)
	case "postgres":
		return openBarePostgres(ctx, u, s.prefix)
	case "zk":
		return openBareZooKeeper(ctx, u, s.prefix)
	case "etcd":
		return openBareEtcd(u, s.prefix)
	}
	return nil, fmt.Errorf("nothing is known of the store %q", s.Store)
}

// invalid is what is wrong with the parameters asked for so far. The driver under test
// complains of the others itself.
func invalid(u *openurl.URL) error {
	err := u.Err()
	if errors.As(err, new(*openurl.UnknownParamError)) {
		return nil
	}
	return err
}

type bareRedis struct {
	client redis.UniversalClient
	prefix string
}

func openBareRedis(u *openurl.URL, prefix string) (Client, error) {
	o := &redis.UniversalOptions{
		Addrs:         u.HostsDefault("6379"),
		IsClusterMode: u.Bool("cluster", false),
		MasterName:    u.Text("master", ""),
		TLSConfig:     u.TLS(),

		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if o.MasterName != "" {
		o.Addrs = u.HostsDefault("26379")
	}
	o.Username, o.Password, _ = u.User()
	if u.Bool("sentinel_auth", false) {
		o.SentinelUsername, o.SentinelPassword = o.Username, o.Password
	}
	o.DB, _ = strconv.Atoi(strings.Trim(u.Path(), "/")) // the driver under test insists on a number
	if err := invalid(u); err != nil {
		return nil, err
	}
	return &bareRedis{redis.NewUniversalClient(o), prefix}, nil
}

var bareDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

func (b *bareRedis) Commands() string { return "SET NX PX, EVALSHA of compare-and-delete" }
func (b *bareRedis) Close() error     { return b.client.Close() }

func (b *bareRedis) Pair(ctx context.Context, key string) error {
	key = b.prefix + key
	if err := b.client.Do(ctx, "set", key, "owner", "nx", "px", 30000).Err(); err != nil {
		return err
	}
	return bareDelete.Run(ctx, b.client, []string{key}, "owner").Err()
}

func (b *bareRedis) Version(ctx context.Context) string {
	info := b.client.InfoMap(ctx, "server").Val()["Server"]
	return info["redis_version"]
}

// Remove searches for the keys: what keys a lock has is the driver's business.
func (b *bareRedis) Remove(ctx context.Context) error {
	if c, ok := b.client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, b.removeFrom)
	}
	return b.removeFrom(ctx, b.client.(*redis.Client))
}

func (b *bareRedis) removeFrom(ctx context.Context, c *redis.Client) error {
	pattern := globQuote.Replace(b.prefix) + "*"
	keys := c.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		if err := c.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

var globQuote = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

type bareMySQL struct {
	db          *sql.DB
	locks, bare string // tables, quoted
}

// openBareMySQL makes a table of its own. Its row is written twice, as by taking and
// freeing a lock that has been held before.
func openBareMySQL(ctx context.Context, u *openurl.URL, table string) (Client, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd, _ = u.User()
	c.Net, c.Addr, c.DBName = "tcp", u.HostsDefault("3306")[0], strings.TrimPrefix(u.Path(), "/")
	c.TLS = u.TLS()
	c.Timeout = 5 * time.Second
	c.Logger = &mysql.NopLogger{}
	c.InterpolateParams = true // one round trip a statement, as the driver under test
	if err := invalid(u); err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	quoted := "`" + strings.ReplaceAll(table, ".", "`.`")
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(16) // and kept once made, as those of the driver under test
	db.SetMaxIdleConns(16)
	b := &bareMySQL{db: db, locks: quoted + "`", bare: quoted + "_bare`"}
	_, err = b.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+b.bare+
		" (name VARBINARY(255) PRIMARY KEY, owner VARBINARY(64) NULL, token BIGINT NOT NULL) ENGINE=InnoDB")
	if err != nil {
		return nil, errors.Join(err, b.db.Close())
	}
	return b, nil
}

func (b *bareMySQL) Commands() string { return "INSERT … ON DUPLICATE KEY UPDATE, UPDATE" }

// Close has no error to tell: a connection that a restart of the server has broken makes
// one of its farewell.
func (b *bareMySQL) Close() error {
	_ = b.db.Close()
	return nil
}

func (b *bareMySQL) Pair(ctx context.Context, key string) error {
	_, err := b.db.ExecContext(ctx, "INSERT INTO "+b.bare+
		" VALUES (?, 'owner', 1) ON DUPLICATE KEY UPDATE owner = 'owner', token = token + 1", key)
	if err != nil {
		return err
	}
	_, err = b.db.ExecContext(ctx, "UPDATE "+b.bare+" SET owner = NULL WHERE name = ? AND owner = 'owner'", key)
	return err
}

func (b *bareMySQL) Version(ctx context.Context) (version string) {
	_ = b.db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version) // empty if it does not say
	return version
}

// Remove drops the tables.
func (b *bareMySQL) Remove(ctx context.Context) error {
	_, err := b.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+b.locks+", "+b.bare)
	return err
}
