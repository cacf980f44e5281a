// Package lookinto tells tests what is on a server, so that they can see that nothing
// was left there.
package lookinto

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/servers"
)

// Server returns a function that asks a server what is on it: keys, tables, nodes,
// leases. Its connection is closed when the test is over. It skips the test for a
// server given by URL: that one is not ours to look at.
func Server(t *testing.T, s *servers.Server) func(*testing.T) []string {
	if !s.Controlled() {
		t.Skip("a server given by URL is not ours to look at")
	}
	switch s.Kind() {
	case servers.Redis:
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { c.Close() })
		return func(t *testing.T) []string {
			keys, err := c.Keys(context.Background(), "*").Result()
			must(t, err)
			return keys
		}
	case servers.MySQL:
		return intoMySQL(t, s)
	case servers.Postgres:
		return intoPostgres(t, s)
	case servers.ZooKeeper:
		c, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second, zk.WithLogger(silent{}))
		must(t, err)
		t.Cleanup(c.Close)
		return func(t *testing.T) []string { return nodes(t, c, "/") }
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return func(t *testing.T) (all []string) {
		keys, err := c.Get(context.Background(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		must(t, err)
		for _, kv := range keys.Kvs {
			all = append(all, string(kv.Key))
		}
		leases, err := c.Leases(context.Background())
		must(t, err)
		return append(all, slices.Repeat([]string{"a lease"}, len(leases.Leases))...)
	}
}

func intoMySQL(t *testing.T, s *servers.Server) func(*testing.T) []string {
	u, err := openurl.Parse(s.AdminURL())
	must(t, err)
	config := mysql.NewConfig()
	config.Net, config.Addr = "tcp", u.Hosts()[0]
	config.User, config.Passwd, _ = u.User()
	connector, err := mysql.NewConnector(config)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return func(t *testing.T) (all []string) {
		rows, err := db.Query("SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables")
		must(t, err)
		defer rows.Close()
		for rows.Next() {
			var name string
			must(t, rows.Scan(&name))
			all = append(all, name)
		}
		must(t, rows.Err())
		return all
	}
}

func intoPostgres(t *testing.T, s *servers.Server) func(*testing.T) []string {
	conn, err := pgx.Connect(context.Background(), s.URL())
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return func(t *testing.T) []string {
		rows, err := conn.Query(context.Background(), "SELECT schemaname || '.' || tablename FROM pg_tables")
		must(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(t, err)
		return all
	}
}

func nodes(t *testing.T, c *zk.Conn, path string) (all []string) {
	children, _, err := c.Children(path)
	if err == zk.ErrNoNode {
		return nil // removed meanwhile
	}
	must(t, err)
	for _, name := range children {
		child := strings.TrimSuffix(path, "/") + "/" + name
		all = append(append(all, child), nodes(t, c, child)...)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// silent keeps the client library from writing to the terminal.
type silent struct{}

func (silent) Printf(string, ...any) {}
