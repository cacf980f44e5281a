package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestWaitForRowIsNotDeducted has somebody's transaction block the row of a free
// name: the lease must be whole when the grant comes.
func TestWaitForRowIsNotDeducted(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, nil), freshTable(t))
	old := d.claimOn("n", time.Minute)
	grants(t, old)
	testkit.Must(t, old.Release(t.Context()))
	tx := lockRow(t, d, "n")
	working := watch(t, d)
	c := d.claimOn("n", 2*time.Second)
	var unblocked time.Time
	done := make(chan struct{})
	go func() {
		defer close(done)
		testkit.Until(t, "the statement waits for the row", func() bool { return working() > 0 })
		time.Sleep(time.Second) // half the lease
		unblocked = time.Now()
		testkit.Should(t, tx.Commit())
	}()
	g := grants(t, c)
	<-done
	st, err := d.Inspect(t.Context(), "n")
	testkit.Must(t, err)
	if left := g.TTL - time.Since(unblocked); st.Remaining < left {
		t.Errorf("the server keeps the lease for %v, which are less than the %v since the row was free", st.Remaining, left)
	}
}

// TestLateStatementIsRefused applies acquisitions after their release, as a server does that finds a
// request in a socket long after its client has gone. What happens to a single one is looked
// at in the group pair/ of the suite: this is about many, and about a row that has a lease.
func TestLateStatementIsRefused(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, nil), freshTable(t))
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	var late []request
	for i := range 33 { // one more than the row remembers, for the newest must win
		c := d.claimOn("n", time.Minute)
		if _, err := c.Try(over); err == nil {
			t.Fatal("Try with a context that is over: no error")
		}
		for range 1 + i%2 { // a repeated release must not use up the list
			c.ambiguous = true
			testkit.Must(t, c.Release(t.Context()))
		}
		late = append(late, d.acquire.with(c.values(), 60_000_000, 0))
	}
	for i, statement := range late[1:] {
		if answer, _, err := d.exec(t.Context(), statement); answer != 0 || err != nil {
			t.Errorf("late statement %d answered %d, %v, want 0", i+1, answer, err)
		}
	}
	holder := d.claimOn("n", time.Minute)
	grants(t, holder)
	if _, err := holder.Renew(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	own := d.acquire.with(holder.values(), 60_000_000, 0)
	if answer, _, err := d.exec(t.Context(), own); answer <= 0 || err != nil {
		t.Errorf("a late copy of the holder's own Try answered %d, %v, want the token", answer, err)
	}
	if st, err := d.Inspect(t.Context(), "n"); err != nil || st.Remaining < 30*time.Minute {
		t.Errorf("%v are left of an hour after it, %v", st.Remaining, err)
	}
	for i, statement := range late[1:] {
		if answer, _, err := d.exec(t.Context(), statement); answer > 0 || err != nil {
			t.Errorf("late statement %d answered %d, %v while the name is held", i+1, answer, err)
		}
	}
	if err := holder.Release(t.Context()); err != nil {
		t.Errorf("Release of the holder among late statements: %v", err)
	}
}

// TestReleaseTwice has something between, such as a proxy after a broken connection, send a release twice: the second answer is that of
// the first, and the name is kept for claims that wait no longer than after the first.
func TestReleaseTwice(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, clockStands), freshTable(t))
	for _, statement := range []string{"release", "release-and-wake"} {
		c := d.claimOn("n", time.Minute)
		grants(t, c)
		age(t, d, "acquired", time.Second)
		_, err := d.db.Exec("UPDATE " + d.sql.table + " SET waited = acquired") // a claim has come for it
		testkit.Must(t, err)
		v := c.values()
		v.lock = d.sql.namedLock("n").lock
		for range 2 {
			if _, rows, err := d.exec(t.Context(), d.plain(d.db, d.sql.fill(statement, v))); rows != 1 || err != nil {
				t.Errorf("%s changed %d rows, %v, want one", statement, rows, err)
			}
			age(t, d, "waited", 500*time.Millisecond)
		}
		var kept bool
		testkit.Must(t, d.db.QueryRow("SELECT "+d.sql.text["now"]+" - waited < 1000000 FROM "+d.sql.table).Scan(&kept))
		if kept {
			t.Errorf("the second %s has kept the name anew", statement)
		}
		releases(t, c)
		expire(t, d, "n")
		age(t, d, "token", time.Hour)
	}
}

