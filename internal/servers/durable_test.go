package servers

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
)

// A durable server must wait for the disk as its store does by default.
func TestStartDurable(t *testing.T) {
	t.Parallel()
	for kind, without := range withoutFsync {
		run, err := recipes[kind].local(t.Context(), site{dir: openDir(t), port: 1, secret: "x"})
		if errors.As(err, new(unavailable)) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, arg := range without {
			if !strings.Contains(strings.Join(run.args, "\n"), arg) {
				t.Errorf("%s is not started with %q, so that nothing is left out by leaving that out", kind, arg)
			}
		}
	}
	s := forTest(t, MySQL, func(ctx context.Context, kind Kind) (*Server, error) { return StartDurable(ctx, kind) })
	config, err := mysqlConnector(s.url)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(config)
	defer db.Close()
	var name, value string
	if err := db.QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'innodb_flush_log_at_trx_commit'").Scan(&name, &value); err != nil || value != "1" {
		t.Errorf("%s is %q (%v), want 1", name, value, err)
	}
}
