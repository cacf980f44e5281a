package gooselock_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/integrations/gooselock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

func open(t *testing.T, url string) distlock.Locker {
	t.Helper()
	l, err := backends.Open(t.Context(), url)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Should(t, l.Close()) })
	return l
}

// database is a new schema on a Postgres, to be migrated.
func database(t *testing.T, server *servers.Server) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	schema := "s" + strings.ToLower(rand.Text())
	config.RuntimeParams["search_path"] = schema
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	if _, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	return db
}

// goose's own suite, on each backend: five providers and five lockers at once.
func TestGoose(t *testing.T) {
	migrations := fstest.MapFS{
		"1_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (id INTEGER);\n")},
		"2_b.sql": {Data: []byte("-- +goose Up\nCREATE TABLE b (id INTEGER);\n")},
	}
	server := servers.ForTest(t, servers.Postgres)
	servers.Each(t, func(t *testing.T, url string) {
		t.Run("providers", func(t *testing.T) {
			db := database(t, server)
			locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
				p, err := goose.NewProvider(goose.DialectPostgres, db, migrations,
					goose.WithLocker(gooselock.New(open(t, url), "goose/providers")))
				if err != nil {
					t.Fatal(err)
				}
				return p
			})
		})
		t.Run("lockers", func(t *testing.T) {
			locktesting.TestConcurrentLocking(t, database(t, server), func(t *testing.T) lock.Locker {
				return gooselock.New(open(t, url), "goose/lockers")
			}, 2*time.Second) // the winner sleeps for twice that, and has five seconds more in all
		})
	})
}

// Two processes may have migrated side by side: this is not to be passed over.
func TestLossIsReported(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		locker, ctx := open(t, url), t.Context()
		l := gooselock.New(locker, "goose/lost")
		if err := l.Lock(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if err := distlock.Break(ctx, locker, "goose/lost", 0); err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(ctx, nil); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
}

// goose begins a second call before it unlocks for a first one that has lost its lock.
func TestSecondCallBeforeTheFirstUnlocks(t *testing.T) {
	locker, rival, ctx := open(t, "mem://goose-calls"), open(t, "mem://goose-calls"), t.Context()
	l := gooselock.New(locker, "x")
	if err := l.Lock(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := distlock.Break(ctx, locker, "x", 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Lock(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(ctx, nil); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("the first: %v, want ErrLost", err)
	}
	if _, err := rival.TryLock(ctx, "x"); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("the lock of the second: %v, want ErrHeld", err)
	}
	if err := l.Unlock(ctx, nil); err != nil {
		t.Errorf("the second: %v", err)
	}
}

func TestUnlockAfterTheContext(t *testing.T) {
	a, b := gooselock.New(open(t, "mem://goose"), "x"), gooselock.New(open(t, "mem://goose"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	if err := a.Lock(ctx, nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := a.Unlock(ctx, nil); err != nil {
		t.Error(err)
	}
	if err := a.Unlock(t.Context(), nil); err == nil {
		t.Error("a second Unlock succeeded")
	}
	if err := b.Lock(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Unlock(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
