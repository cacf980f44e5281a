package servers

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

type redisClient struct{ *redis.Client }

func newRedisClient(s *Server) (peer, error) {
	options, err := redis.ParseURL(s.URL())
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1
	return redisClient{redis.NewClient(options)}, nil
}

func (c redisClient) put(ctx context.Context, value string) error {
	return c.Set(ctx, "kept", value, 0).Err()
}

func (c redisClient) get(ctx context.Context) (string, error) { return c.Get(ctx, "kept").Result() }
func (c redisClient) close()                                  { _ = c.Client.Close() }

type mysqlClient struct{ *sql.DB }

func newMySQLClient(s *Server) (peer, error) {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", s.Addr(), s.url.path()
	config.User, config.Passwd = s.url.login()
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return mysqlClient{sql.OpenDB(connector)}, nil
}

func (c mysqlClient) put(ctx context.Context, value string) error {
	if _, err := c.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS kept (value VARCHAR(64)) ENGINE=InnoDB"); err != nil {
		return err
	}
	_, err := c.ExecContext(ctx, "INSERT INTO kept VALUES (?)", value)
	return err
}

func (c mysqlClient) get(ctx context.Context) (value string, err error) {
	err = c.QueryRowContext(ctx, "SELECT value FROM kept").Scan(&value)
	return value, err
}

func (c mysqlClient) close() { _ = c.DB.Close() }

type postgresClient struct{ *pgx.Conn }

func newPostgresClient(s *Server) (peer, error) {
	conn, err := pgx.Connect(context.Background(), s.URL())
	return postgresClient{conn}, err
}

func (c postgresClient) put(ctx context.Context, value string) error {
	if _, err := c.Exec(ctx, "CREATE TABLE IF NOT EXISTS kept (value text)"); err != nil {
		return err
	}
	_, err := c.Exec(ctx, "INSERT INTO kept VALUES ($1)", value)
	return err
}

func (c postgresClient) get(ctx context.Context) (value string, err error) {
	err = c.QueryRow(ctx, "SELECT value FROM kept").Scan(&value)
	return value, err
}

func (c postgresClient) close() { _ = c.Conn.Close(context.Background()) }

type zookeeperClient struct{ *zk.Conn }

func newZooKeeperClient(s *Server) (peer, error) {
	conn, _, err := zk.Connect([]string{s.Addr()}, 5*time.Second, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	return zookeeperClient{conn}, err
}

func (c zookeeperClient) put(_ context.Context, value string) error {
	_, err := c.Create("/kept", []byte(value), 0, zk.WorldACL(zk.PermAll))
	return err
}

// get races the call: the call takes no context.
func (c zookeeperClient) get(ctx context.Context) (string, error) {
	type answer struct {
		value []byte
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		value, _, err := c.Get("/kept")
		answered <- answer{value, err}
	}()
	select {
	case a := <-answered:
		return string(a.value), a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (c zookeeperClient) close() { c.Conn.Close() }

type etcdClient struct{ *clientv3.Client }

func newEtcdClient(s *Server) (peer, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	return etcdClient{c}, err
}

func (c etcdClient) put(ctx context.Context, value string) error {
	_, err := c.Put(ctx, "kept", value)
	return err
}

func (c etcdClient) get(ctx context.Context) (string, error) {
	got, err := c.Get(ctx, "kept")
	if err != nil {
		return "", err
	}
	var values []string
	for _, kv := range got.Kvs {
		values = append(values, string(kv.Value))
	}
	return strings.Join(values, ","), nil
}

func (c etcdClient) close() { _ = c.Client.Close() }