// TestLateRegrantIsRefused applies a copy of a regrant that had no answer, after the next Try was granted: the holder's token stays.
func TestLateRegrantIsRefused(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, nil), freshTable(t))
	c := d.claimOn("n", time.Minute)
	token, _, err := d.exec(t.Context(), d.acquire.with(c.values(), time.Minute.Microseconds(), viaNothing))
	testkit.Must(t, err)
	v := c.values()
	v.number, v.seen = fmt.Sprint(time.Minute.Microseconds()), fmt.Sprint(token)
	late := d.plain(d.db, d.sql.fill("regrant", v))
	c.ambiguous = true
	g := grants(t, c)
	if answer, _, err := d.exec(t.Context(), late); answer != 0 || err != nil {
		t.Errorf("a late regrant answered %d, %v, want 0", answer, err)
	}
	if st, err := d.Inspect(t.Context(), "n"); err != nil || st.Token != g.Token {
		t.Errorf("the holder was told token %d, the row has %d, %v", g.Token, st.Token, err)
	}
	releases(t, c)
}

// TestRolledBackIsRetried has the server roll back statements for reasons of its own: a
// deadlock, a commit that another server of a cluster has refused. It is not seen outside.
func TestRolledBackIsRetried(t *testing.T) {
	t.Parallel()
	admin := adminPool(t)
	exec := func(format string, args ...any) {
		t.Helper()
		if _, err := admin.Exec(fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	for _, number := range []int{errDeadlock, errRolledBack, errCommitFailed, errRecordChanged} {
		seen, table := freshTable(t), freshTable(t)
		l, err := New(pool(t, nil), &Options{Table: table, Create: true})
		testkit.Must(t, err)
		defer l.Close()
		held, err := l.Lock(t.Context(), "n")
		testkit.Must(t, err)
		exec("CREATE TABLE %s (n INT) ENGINE=MyISAM", seen) // which no roll-back touches
		for _, step := range []struct {
			what string
			f    func(context.Context) error
		}{
			{"Extend", func(ctx context.Context) error { return held.Extend(ctx, time.Hour) }},
			{"Unlock", held.Unlock},
			{"TryLock", func(ctx context.Context) error { _, err := l.TryLock(ctx, "n"); return err }},
		} {
			exec("DELETE FROM %s", seen)
			exec("CREATE TRIGGER %s_t BEFORE UPDATE ON %s FOR EACH ROW BEGIN INSERT INTO %s VALUES (1); "+
				"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = %d; END", seen, table, seen, number)
			done := make(chan error, 1)
			go func() { done <- step.f(context.Background()) }()
			testkit.Until(t, "a statement is rolled back", func() (rolled bool) {
				testkit.Must(t, admin.QueryRow("SELECT COUNT(*) > 0 FROM "+seen).Scan(&rolled))
				return rolled
			})
			exec("DROP TRIGGER %s_t", seen)
			if err := <-done; err != nil {
				t.Errorf("%s, rolled back with %d and repeated: %v", step.what, number, err)
			}
		}
	}
}

// TestLockWait has the server give up on a row.
func TestLockWait(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, map[string]string{"innodb_lock_wait_timeout": "1"}), freshTable(t))
	c, next := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	grants(t, c)
	again := func(what string, err error) {
		t.Helper()
		if driver.FateOf(err) != driver.Again || !hasNumber(err, errLockWait) || errors.Is(err, distlock.ErrHeld) {
			t.Errorf("%s where the row is locked: %v, fate %v", what, err, driver.FateOf(err))
		}
	}
	tx := lockRow(t, d, "n")
	again("Release", c.Release(t.Context()))
	_, err := next.Try(t.Context())
	wantError(t, "Try of a held name whose row is locked", err, distlock.ErrHeld)
	testkit.Must(t, tx.Commit())
	releases(t, c)
	tx = lockRow(t, d, "n")
	_, err = next.Try(t.Context())
	again("Try of a free name", err)
	testkit.Must(t, tx.Commit())
	releases(t, next)
	grants(t, next)
}

