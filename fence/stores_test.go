package fence_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"math"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/etcdlock"
	"github.com/distlock-go/distlock/fence"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/mysqllock"
	"github.com/distlock-go/distlock/zklock"
)

// The bodies of the first functions are the code blocks of docs/fencing.md, letter by
// letter, as TestPage sees to. The tests below have a holder that has lost its lock run
// them, and one that has not.

func payInSQL(ctx context.Context, db fence.Execer, lock distlock.Lock) error {
	err := fence.Exec(ctx, db,
		`UPDATE orders SET state = 'paid', fence = ? WHERE id = 42 AND fence <= ?`, lock.Token(), lock.Token())
	return err
}

func payInTransaction(ctx context.Context, db *sql.DB, locker distlock.Locker) error {
	err := distlock.Do(ctx, locker, "orders/42", func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil) // after Lock: what it reads is what the holder before has left
		if err != nil {
			return err
		}
		defer tx.Rollback()
		lock, _ := distlock.FromContext(ctx)
		if err := payInSQL(ctx, tx, lock); err != nil {
			return err
		}
		return tx.Commit() // before Unlock, which Do calls next
	})
	return err
}

func payTooLate(ctx context.Context, tx *sql.Tx, locker distlock.Locker) error {
	err := distlock.Do(ctx, locker, "orders/42", func(ctx context.Context) error {
		lock, _ := distlock.FromContext(ctx)
		return payInSQL(ctx, tx, lock)
	})
	if err != nil {
		return err
	}
	return tx.Commit() // wrong: the next holder has read the row already, as it was before
}

func payInRedis(ctx context.Context, client *redis.Client, lock distlock.Lock) error {
	write := redis.NewScript(fence.RedisScript)
	err := write.Run(ctx, client, []string{"order:42"}, lock.Token(), "state", "paid").Err()
	if redis.HasErrorPrefix(err, "STALE") {
		err = fence.ErrStale
	}
	return err
}

