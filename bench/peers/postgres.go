package peers

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // what cirello.io/pglock wants

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

// advisoryConns stays below the 500 connections that the servers of a run allow.
const advisoryConns = 400

var advisory = Peer{
	Name: "pg_advisory_lock", Store: servers.Postgres, Most: advisoryConns,
	Note: "Written here: `pg_advisory_lock` of the name's hash on a connection of its own for each lock, which a pool lends; nothing survives the connection, no token, no pooler.",
	Open: func(ctx context.Context, t Target) (distlock.Locker, error) {
		config, err := pgxpool.ParseConfig(t.URLs[0])
		if err != nil {
			return nil, err
		}
		config.MaxConns = advisoryConns
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		closeAll := func() error { pool.Close(); return nil }
		return &locker{close: closeAll, lock: func(ctx context.Context, name string) (*held, error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
				conn.Release()
				return nil, err
			}
			return &held{unlock: func(ctx context.Context) error {
				defer conn.Release()
				var yes bool
				err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name).Scan(&yes)
				return refused(yes, err)
			}}, nil
		}}, nil
	},
}

// cirelloLease is short, because a waiter looks again when it is over, and not before. The test has a longer one.
var cirelloLease = time.Second

var cirello = Peer{
	Name: "cirello.io/pglock", Store: servers.Postgres, Module: "cirello.io/pglock",
	Note: "A lease of 1 s, 20 s by default: a waiter asks again when one is over. Renewed by a goroutine a lock, twice a lease at the least.",
	Open: func(ctx context.Context, t Target) (distlock.Locker, error) {
		db, err := sql.Open("postgres", t.URLs[0]+"?sslmode=disable")
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(poolSize)
		db.SetMaxIdleConns(poolSize)
		locks, err := pglock.New(db, pglock.WithCustomTable("bench_cirello"),
			pglock.WithLeaseDuration(cirelloLease), pglock.WithHeartbeatFrequency(cirelloLease/3))
		if err == nil {
			err = locks.TryCreateTable()
		}
		if err != nil && !strings.Contains(err.Error(), "pg_type_typname_nsp_index") { // another client creates it at this moment
			return nil, errors.Join(err, db.Close())
		}
		return &locker{close: db.Close, lock: func(ctx context.Context, name string) (*held, error) {
			// Its context is also that of the renewal.
			l, err := locks.AcquireContext(context.WithoutCancel(ctx), name)
			if err != nil {
				return nil, err
			}
			return &held{unlock: func(ctx context.Context) error { return locks.ReleaseContext(ctx, l) }, lost: l.IsReleased}, nil
		}}, nil
	},
}
