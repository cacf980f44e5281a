// Package moving compiles the code of docs/moving.md: that of the other libraries, and
// ours in its place.
package moving

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-zookeeper/zk"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/etcdlock"
)

var errBusy = errors.New("busy")

// The bodies of these functions are the snippets of the page.
var _ = []any{
	beforeBsm, afterBsm,
	beforeRedsync, afterRedsync,
	beforeRueidis, afterRueidis,
	beforeEtcd, afterEtcd,
	beforeZooKeeper, afterZooKeeper,
	beforeGetLock, afterGetLock,
}

func beforeBsm(ctx context.Context, client *redislock.Client) error {
	// before
	lock, err := client.Obtain(ctx, "job", 30*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if errors.Is(err, redislock.ErrNotObtained) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	return nil
}

func afterBsm(ctx context.Context, locker distlock.Locker) error {
	// after
	lock, err := locker.Lock(ctx, "job", distlock.TTL(30*time.Second))
	if errors.Is(err, distlock.ErrHeld) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return nil
}

func beforeRedsync(ctx context.Context, rs *redsync.Redsync) error {
	// before
	mutex := rs.NewMutex("job", redsync.WithExpiry(30*time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(ctx)
	return nil
}

func afterRedsync(ctx context.Context, locker distlock.Locker) error {
	// after
	lock, err := locker.Lock(ctx, "job", distlock.TTL(30*time.Second))
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return nil
}

func beforeRueidis(ctx context.Context, locks rueidislock.Locker, work func(context.Context) error) error {
	// before
	ctx, cancel, err := locks.WithContext(ctx, "job")
	if err != nil {
		return err
	}
	defer cancel()
	return work(ctx)
}

func afterRueidis(ctx context.Context, locker distlock.Locker, work func(context.Context) error) error {
	// after
	return distlock.Do(ctx, locker, "job", work)
}

func beforeEtcd(ctx context.Context, client *clientv3.Client) error {
	// before
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	if err != nil {
		return err
	}
	defer session.Close()
	mutex := concurrency.NewMutex(session, "job")
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	defer mutex.Unlock(ctx)
	return nil
}

func afterEtcd(ctx context.Context, client *clientv3.Client) error {
	// after
	locker, err := etcdlock.New(client, nil)
	if err != nil {
		return err
	}
	defer locker.Close()
	lock, err := locker.Lock(ctx, "job", distlock.TTL(30*time.Second))
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return nil
}

func beforeZooKeeper(conn *zk.Conn) error {
	// before
	lock := zk.NewLock(conn, "/locks/job", zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		return err
	}
	defer lock.Unlock()
	return nil
}

func afterZooKeeper(ctx context.Context, locker distlock.Locker) error {
	// after
	lock, err := locker.Lock(ctx, "job")
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return nil
}

func beforeGetLock(ctx context.Context, db *sql.DB) error {
	// before
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // frees the lock as well
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('job', 30)").Scan(&got); err != nil || got.Int64 != 1 {
		return cmp.Or(err, errBusy)
	}
	return nil
}

func afterGetLock(ctx context.Context, locker distlock.Locker) error {
	// after
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	lock, err := locker.Lock(wait, "job")
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return nil
}

func TestPage(t *testing.T) {
	page, err1 := os.ReadFile("../../docs/moving.md")
	text, err2 := os.ReadFile("moving_test.go")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	code := strings.ReplaceAll(string(text), "\n\t", "\n")
	parts := strings.Split(string(page), "\n```go\n")[1:]
	if len(parts) != 12 {
		t.Errorf("the page has %d snippets, want 12", len(parts))
	}
	for _, part := range parts {
		snippet, _, _ := strings.Cut(part, "\n```")
		if !strings.Contains(code, "\n"+snippet+"\n") {
			t.Errorf("a snippet of docs/moving.md is not compiled by this test:\n%s", snippet)
		}
	}
}
