package pglock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestStandby promotes a standby after its primary has died. Locks that it has go on there, for a Locker that knows both
// hosts. One that it has not is granted again while the first holder believes: the documented overlap. Its token tells
// the two apart.
func TestStandby(t *testing.T) {
	t.Parallel()
	ctx, primary := t.Context(), servers.ConfiguredForTest(t, servers.Postgres)
	standby := servers.StandbyForTest(t, primary)
	admin := poolOf(t, standby.URL())
	opened := func(url string) *Locker {
		t.Helper()
		l, err := Open(ctx, url, &Options{Create: true, Options: distlock.Options{TTL: time.Minute}})
		testkit.Must(t, err)
		return l
	}
	l := opened(strings.Replace(primary.URL(), primary.Addr(), standby.Addr()+","+primary.Addr(), 1))
	kept, err := l.TryLock(ctx, "kept")
	testkit.Must(t, err)
	testkit.Until(t, "the standby has the lock", func() bool {
		var token int64
		err := admin.QueryRow(ctx, "SELECT token FROM distlock WHERE name = 'kept'").Scan(&token)
		return err == nil && token == kept.Token()
	})
	if _, err := Open(ctx, standby.URL(), nil); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Open of a standby: %v, want that it is read-only", err)
	}

	alter(t, admin, "SET primary_conninfo = ''") // what comes now is lost
	testkit.Until(t, "nothing is replicated any more", func() bool {
		var n int
		err := admin.QueryRow(ctx, "SELECT count(*) FROM pg_stat_wal_receiver").Scan(&n)
		return err == nil && n == 0
	})
	lost, err := l.TryLock(ctx, "lost")
	testkit.Must(t, err)
	testkit.Must(t, primary.Kill(ctx))
	exec(t, admin, "SELECT pg_promote()")

	young := opened(standby.URL())
	if _, err := young.TryLock(ctx, "kept"); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("a lock that was replicated: %v", err)
	}
	second, err := young.TryLock(ctx, "lost")
	if err != nil || lost.Err() != nil {
		t.Fatalf("no overlap, so this test shows nothing: %v, %v", err, lost.Err())
	}
	if second.Token() <= lost.Token() {
		t.Errorf("the second holder has token %d, the first has %d: a stale write would be accepted", second.Token(), lost.Token())
	}
	testkit.Until(t, "the lock that was replicated is renewed", func() bool { return kept.Extend(ctx, time.Minute) == nil })
	if err := lost.Extend(ctx, time.Minute); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Extend of the lock that was not replicated: %v", err)
	}
	for _, l := range []*Locker{l, young} {
		testkit.Should(t, l.Close())
	}
}
