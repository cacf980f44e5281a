package sandbox

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock/internal/openurl"
)

type barePostgres struct {
	pool        *pgxpool.Pool
	locks, bare string // tables, quoted
}

// openBarePostgres makes a table of its own. Its row is written twice, as by taking and
// freeing a lock that has been held before.
func openBarePostgres(ctx context.Context, u *openurl.URL, table string) (Client, error) {
	plain := url.URL{Scheme: "postgres", Host: strings.Join(u.HostsDefault("5432"), ","), Path: u.Path(), RawQuery: "sslmode=disable"}
	if name, password, ok := u.User(); ok {
		plain.User = url.UserPassword(name, password)
	}
	secure := u.TLS()
	if err := invalid(u); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(plain.String())
	if err != nil {
		return nil, errors.New("pgx cannot parse the URL") // its error may show the password
	}
	config.MaxConns = 16 // as those of the driver under test
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // for poolers, which have no sessions to prepare in
	if secure != nil {
		if secure.ServerName == "" {
			secure.ServerName = config.ConnConfig.Host
		}
		config.ConnConfig.TLSConfig = secure
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	name := strings.Split(table, ".")
	b := &barePostgres{pool: pool, locks: pgx.Identifier(name).Sanitize()}
	name[len(name)-1] += "_bare"
	b.bare = pgx.Identifier(name).Sanitize()
	_, err = pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+b.bare+" (name text PRIMARY KEY, owner text, token bigint NOT NULL) WITH (fillfactor = 50)")
	if err != nil {
		pool.Close()
		return nil, err
	}
	return b, nil
}

func (b *barePostgres) Commands() string { return "INSERT … ON CONFLICT DO UPDATE, UPDATE" }

// Close has no error to tell.
func (b *barePostgres) Close() error {
	b.pool.Close()
	return nil
}

func (b *barePostgres) Pair(ctx context.Context, key string) error {
	_, err := b.pool.Exec(ctx, "INSERT INTO "+b.bare+" AS t VALUES ($1, 'owner', 1) ON CONFLICT (name) DO UPDATE SET owner = 'owner', token = t.token + 1", key)
	if err != nil {
		return err
	}
	_, err = b.pool.Exec(ctx, "UPDATE "+b.bare+" SET owner = NULL WHERE name = $1 AND owner = 'owner'", key)
	return err
}

func (b *barePostgres) Version(ctx context.Context) (version string) {
	_ = b.pool.QueryRow(ctx, "SHOW server_version").Scan(&version) // empty if it does not say
	return version
}

// Remove drops the tables.
func (b *barePostgres) Remove(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, "DROP TABLE IF EXISTS "+b.locks+", "+b.bare)
	return err
}
