package pglock

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// shared is the server of the tests below.
var shared = servers.Shared{Kind: servers.Postgres}

func server(t testing.TB) *servers.Server {
	t.Helper()
	return shared.ForTest(t)
}

// poolWith is a pool of sessions with settings of their own, as a role or a database may have them.
func poolWith(t testing.TB, settings map[string]string) *pgxpool.Pool {
	t.Helper()
	return poolLike(t, func(c *pgxpool.Config) { maps.Copy(c.ConnConfig.RuntimeParams, settings) })
}

// poolLike is a pool with settings of its own.
func poolLike(t testing.TB, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := value[*pgxpool.Config](t)(pgxpool.ParseConfig(server(t).URL()))
	change(config)
	pool := value[*pgxpool.Pool](t)(pgxpool.NewWithConfig(t.Context(), config))
	t.Cleanup(pool.Close)
	return pool
}

// value is what a call has returned, which must not fail.
func value[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		testkit.Must(t, err)
		return v
	}
}

// table makes a table, and drops it in the end.
func table(t testing.TB) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "_", " ", "_", "=", "_").Replace(t.Name()))
	text, err := Schema(name)
	testkit.Must(t, err)
	pool := poolWith(t, nil)
	exec(t, pool, text)
	t.Cleanup(func() { exec(t, pool, "DROP TABLE IF EXISTS "+name+", "+name+"_gone") })
	return name
}

func exec(t testing.TB, pool *pgxpool.Pool, text string) {
	t.Helper()
	if _, err := pool.Exec(context.WithoutCancel(t.Context()), text); err != nil {
		t.Fatal(err)
	}
}

// alter changes a setting of the server. Its processes read that a moment later.
func alter(t testing.TB, pool *pgxpool.Pool, text string) {
	t.Helper()
	exec(t, pool, "ALTER SYSTEM "+text)
	exec(t, pool, "SELECT pg_reload_conf()")
}

// claimOn is a claim of l on "x", each time with the same owner.
func claimOn(t *testing.T, l *Locker) *claim {
	t.Helper()
	return storeOf(t, l).Claim(driver.Request{Name: "x", Owner: strings.Repeat("cd", 16), TTL: time.Minute}).(*claim)
}

func locker(t testing.TB, pool *pgxpool.Pool, table string) *Locker {
	t.Helper()
	l, err := New(pool, &Options{Table: table})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Should(t, l.Close()) })
	return l
}

// What a role or a database may have set does no harm: locks are taken, waited for, renewed and given back, on a pool of
// the user's own, on one that prepares nothing, and on ours.
func TestSettingsOfOthers(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"default_transaction_isolation":       "serializable",
		"statement_timeout":                   "1s",
		"lock_timeout":                        "1ms",
		"idle_in_transaction_session_timeout": "1ms",
		"search_path":                         "nowhere, public",
		"timezone":                            "Asia/Kathmandu",
		"bytea_output":                        "escape",
		"standard_conforming_strings":         "off",
		"DateStyle":                           "SQL, DMY",
		"IntervalStyle":                       "sql_standard",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := table(t)
			harness.Exercise(t, locker(t, poolWith(t, map[string]string{name: value}), table), "new")
			harness.Exercise(t, locker(t, poolLike(t, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams[name] = value
				c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			}), table), "unprepared")
			config, opts, err := parseURL(server(t).URL(), Options{Table: table})
			testkit.Must(t, err)
			config.ConnConfig.RuntimeParams[name] = value
			l, err := openOwn(t.Context(), config, opts)
			testkit.Must(t, err)
			defer l.Close()
			harness.Exercise(t, l, "open")
		})
	}
}

// A search_path that leads to another table of the same name later on leads to no other locks.
func TestSearchPath(t *testing.T) {
	t.Parallel()
	name := table(t)
	pool := poolWith(t, map[string]string{"search_path": "other_path, public"})
	l := locker(t, pool, name)
	lock, err := l.TryLock(t.Context(), "x")
	testkit.Must(t, err)
	exec(t, pool, "CREATE SCHEMA other_path")
	t.Cleanup(func() { exec(t, pool, "DROP SCHEMA other_path CASCADE") })
	text, err := Schema("other_path." + name)
	testkit.Must(t, err)
	exec(t, pool, text)
	if _, err := l.TryLock(t.Context(), "x"); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("the lock is gone: %v", err)
	}
	testkit.Should(t, lock.Unlock(t.Context()))
}

// A server that becomes read-only, as the old primary after a failover, is left: the connection is closed, and a call
// that waits goes on when writes are taken again.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := servers.ForTest(t, servers.Postgres)
	pool := poolOf(t, s.URL()+"?default_transaction_read_only=off")
	l, err := Open(t.Context(), s.LockURL(), nil)
	testkit.Must(t, err)
	defer l.Close()
	d := storeOf(t, l)
	alter(t, pool, "SET default_transaction_read_only = on")
	testkit.Until(t, "the server refuses", func() bool {
		lock, err := l.TryLock(t.Context(), "x")
		if err == nil {
			_ = lock.Unlock(t.Context())
			return false // before the server has read it
		}
		if !hasCode(err, readOnly) || driver.FateOf(err) != driver.NotNow {
			t.Fatalf("the error is %v, want one of code %s that passes", err, readOnly)
		}
		return true
	})
	testkit.Until(t, "the connection is closed", func() bool { return d.pool.Stat().TotalConns() == 0 })
	if _, err := Open(t.Context(), s.LockURL(), nil); !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Open: %v", err)
	}
	locked := make(chan error, 1)
	go func() { _, err := l.Lock(t.Context(), "x"); locked <- err }()
	alter(t, pool, "RESET default_transaction_read_only")
	testkit.Should(t, <-locked)
}

