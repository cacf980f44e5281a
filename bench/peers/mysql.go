package peers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

// openMySQL returns a pool of up to conns connections that are kept once made, as
// those of distlock are.
func openMySQL(rawURL string, conns int) (*sql.DB, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	c.InterpolateParams = true // one round trip a statement
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// getLockConns stays below the 500 connections that the servers of a run allow.
const getLockConns = 400

var getLock = Peer{
	Name: "GET_LOCK", Store: servers.MySQL, Most: getLockConns,
	Note: "Written here: `GET_LOCK` on a connection of its own for each lock, which a pool lends; nothing survives the connection, no token.",
	Open: func(_ context.Context, t Target) (distlock.Locker, error) {
		db, err := openMySQL(t.URLs[0], getLockConns)
		if err != nil {
			return nil, err
		}
		return &locker{close: db.Close, lock: func(ctx context.Context, name string) (*held, error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			ask := func(ctx context.Context, query string) error {
				var yes sql.NullInt64
				err := conn.QueryRowContext(ctx, query, name).Scan(&yes)
				return refused(yes.Int64 == 1, err)
			}
			if err := ask(ctx, "SELECT GET_LOCK(?, 86400)"); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			return &held{unlock: func(ctx context.Context) error {
				return errors.Join(ask(ctx, "SELECT RELEASE_LOCK(?)"), conn.Close())
			}}, nil
		}}, nil
	},
}

const (
	// pollEvery is what libraries with a table poll at, give or take.
	pollEvery = 100 * time.Millisecond
	// poolSize is that of distlock by default.
	poolSize = 16

	polledCreate = `CREATE TABLE IF NOT EXISTS bench_polled
		(name VARBINARY(255) PRIMARY KEY, owner VARBINARY(64) NOT NULL, expires DATETIME(6) NOT NULL) ENGINE=InnoDB`

	// The second assignment sees the owner that the first has left.
	polledTry = `INSERT INTO bench_polled VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
		ON DUPLICATE KEY UPDATE owner = IF(expires < UTC_TIMESTAMP(6), VALUES(owner), owner),
			expires = IF(owner = VALUES(owner), VALUES(expires), expires)`
	polledExtend = `UPDATE bench_polled SET expires = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE name = ? AND owner = ?`
	polledFree   = `DELETE FROM bench_polled WHERE name = ? AND owner = ?`
)

var polledTable = Peer{
	Name: "polled table", Store: servers.MySQL,
	Note: "Written here: a row per lock with an owner and an expiry, one statement a try, `DELETE` to release, a try every 100 ms; renewed by a goroutine a lock where locks are held.",
	Open: func(ctx context.Context, t Target) (distlock.Locker, error) {
		db, err := openMySQL(t.URLs[0], poolSize)
		if err != nil {
			return nil, err
		}
		if _, err := db.ExecContext(ctx, polledCreate); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		ttl := t.TTL.Microseconds()
		return &locker{close: db.Close, lock: func(ctx context.Context, name string) (*held, error) {
			owner := rand.Text()
			for {
				got, err := changed(db.ExecContext(ctx, polledTry, name, owner, ttl))
				if err != nil {
					return nil, err
				}
				if got {
					break
				}
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(pollEvery):
				}
			}
			return &held{
				unlock: func(ctx context.Context) error { return refused(changed(db.ExecContext(ctx, polledFree, name, owner))) },
				renew: renewed(t, func(ctx context.Context) error {
					return refused(changed(db.ExecContext(ctx, polledExtend, ttl, name, owner)))
				}),
			}, nil
		}}, nil
	},
}

// changed reports whether a statement has changed a row.
func changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}