func payGuarded(ctx context.Context, db *sql.DB, lock distlock.Lock) error {
	held, ok := distlock.As[*mysqllock.Lock](lock)
	if !ok {
		return errors.New("this needs a lock in MySQL")
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = 42`); err != nil {
		return err
	}
	if err := held.Guard(ctx, tx); err != nil { // last: it holds the row of the lock
		return err
	}
	return tx.Commit()
}

func payInEtcd(ctx context.Context, client *clientv3.Client, lock distlock.Lock) error {
	held, ok := distlock.As[*etcdlock.Lock](lock)
	if !ok {
		return errors.New("this needs a lock in etcd")
	}
	reply, err := client.Txn(ctx).If(held.Cmp()).Then(clientv3.OpPut("orders/42", "paid")).Commit()
	if err == nil && !reply.Succeeded {
		err = distlock.ErrLost
	}
	return err
}

func payInZooKeeper(conn *zk.Conn, lock distlock.Lock) error {
	held, ok := distlock.As[*zklock.Lock](lock)
	if !ok {
		return errors.New("this needs a lock in ZooKeeper")
	}
	_, err := conn.Multi(
		&zk.CheckVersionRequest{Path: held.Path(), Version: 0},
		&zk.SetDataRequest{Path: "/order-42", Data: []byte("paid"), Version: -1})
	return err
}

func TestPage(t *testing.T) {
	self, err := os.ReadFile("stores_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code := strings.ReplaceAll(string(self), "\n\t", "\n")
	testkit.Quoted(t, "../docs/fencing.md", 7, code)
}

// overtaken returns the lock of a holder that does not know yet that it has lost it, and
// that of its successor.
func overtaken(t *testing.T, lockURL string) (stale, held distlock.Lock) {
	t.Helper()
	name := "fence/" + rand.Text()
	var locks []distlock.Lock
	for range 2 {
		l, err := backends.Open(t.Context(), lockURL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() }) // the locks are freed, or lost
		lock, err := l.Lock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lock)
		if len(locks) == 1 {
			if err := distlock.Break(t.Context(), l, name, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	return locks[0], locks[1]
}

// check has both write, the one that has lost its lock before the other and after it.
func check(t *testing.T, before, after error, pay func(lock distlock.Lock) error, stale, held distlock.Lock) {
	t.Helper()
	for i, step := range []struct {
		lock distlock.Lock
		want error
	}{{stale, before}, {held, nil}, {stale, after}, {held, nil}} {
		if err := pay(step.lock); !errors.Is(err, step.want) {
			t.Errorf("step %d, with token %d of %d and %d: %v, want %v", i, step.lock.Token(), stale.Token(), held.Token(), err, step.want)
		}
	}
}

func TestMySQL(t *testing.T) {
	server := servers.ForTest(t, servers.MySQL)
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User, c.ClientFoundRows = "tcp", u.Host, strings.Trim(u.Path, "/"), u.User.Username(), true
	c.Passwd, _ = u.User.Password()
	db, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"CREATE TABLE orders (id INT PRIMARY KEY, state TEXT, fence BIGINT NOT NULL DEFAULT 0)",
		"INSERT INTO orders (id, state) VALUES (42, 'new')",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	defer db.Exec("DROP TABLE orders")
	q := u.Query()
	q.Set("create", "true")
	u.RawQuery = q.Encode()
	stale, held := overtaken(t, u.String())
	check(t, nil, fence.ErrStale, func(lock distlock.Lock) error { return payInSQL(t.Context(), db, lock) }, stale, held)
	stale, held = overtaken(t, u.String())
	check(t, distlock.ErrLost, distlock.ErrLost, func(lock distlock.Lock) error { return payGuarded(t.Context(), db, lock) }, stale, held)
	testTransaction(t, db, u.String())
}

// A transaction that is committed inside the lock is seen by the next holder; one that is committed after it is not.
func testTransaction(t *testing.T, db *sql.DB, lockURL string) {
	locker, err := backends.Open(t.Context(), lockURL)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	var token, next int64
	atUnlock := hooked{locker, func(lock distlock.Lock) {
		token = lock.Token()
		if err := db.QueryRowContext(t.Context(), "SELECT fence FROM orders WHERE id = 42").Scan(&next); err != nil {
			t.Error(err)
		}
	}}
	if err := payInTransaction(t.Context(), db, atUnlock); err != nil || next != token {
		t.Errorf("%v; at Unlock the next holder sees %d, want %d", err, next, token)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := payTooLate(t.Context(), tx, atUnlock); err != nil || next == token {
		t.Errorf("%v; at Unlock the next holder sees %d already", err, next)
	}
}

// hooked calls atUnlock before each lock is released.
type hooked struct {
	distlock.Locker
	atUnlock func(distlock.Lock)
}

func (h hooked) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	lock, err := h.Locker.Lock(ctx, name, opts...)
	return hookedLock{lock, h.atUnlock}, err
}

type hookedLock struct {
	distlock.Lock
	atUnlock func(distlock.Lock)
}

func (h hookedLock) Unlock(ctx context.Context) error {
	h.atUnlock(h.Lock)
	return h.Lock.Unlock(ctx)
}

func TestRedis(t *testing.T) {
	server := servers.ForTest(t, servers.Redis)
	o, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	defer client.Close()
	defer client.Del(context.Background(), "order:42", "large")
	stale, held := overtaken(t, server.URL())
	check(t, nil, fence.ErrStale, func(lock distlock.Lock) error { return payInRedis(t.Context(), client, lock) }, stale, held)
	// Tokens beyond what Lua can count are compared as well.
	write := redis.NewScript(fence.RedisScript)
	for _, step := range []struct {
		token   int64
		refused bool
	}{{9007199254740993, false}, {9007199254740992, true}, {10007199254740992, false}, {9999999999999999, true}, {10007199254740992, false}} {
		err := write.Run(t.Context(), client, []string{"large"}, step.token, "a", 1, "b", 2).Err()
		if (err != nil) != step.refused {
			t.Errorf("token %d: %v, want it refused: %v", step.token, err, step.refused)
		}
	}
}

// What is no token must not become a fence: compared as text, it would refuse tokens that are
// higher. Nor may a field of the caller's take its place.
func TestRedisScriptRefuses(t *testing.T) {
	o, err := redis.ParseURL(servers.ForTest(t, servers.Redis).URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	defer client.Close()
	defer client.Del(context.Background(), "strict", "foreign")
	write := redis.NewScript(fence.RedisScript)
	run := func(key string, args ...any) error {
		return write.Run(t.Context(), client, []string{key}, args...).Err()
	}
	if err := run("strict", 9, "a", 1); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]any{
		{"abc"}, {"nan"}, {"inf"}, {"0x10"}, {"1e3"}, {""}, {" 10"}, {"10 "}, {"10\n"}, {"-10"}, {"+10"}, {"010"}, {"10.0"}, {0},
		{"9223372036854775808"}, {"10000000000000000000"}, // above every token
		{}, {10, "a"}, // nothing, and a field without a value
		{10, "fence", 1}, {10, "a", 2, "fence", 99999},
	} {
		if err := run("strict", args...); err == nil || strings.HasPrefix(err.Error(), "STALE") {
			t.Errorf("%q: %v, want an error of the caller", args, err)
		}
	}
	if got := client.HGetAll(t.Context(), "strict").Val(); len(got) != 2 || got["a"] != "1" || got["fence"] != "9" {
		t.Errorf("what was refused has written: %v", got)
	}
	if err := errors.Join(run("strict", 10, "a", "fence"), run("strict", int64(math.MaxInt64))); err != nil {
		t.Error(err)
	}
	// Somebody else's field of that name is not overwritten, nor does it refuse a token as stale.
	client.HSet(t.Context(), "foreign", "fence", "wooden")
	if err := run("foreign", 10, "a", 1); err == nil || !strings.Contains(err.Error(), "wooden, which is no token") {
		t.Errorf("a field fence that is no token: %v", err)
	}
}

func TestEtcd(t *testing.T) {
	server := servers.ForTest(t, servers.Etcd)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	defer client.Delete(context.Background(), "orders/42")
	stale, held := overtaken(t, server.URL())
	check(t, distlock.ErrLost, distlock.ErrLost, func(lock distlock.Lock) error { return payInEtcd(t.Context(), client, lock) }, stale, held)
}

func TestZooKeeper(t *testing.T) {
	server := servers.ForTest(t, servers.ZooKeeper)
	conn, _, err := zk.Connect([]string{server.Addr()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/order-42", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	defer conn.Delete("/order-42", -1)
	stale, held := overtaken(t, server.URL())
	check(t, zk.ErrNoNode, zk.ErrNoNode, func(lock distlock.Lock) error { return payInZooKeeper(conn, lock) }, stale, held)
}
