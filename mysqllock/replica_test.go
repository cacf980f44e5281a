package mysqllock

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// follower is a primary with an asynchronous replica that refuses writes.
type follower struct {
	t                *testing.T
	primary, replica *servers.Server
	admin            *sql.DB // of the replica
}

// follow starts both. The statements are those of MariaDB.
func follow(t *testing.T) *follower {
	t.Helper()
	primary := servers.ConfiguredForTest(t, servers.MySQL, "log-bin", "binlog-format=ROW", "server-id=1")
	if !strings.Contains(primary.Version(), "MariaDB") {
		t.Skip("the statements that make a replica are those of MariaDB, and this is MySQL")
	}
	f := &follower{t: t, primary: primary,
		replica: servers.ConfiguredForTest(t, servers.MySQL, "log-bin", "binlog-format=ROW", "server-id=2")}
	f.admin = poolOf(t, config(t, f.replica.AdminURL()))

	var file, ignored string
	var at int
	status := poolOf(t, config(t, primary.AdminURL())).QueryRow("SHOW MASTER STATUS")
	testkit.Must(t, status.Scan(&file, &at, &ignored, &ignored))
	host, port, err := net.SplitHostPort(primary.Addr())
	testkit.Must(t, err)
	u, err := url.Parse(primary.AdminURL())
	testkit.Must(t, err)
	password, _ := u.User.Password()
	f.do(fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_PASSWORD='%s', "+
		"MASTER_LOG_FILE='%s', MASTER_LOG_POS=%d", host, port, password, file, at), "START SLAVE", "SET GLOBAL read_only = 1")
	return f
}

// do has the replica do something.
func (f *follower) do(statements ...string) {
	f.t.Helper()
	for _, text := range statements {
		if _, err := f.admin.Exec(text); err != nil {
			f.t.Fatalf("%s: %v", text, err)
		}
	}
}

// has waits until the replica has a lock with its token.
func (f *follower) has(lock distlock.Lock) {
	f.t.Helper()
	testkit.Until(f.t, "the replica has the lock", func() bool {
		var token int64
		err := f.admin.QueryRow("SELECT token FROM distlock.distlock WHERE name = ?", lock.Name()).Scan(&token)
		return err == nil && token == lock.Token()
	})
}

// TestReplica promotes a replica after its primary has died. Locks that it has are held there. One
// that it has not is granted again while the first holder believes: the documented overlap. Its
// token tells the two apart. Before that, the replica is refused at Open; afterwards, a restart
// keeps the locks.
func TestReplica(t *testing.T) {
	t.Parallel()
	f := follow(t)
	ctx := t.Context()
	opens := func(s *servers.Server) *Locker {
		t.Helper()
		l, err := Open(ctx, s.URL(), &Options{Create: true, Options: distlock.Options{TTL: time.Minute}})
		testkit.Must(t, err)
		return l
	}
	readOnly := func(what string) {
		t.Helper()
		l, err := Open(ctx, f.replica.URL(), &Options{Create: true})
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), "replica") {
			t.Errorf("Open of a replica, %s: %v, want that it is read-only", what, err)
		}
	}
	readOnly("without a table")
	wantError(t, "Close", opens(f.primary).Close(), nil) // has made the table
	pool := poolOf(t, config(t, f.primary.URL()))
	old, err := New(pool, &Options{Options: distlock.Options{TTL: time.Minute}})
	wantError(t, "New", err, nil)
	kept, err := old.TryLock(ctx, "kept")
	wantError(t, "TryLock", err, nil)
	f.has(kept)
	readOnly("with a table")
	if _, err := New(poolOf(t, config(t, f.replica.URL())), nil); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("New on a replica: %v, want that it is read-only", err)
	}

	f.do("STOP SLAVE") // what comes now is lost
	first, err := old.TryLock(ctx, "lost")
	wantError(t, "TryLock", err, nil)
	wantError(t, "Kill", f.primary.Kill(ctx), nil)
	f.do("RESET SLAVE ALL", "SET GLOBAL read_only = 0")
	young := opens(f.replica)
	if _, err := young.TryLock(ctx, "kept"); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("TryLock of a lock that was replicated: %v, want ErrHeld", err)
	}
	second, err := young.TryLock(ctx, "lost")
	wantError(t, "TryLock of a lock that was not replicated", err, nil)
	if first.Err() != nil || second.Err() != nil {
		t.Errorf("no overlap, so this test shows nothing: %v, %v", first.Err(), second.Err())
	}
	if second.Token() <= first.Token() {
		t.Errorf("the second holder has token %d, the first has %d: a stale write would be accepted", second.Token(), first.Token())
	}

	wantError(t, "Restart", f.replica.Restart(ctx), nil)
	wantError(t, "Extend after a restart", second.Extend(ctx, time.Minute), nil)
	rival := opens(f.replica)
	if _, err := rival.TryLock(ctx, "lost"); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("TryLock after a restart: %v, want ErrHeld", err)
	}
	wantError(t, "Unlock after a restart", second.Unlock(ctx), nil)
	wantError(t, "Close", pool.Close(), nil) // or Close of its Locker would wait for the primary
	old.Close()
	for _, l := range []*Locker{rival, young} {
		wantError(t, "Close", l.Close(), nil)
	}
}