// storeOf is the store of a Locker, found by a claim of it.
func storeOf(t *testing.T, l *Locker) *store {
	t.Helper()
	lock, err := l.TryLock(t.Context(), "store-of")
	testkit.Must(t, err)
	defer lock.Unlock(t.Context())
	held, ok := distlock.As[*Lock](lock)
	if !ok {
		t.Fatalf("%T is no *Lock", lock)
	}
	return held.claim.store
}

// What commits with Guard was written under the lock, and nobody else gets the name before the transaction ends.
func TestGuard(t *testing.T) {
	t.Parallel()
	pool, name := poolWith(t, nil), table(t)
	l, other := locker(t, pool, name), locker(t, pool, name)
	lock, err := l.TryLock(t.Context(), "x", distlock.TTL(3*time.Second), distlock.NoRenewal()) // Guard comes before its end, on any machine
	testkit.Must(t, err)
	held, _ := distlock.As[*Lock](lock)
	tx, err := pool.Begin(t.Context())
	testkit.Must(t, err)
	testkit.Must(t, held.Guard(t.Context(), tx))
	<-lock.Done() // the lease ends
	got := make(chan error, 1)
	go func() { _, err := other.Lock(t.Context(), "x"); got <- err }()
	// The other asks for the row, and waits for the transaction.
	testkit.Until(t, "the other waits for the row", func() bool {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO%"+name+"%'").Scan(&n)
		return err == nil && n > 0
	})
	select {
	case err := <-got:
		t.Fatalf("another got the name within the transaction: %v", err)
	default:
	}
	testkit.Must(t, tx.Commit(t.Context()))
	testkit.Must(t, <-got)
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return held.Guard(t.Context(), tx) })
	if !errors.Is(err, distlock.ErrLost) || strings.Count(err.Error(), "distlock: ") > 1 {
		t.Errorf("Guard of a lock that has ended: %v", err)
	}
}

// What the database says: a role with the documented rights can do what the page says, and no more is needed.
func TestRights(t *testing.T) {
	t.Parallel()
	pool, name := poolWith(t, nil), table(t)
	exec(t, pool, "CREATE ROLE rights LOGIN PASSWORD 'rights'")
	t.Cleanup(func() { exec(t, pool, "DROP OWNED BY rights; DROP ROLE rights") })
	config, err := pgxpool.ParseConfig(server(t).URL())
	testkit.Must(t, err)
	config.ConnConfig.User, config.ConnConfig.Password = "rights", "rights"
	weak, err := pgxpool.NewWithConfig(t.Context(), config)
	testkit.Must(t, err)
	defer weak.Close()
	if _, err := New(weak, &Options{Table: name}); err == nil || !strings.Contains(err.Error(), "SELECT, INSERT and UPDATE") {
		t.Errorf("without rights: %v", err)
	}
	if _, err := New(weak, &Options{Table: "made_by_weak", Create: true}); driver.FateOf(err) != driver.Answered {
		t.Errorf("create without the right to: %v", err)
	}
	exec(t, pool, "GRANT SELECT, INSERT, UPDATE ON "+name+" TO rights")
	l := locker(t, weak, name)
	lock, err := l.TryLock(t.Context(), "x")
	testkit.Must(t, err)
	testkit.Should(t, lock.Unlock(t.Context()))
	if _, err := l.Sweep(t.Context(), time.Hour); driver.FateOf(err) != driver.Answered {
		t.Errorf("sweep without the right to: %v", err)
	}
	exec(t, pool, "GRANT DELETE ON "+name+" TO rights")
	if _, err := l.Sweep(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
}

// Open refuses what would not keep locks.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, nil)
	for name, tc := range map[string]struct{ sql, table, want string }{
		"missing":      {"SELECT 1", "refuses_missing", "create=true"},
		"unlogged":     {"CREATE UNLOGGED TABLE refuses_unlogged (LIKE distlock INCLUDING ALL)", "refuses_unlogged", "unlogged"},
		"other column": {"CREATE TABLE refuses_column (LIKE distlock INCLUDING ALL); ALTER TABLE refuses_column ALTER holder TYPE text USING ''", "refuses_column", "columns"},
		"no key":       {"CREATE TABLE refuses_key (LIKE distlock)", "refuses_key", "primary key"},
		"bad name":     {"SELECT 1", `a"b`, "allowed are"},
	} {
		t.Run(name, func(t *testing.T) {
			exec(t, pool, mustSchema(t, DefaultTable))
			for statement := range strings.SplitSeq(tc.sql, ";") {
				exec(t, pool, statement)
			}
			if _, err := New(pool, &Options{Table: tc.table}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want one with %q", err, tc.want)
			}
		})
	}
}

func mustSchema(t *testing.T, table string) string {
	t.Helper()
	text, err := Schema(table)
	testkit.Must(t, err)
	return text
}

// With synchronous_commit off, a crash loses what was answered: the class says so.
func TestDurability(t *testing.T) {
	t.Parallel()
	name := table(t)
	for commit, want := range map[string]driver.Durability{"off": driver.Volatile, "local": driver.Restart, "on": driver.Restart} {
		if got := locker(t, poolWith(t, map[string]string{"synchronous_commit": commit}), name).Capabilities().Durability; got != want {
			t.Errorf("synchronous_commit=%s: %v, want %v", commit, got, want)
		}
	}
}
