package pglock

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

func TestMain(m *testing.M) { harness.Main(m, openURL, shared.Close) }

func openURL(ctx context.Context, url, namespace string) (distlock.Locker, error) {
	return Open(ctx, url, &Options{Table: namespace, Create: true})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	h := harness.New(t, servers.Postgres, openURL)
	harness.Run(t, inspected{h, poolOf(t, h.URL())}, harness.Pinned(h.Server, unfair...))
}

// unfair are the checks about a queue over all processes. There is none: the first to ask gets the name.
var unfair = []string{
	"after/order", "fair/try-does-not-barge", "fair/expiry-does-not-barge", "fair/cancelled-skipped",
	"handover/order-kept", "handover/lock-does-not-barge", "sweep/waited-only",
}

func poolOf(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	testkit.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// inspected looks into the table without the driver.
type inspected struct {
	*harness.Harness
	pool *pgxpool.Pool
}

// Records implements conformance.Inspector. The row itself is no record: it stays.
func (h inspected) Records(ctx context.Context, name string) (n int, err error) {
	err = h.pool.QueryRow(ctx, "SELECT count(*) FROM "+DefaultTable+" WHERE name = $1 AND NOT released AND expires > clock_timestamp()", []byte(name)).Scan(&n)
	return n, err
}

// Waiters implements conformance.Inspector. The row has those that want to be told of a release.
func (h inspected) Waiters(ctx context.Context, name string) (n int, err error) {
	err = h.pool.QueryRow(ctx, "SELECT coalesce(sum(length(waiters) / 16), 0) FROM "+DefaultTable+" WHERE name = $1", []byte(name)).Scan(&n)
	return n, err
}

// BlockName implements conformance.NameBlocker: the row of the name is locked by a
// transaction that nobody ends, as by an administrator's client.
func (h inspected) BlockName(ctx context.Context, name string) (func() error, error) {
	ctx = context.WithoutCancel(ctx)
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	rollback := func() error { return tx.Rollback(ctx) }
	var token int64
	err = tx.QueryRow(ctx, "SELECT token FROM "+DefaultTable+" WHERE name = $1 FOR UPDATE", []byte(name)).Scan(&token)
	if err != nil {
		return nil, errors.Join(err, rollback())
	}
	return rollback, nil
}

// Delete implements conformance.Inspector.
func (h inspected) Delete(ctx context.Context, name string) error {
	_, err := h.pool.Exec(ctx, "UPDATE "+DefaultTable+" SET released = true, owner = '' WHERE name = $1", []byte(name))
	return err
}
