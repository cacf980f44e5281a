package stores_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// files is a folder with a file for each name, and the name in its first line. step is called before each touch of one.
type files struct {
	dir       string
	step      func()
	inProcess bool // a swap is atomic in its process only
}

// swapping is locked during such a swap.
var swapping sync.Mutex

func (f files) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(f.dir, hex.EncodeToString(sum[:]))
}

func (f files) get(_ context.Context, name string) (string, error) {
	f.step()
	text, err := os.ReadFile(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	_, value, _ := strings.Cut(string(text), "\n")
	return value, err
}

func (f files) set(_ context.Context, name, value string) error {
	f.step()
	if value == "" {
		return os.Remove(f.path(name))
	}
	fresh, err := os.CreateTemp(f.dir, ".*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(fresh, "%q\n%s", name, value)
	return errors.Join(err, fresh.Close(), os.Rename(fresh.Name(), f.path(name)))
}

func (f files) swap(ctx context.Context, name, was, is string) (bool, error) {
	if f.inProcess {
		swapping.Lock()
		defer swapping.Unlock()
		return f.replace(ctx, name, was, is)
	}
	lock, err := os.OpenFile(filepath.Join(f.dir, ".lock"+filepath.Base(f.path(name))), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer lock.Close()
	for err = syscall.EINTR; err == syscall.EINTR; err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX) {
		f.step()
	}
	if err := errors.Join(err, ctx.Err()); err != nil {
		return false, err
	}
	return f.replace(ctx, name, was, is)
}

func (f files) replace(ctx context.Context, name, was, is string) (bool, error) {
	if now, err := f.get(ctx, name); err != nil || now != was {
		return false, err
	}
	return true, f.set(ctx, name, is)
}

func (f files) names(context.Context) (names []string, err error) {
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(f.dir, e.Name())) // it may be gone
		line, _, _ := strings.Cut(string(text), "\n")
		if name, err := strconv.Unquote(line); err == nil {
			names = append(names, name)
		}
	}
	return names, err
}

func (f files) Close() error { return nil }

// keys are GET and SET of Redis.
type keys struct {
	*redis.Client
	prefix string
}

func openKeys(rawURL, prefix string) (cells, error) {
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	return keys{redis.NewClient(o), prefix}, nil
}

func (k keys) get(ctx context.Context, name string) (string, error) {
	value, err := k.Get(ctx, k.prefix+name).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return value, err
}

func (k keys) set(ctx context.Context, name, value string) error {
	if value == "" {
		return k.Del(ctx, k.prefix+name).Err()
	}
	return k.Set(ctx, k.prefix+name, value, 0).Err()
}

func (k keys) swap(ctx context.Context, name, was, is string) (bool, error) {
	return k.Eval(ctx, `if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
		if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
		return 1`, []string{k.prefix + name}, was, is).Bool()
}

func (k keys) names(ctx context.Context) (names []string, err error) {
	all, err := k.Keys(ctx, k.prefix+"*").Result()
	for _, key := range all {
		names = append(names, strings.TrimPrefix(key, k.prefix))
	}
	return names, err
}

// rows are SELECT and UPDATE of MySQL.
type rows struct {
	*sql.DB
	table string
}

func openRows(rawURL, table string) (cells, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User, c.ClientFoundRows, c.InterpolateParams, c.Logger = "tcp", u.Host, strings.Trim(u.Path, "/"), u.User.Username(), true, true, &mysql.NopLogger{}
	c.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	r := rows{sql.OpenDB(connector), table}
	r.SetMaxIdleConns(8)
	r.SetMaxOpenConns(16) // 32 clients ask for 50 names at once
	_, err = r.Exec("CREATE TABLE IF NOT EXISTS " + table + " (name VARBINARY(512) PRIMARY KEY, value VARBINARY(2048) NOT NULL)")
	return r, err
}

func (r rows) get(ctx context.Context, name string) (value string, err error) {
	err = r.QueryRowContext(ctx, "SELECT value FROM "+r.table+" WHERE name = ?", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (r rows) set(ctx context.Context, name, value string) error {
	if value == "" {
		_, err := r.ExecContext(ctx, "DELETE FROM "+r.table+" WHERE name = ?", name)
		return err
	}
	_, err := r.ExecContext(ctx, "INSERT INTO "+r.table+" VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)", name, value)
	return err
}

func (r rows) swap(ctx context.Context, name, was, is string) (bool, error) {
	query, args := "UPDATE "+r.table+" SET value = ? WHERE name = ? AND value = ?", []any{is, name, was}
	switch {
	case was == "":
		query, args = "INSERT IGNORE INTO "+r.table+" VALUES (?, ?)", []any{name, is}
	case is == "":
		query, args = "DELETE FROM "+r.table+" WHERE name = ? AND value = ?", []any{name, was}
	}
	result, err := r.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

func (r rows) names(ctx context.Context) (names []string, err error) {
	found, err := r.QueryContext(ctx, "SELECT name FROM "+r.table)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var name string
		if err := found.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, found.Err()
}

// tree is Get and Put of etcd.
type tree struct {
	*clientv3.Client
	prefix string
}

func openTree(rawURL, prefix string) (cells, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{u.Host}, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return tree{c, prefix + "/"}, nil
}

func (t tree) get(ctx context.Context, name string) (string, error) {
	resp, err := t.Get(ctx, t.prefix+name)
	if err != nil || len(resp.Kvs) == 0 {
		return "", err
	}
	return string(resp.Kvs[0].Value), nil
}

func (t tree) set(ctx context.Context, name, value string) (err error) {
	_, err = t.Do(ctx, t.write(name, value))
	return err
}

func (t tree) write(name, value string) clientv3.Op {
	if value == "" {
		return clientv3.OpDelete(t.prefix + name)
	}
	return clientv3.OpPut(t.prefix+name, value)
}

func (t tree) swap(ctx context.Context, name, was, is string) (bool, error) {
	same := clientv3.Compare(clientv3.Value(t.prefix+name), "=", was)
	if was == "" {
		same = clientv3.Compare(clientv3.CreateRevision(t.prefix+name), "=", 0)
	}
	resp, err := t.Txn(ctx).If(same).Then(t.write(name, is)).Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

func (t tree) names(ctx context.Context) (names []string, err error) {
	resp, err := t.Get(ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range resp.Kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), t.prefix))
	}
	return names, nil
}
