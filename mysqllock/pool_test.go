package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/testkit"
)

// foreign is the driver of another database.
type foreign struct{}

func (foreign) Connect(context.Context) (sqldriver.Conn, error) {
	return nil, errors.New(`ERROR: syntax error at or near "ON" (SQLSTATE 42601)`)
}
func (foreign) Driver() sqldriver.Driver            { return foreign{} }
func (foreign) Open(string) (sqldriver.Conn, error) { return nil, errors.ErrUnsupported }

// What New fails with because of the user's pool is told as that.
func TestPoolOfUser(t *testing.T) {
	t.Parallel()
	wrong := sql.OpenDB(foreign{})
	defer wrong.Close()
	if _, err := New(wrong, nil); err == nil || !strings.Contains(err.Error(), "the driver of the pool is mysqllock.foreign, allowed is that of github.com/go-sql-driver/mysql") {
		t.Errorf("New on a pool of another driver: %v", err)
	}
	silent := testkit.Silent(t) // as a Postgres is
	if _, err := Open(t.Context(), "mysql://u:secret@"+silent+"/db?dial_timeout=100ms", nil); err == nil || !strings.Contains(err.Error(), "no answer from "+silent+" within 100ms (a MySQL or MariaDB speaks first") {
		t.Errorf("Open of another server: %v", err)
	}
	db := pool(t, nil)
	db.SetMaxOpenConns(1)
	busy, err := db.Conn(t.Context())
	testkit.Must(t, err)
	defer busy.Close()
	_, err = open(t.Context(), &store{db: db}, new(Options), 200*time.Millisecond)
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no connection of the pool came free in time: all 1 are in use") {
		t.Errorf("New on a pool that is in use: %v", err)
	}
}