// TestLockedTable has a session lock the whole table, as a backup may. A name that nobody holds is not held because of that.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, map[string]string{"lock_wait_timeout": "1"}), freshTable(t))
	holder := d.claimOn("n", time.Minute)
	grants(t, holder)
	expire(t, d, "n")
	backup, err := pool(t, nil).Conn(t.Context())
	testkit.Must(t, err)
	defer backup.Close()
	_, err = backup.ExecContext(t.Context(), "LOCK TABLES "+d.sql.table+" READ")
	testkit.Must(t, err)
	_, err = d.claimOn("n", time.Minute).Try(t.Context())
	if driver.FateOf(err) != driver.Again || errors.Is(err, distlock.ErrHeld) {
		t.Errorf("Try of an expired name in a locked table: %v, fate %v", err, driver.FateOf(err))
	}
	_, err = backup.ExecContext(t.Context(), "UNLOCK TABLES")
	testkit.Must(t, err)
	grants(t, d.claimOn("n", time.Minute))
}

// TestGuardOutlastsLease has a transaction keep the row of a lease that ends meanwhile: the name is held for others until the
// transaction ends, and a Lock waits for that.
func TestGuardOutlastsLease(t *testing.T) {
	t.Parallel()
	refused := make(chan struct{}, 10)
	tells := distlock.Observer{Contended: func(distlock.Contended) { refused <- struct{}{} }}
	l := openLockers(t, 1, Options{Options: distlock.Options{TTL: 30 * time.Second, Observer: &tells}})[0]
	d := l.driverOf(t)
	holder := d.claimOn("n", time.Minute)
	grants(t, holder)
	expire(t, d, "n")
	tx := lockRow(t, d, "n")
	var held *distlock.HeldError
	if _, err := l.TryLock(t.Context(), "n"); !errors.As(err, &held) || held.Remaining != 0 {
		t.Fatalf("TryLock behind a transaction: %v, want ErrHeld for an unknown time", err)
	}
	<-refused
	got := make(chan error, 1)
	go func() {
		next, err := l.Lock(t.Context(), "n")
		if err == nil {
			err = next.Unlock(t.Context())
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("Lock behind a transaction: %v", err)
	case <-refused:
	}
	testkit.Must(t, tx.Commit())
	testkit.Must(t, <-got)
}

// TestGuard writes under a lock in a transaction, whatever is added to its token.
func TestGuard(t *testing.T) {
	t.Parallel()
	db := pool(t, nil)
	l, err := New(db, &Options{Table: freshTable(t), Create: true, Options: distlock.Options{TokenBase: 1000}})
	testkit.Must(t, err)
	defer l.Close()
	held, err := l.Lock(t.Context(), "n")
	testkit.Must(t, err)
	lock := held.(*Lock)
	d := lock.claim.driver
	working := watch(t, d)

	tx, err := db.BeginTx(t.Context(), nil)
	testkit.Must(t, err)
	defer func() { _ = tx.Rollback() }()
	if err := lock.Guard(t.Context(), tx); err != nil {
		t.Fatalf("Guard of a held lock: %v", err)
	}
	rival := d.claimOn("n", time.Minute)
	tried := make(chan error, 1)
	go func() {
		_, err := rival.Try(context.Background())
		tried <- err
	}()
	testkit.Until(t, "the rival waits", func() bool { return working() > 0 })
	if err := lock.Guard(t.Context(), tx); err != nil {
		t.Fatalf("Guard, repeated: %v", err)
	}
	testkit.Must(t, tx.Commit())
	wantError(t, "the rival's Try", <-tried, distlock.ErrHeld)

	// The holder does not know yet that it has lost the name to the rival.
	expire(t, d, "n")
	grants(t, rival)
	tx2, err := db.BeginTx(t.Context(), nil)
	testkit.Must(t, err)
	wantError(t, "Guard by the former holder", lock.Guard(t.Context(), tx2), distlock.ErrLost)
	if err := tx2.Rollback(); err != nil { // the row stays locked for as long as tx2 is open
		t.Fatal(err)
	}
	_ = lock.Unlock(t.Context())
	if got, want := fmt.Sprint(lock.Guard(t.Context(), tx2)), `distlock: guard "n": unlocked`; got != want {
		t.Errorf("Guard after Unlock: %s, want %s", got, want)
	}
}
