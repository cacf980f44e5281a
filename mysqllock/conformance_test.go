package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	h := harness.New(t, servers.MySQL, openURL)
	// MySQL has no queue over all processes: the first to ask gets the name.
	harness.Run(t, inspected{h, poolOf(t, config(t, h.URL()))}, harness.Pinned(h.Server,
		"after/order", "fair/try-does-not-barge", "fair/expiry-does-not-barge", "fair/cancelled-skipped",
		"handover/order-kept", "handover/lock-does-not-barge", "sweep/waited-only"))
}

// TestPolling runs the checks about waiting for Lockers that nothing wakes up.
func TestPolling(t *testing.T) {
	t.Parallel()
	h := harness.On(t, server(t), func(ctx context.Context, url, namespace string) (distlock.Locker, error) {
		return Open(ctx, url, &Options{Table: namespace, Create: true, WaitConns: -1})
	})
	options := conformance.Options{Filter: func(k conformance.Check) bool {
		group, _, _ := strings.Cut(k.ID, "/")
		return group == "wait" || group == "fair" || group == "stress"
	}}
	if h.Server.Controlled() {
		options.Skips = []string{
			"fair/try-does-not-barge", "fair/expiry-does-not-barge", "fair/cancelled-skipped",
			// They count the wake-ups of those who are woken.
			"stress/herd", "wait/two-take-turns", "wait/three-take-turns", "wait/four-take-turns",
		}
	}
	harness.Run(t, inspected{h, poolOf(t, config(t, h.URL()))}, &options)
}

// inspected looks into the table without the driver.
type inspected struct {
	*harness.Harness
	db *sql.DB
}

// Records implements conformance.Inspector. The row itself is no record: it stays.
func (h inspected) Records(ctx context.Context, name string) (n int, err error) {
	query := "SELECT COUNT(*) FROM " + DefaultTable + " WHERE name = ? AND expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	err = h.db.QueryRowContext(ctx, query, []byte(name)).Scan(&n)
	return n, err
}

// Waiters implements conformance.Inspector.
func (h inspected) Waiters(context.Context, string) (int, error) { return -1, nil }

// BlockName implements conformance.NameBlocker: the row of the name is locked by a
// transaction that nobody ends, as by an administrator's client.
func (h inspected) BlockName(ctx context.Context, name string) (func() error, error) {
	tx, err := h.db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	var token int64
	err = tx.QueryRowContext(ctx, "SELECT token FROM "+DefaultTable+" WHERE name = x'"+hexOf(name)+"' FOR UPDATE").Scan(&token)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx.Rollback, nil
}

// Delete implements conformance.Inspector.
func (h inspected) Delete(ctx context.Context, name string) error {
	_, err := h.db.ExecContext(ctx, "UPDATE "+DefaultTable+" SET expires = 0, owner = '' WHERE name = ?", []byte(name))
	return err
}
