package pglock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A handler of notifications that the user's pool has takes ours, too: waiters are woken all the same.
func TestNotificationHandler(t *testing.T) {
	t.Parallel()
	name := table(t)
	pool := poolLike(t, func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	})
	l, other := locker(t, pool, name), locker(t, pool, name)
	lock, err := l.TryLock(t.Context(), "x", distlock.TTL(time.Hour))
	testkit.Must(t, err)
	d, got := storeOf(t, other), make(chan error, 1)
	go func() { _, err := other.Lock(t.Context(), "x"); got <- err }()
	testkit.Until(t, "it waits and listens", func() bool {
		d.listener.mu.Lock()
		defer d.listener.mu.Unlock()
		return d.listener.live && waiters(t, pool, name) == 1
	})
	testkit.Should(t, lock.Unlock(t.Context()))
	testkit.Should(t, <-got)
}

// New finds a table and makes it on one connection, whatever search_path somebody has left on another.
func TestCreateOnOneConnection(t *testing.T) {
	t.Parallel()
	admin := poolWith(t, nil)
	schemas := []string{"left_behind", "of_the_pool"}
	for _, schema := range schemas {
		exec(t, admin, "CREATE SCHEMA "+schema)
		t.Cleanup(func() { exec(t, admin, "DROP SCHEMA "+schema+" CASCADE") })
	}
	lent := 0
	pool := poolLike(t, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			lent++
			_, err := conn.Exec(ctx, "SET search_path TO "+schemas[lent%2])
			return true, err
		}
	})
	l, err := New(pool, &Options{Create: true})
	testkit.Must(t, err)
	defer l.Close()
	lock, err := l.TryLock(t.Context(), "x")
	testkit.Must(t, err)
	testkit.Should(t, lock.Unlock(t.Context()))
}

// Where somebody has turned synchronous_commit off in a session of the pool, a crash loses nothing of ours.
func TestCommitsStaySynchronous(t *testing.T) {
	t.Parallel()
	admin, name := poolWith(t, nil), table(t)
	pool := poolLike(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	l := locker(t, pool, name)
	exec(t, pool, "SET synchronous_commit = off")
	exec(t, admin, "CREATE TABLE "+name+"_gone (said text)")
	exec(t, admin, "CREATE FUNCTION "+name+`_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO `+name+`_gone SELECT current_setting('synchronous_commit');
		RETURN NULL;
	END $$`)
	t.Cleanup(func() { exec(t, admin, "DROP FUNCTION "+name+"_note CASCADE") })
	exec(t, admin, "CREATE TRIGGER note AFTER INSERT OR UPDATE ON "+name+" FOR EACH ROW EXECUTE FUNCTION "+name+"_note()")
	lock, err := l.TryLock(t.Context(), "x")
	testkit.Must(t, err)
	testkit.Should(t, lock.Extend(t.Context(), time.Hour))
	testkit.Should(t, lock.Unlock(t.Context()))
	var said []string
	testkit.Must(t, admin.QueryRow(t.Context(), "SELECT array_agg(said) FROM "+name+"_gone").Scan(&said))
	if len(said) < 3 || slices.ContainsFunc(said, func(s string) bool { return s != "on" }) { // more if an answer was late
		t.Errorf("TryLock, Extend and Unlock had synchronous_commit %q", said)
	}
	exec(t, pool, "SELECT 1")
	var after string
	testkit.Must(t, pool.QueryRow(t.Context(), "SELECT current_setting('synchronous_commit')").Scan(&after))
	if after != "off" {
		t.Errorf("the session has %s afterwards", after)
	}
}

// A pool with requests that go on after the end of their context is refused.
func TestRequestsThatOutliveTheirContext(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(*pgconn.PgConn) ctxwatch.Handler{
		"cancel": func(c *pgconn.PgConn) ctxwatch.Handler { return &pgconn.CancelRequestContextWatcherHandler{Conn: c} },
		"delay": func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn(), DeadlineDelay: time.Second}
		},
	} {
		pool := poolLike(t, func(c *pgxpool.Config) { c.ConnConfig.BuildContextWatcherHandler = handler })
		if l, err := New(pool, nil); !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), "BuildContextWatcherHandler") {
			t.Errorf("%s: New returned %v, %v", name, l, err)
		}
	}
}
