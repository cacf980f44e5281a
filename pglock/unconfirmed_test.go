package pglock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A commit that waits for the standby, and is cancelled there, is answered as a success, with a warning. The standby may lack it,
// so nobody may believe it: neither a grant, nor a renewal, nor a release. This holds also where warnings are turned off by others.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), servers.ConfiguredForTest(t, servers.Postgres)
	admin := poolOf(t, s.URL()+"?synchronous_commit=local")
	alter(t, admin, "SET client_min_messages = 'error'")
	l := value[*Locker](t)(Open(ctx, s.URL(), &Options{Create: true, Options: distlock.Options{TTL: time.Hour}}))
	testkit.Must(t, value[distlock.Lock](t)(l.TryLock(ctx, "y")).Unlock(ctx)) // what is inserted late is asked for twice
	d, c := storeOf(t, l), claimOn(t, l)
	value[driver.Grant](t)(c.Try(ctx))

	// cancelled has the wait for the standby cancelled that a call comes to, and returns what the call does.
	cancelled := func(call func() error) error {
		t.Helper()
		returned := make(chan error, 1)
		go func() { returned <- call() }()
		testkit.Until(t, "a commit waits for the standby", func() bool {
			tag, err := admin.Exec(ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
			return err == nil && tag.RowsAffected() > 0
		})
		return <-returned
	}
	alter(t, admin, "SET synchronous_standby_names = 'nobody'")
	// Commits begin to wait once another process of the server has read that.
	testkit.Must(t, cancelled(func() error { return commitsUntilWarned(ctx, s.URL()) }))

	for _, tc := range []struct {
		what string
		call func() error
	}{
		{"a grant", func() error { _, err := c.Try(ctx); return err }},
		{"a renewal", func() error {
			batch := []driver.Renewal{{Claim: c, TTL: time.Hour}}
			d.Renew(ctx, batch)
			return batch[0].Err
		}},
		{"a renewal that is sent alone", func() error { _, err := d.renewAlone(ctx, c, time.Hour); return err }},
		{"a release", func() error { return c.Release(ctx) }},
	} {
		if err := cancelled(tc.call); err == nil || driver.FateOf(err) != driver.Unknown || !strings.Contains(err.Error(), "standby") {
			t.Errorf("%s that the standby may lack: %v, fate %v", tc.what, err, driver.FateOf(err))
		}
	}
	err := cancelled(func() error { _, err := l.TryLock(ctx, "y"); return err })
	if err == nil || driver.FateOf(err) != driver.Unknown {
		t.Fatalf("TryLock of a lock that the standby may lack: %v, fate %v", err, driver.FateOf(err))
	}

	alter(t, admin, "RESET synchronous_standby_names")
	lock := value[distlock.Lock](t)(l.Lock(ctx, "y")) // the claim that failed is undone
	testkit.Should(t, lock.Unlock(ctx))
	testkit.Should(t, c.Release(ctx)) // nothing is left of the warning
	testkit.Should(t, l.Close())
}

// commitsUntilWarned commits over a connection that hears of warnings, until there is one.
func commitsUntilWarned(ctx context.Context, url string) error {
	config, err := pgx.ParseConfig(url + "?client_min_messages=warning")
	if err != nil {
		return err
	}
	warned := false
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { warned = true }
	conn, err := pgx.ConnectConfig(ctx, config)
	for err == nil && !warned {
		_, err = conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'distlock', '')")
	}
	if conn != nil {
		_ = conn.Close(ctx)
	}
	return err
}
