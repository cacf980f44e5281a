package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// ownPool is a pool as Open makes it.
func ownPool(t *testing.T, conns int) *sql.DB {
	t.Helper()
	c, err := newConnector(config(t, server(t).URL()))
	testkit.Must(t, err)
	db := newPool(c, conns)
	t.Cleanup(func() { db.Close() })
	return db
}

// TestBlockedRowIsPassedOver renews several locks while the row of one is in another transaction.
// The others are renewed, and nothing waits for them meanwhile.
func TestBlockedRowIsPassedOver(t *testing.T) {
	t.Parallel()
	d := testDriver(t, ownPool(t, 8), freshTable(t))
	if !d.renewals.skip {
		t.Skip("the server cannot skip rows that are locked")
	}
	var batch []driver.Renewal
	for _, name := range []string{"a", "b", "c", "z"} {
		c := d.claimOn(name, time.Minute)
		grants(t, c)
		batch = append(batch, driver.Renewal{Claim: c, TTL: time.Hour})
	}
	tx := lockRow(t, d, "z")
	working := watch(t, d)
	rivals := testDriver(t, ownPool(t, 8), d.sql.table)
	const most = 10 * time.Second
	testkit.Within(t, most*4/5, func() { // half of the time that there is, and what a request takes
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.Renew(ctx, batch)
		}()
		testkit.Until(t, "the renewal waits for z", func() bool { return working() > 0 })
		for _, name := range []string{"a", "b", "c"} {
			refuses(t, rivals.claimOn(name, time.Minute))
		}
		<-done
	})
	var err error
	for _, r := range batch {
		if r.Claim.(*claim).request.Name == "z" {
			err = r.Err
		} else if r.Err != nil || r.Grant.TTL != time.Hour {
			t.Errorf("renewal: %+v", r)
		}
	}
	if err == nil || errors.Is(err, distlock.ErrLost) || errors.Is(err, context.DeadlineExceeded) || !hasNumber(err, errLockWait) {
		t.Errorf("renewal of what is blocked: %v, want one that says so", err)
	}
	testkit.Must(t, tx.Rollback())
	batch = unanswered(batch)
	d.Renew(t.Context(), batch)
	for _, r := range batch {
		if r.Err != nil {
			t.Errorf("renewal when nothing is blocked any more: %v", r.Err)
		}
	}
}

// TestRenewalWithoutSkipping renews a batch on a server that cannot skip rows.
func TestRenewalWithoutSkipping(t *testing.T) {
	t.Parallel()
	d := testDriver(t, ownPool(t, 4), freshTable(t))
	d.renewals.skip = false
	testBatch(t, d)
	lockRow(t, d, refusedName(t, d))
	if n, err := d.Sweep(t.Context(), time.Hour); n != 0 || err != nil {
		t.Errorf("Sweep: %d, %v", n, err)
	}
}

// TestRenewalBesideTrigger adds a trigger to the table after Open, for which the server may lose LAST_INSERT_ID. A row that a renewal
// has changed is renewed all the same.
func TestRenewalBesideTrigger(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, nil), freshTable(t))
	d.renewals.skip = false
	c, log, admin := d.claimOn("n", time.Minute), freshTable(t), adminPool(t)
	grants(t, c)
	for _, statement := range []string{
		"CREATE TABLE " + log + " (id INT AUTO_INCREMENT PRIMARY KEY, n INT)",
		"CREATE TRIGGER " + log + "_t AFTER UPDATE ON " + d.sql.table + " FOR EACH ROW INSERT INTO " + log + " (n) VALUES (1)",
	} {
		_, err := admin.Exec(statement)
		testkit.Must(t, err)
	}
	if _, err := c.Renew(t.Context(), 2*time.Minute); err != nil {
		t.Errorf("Renew: %v", err)
	}
	expire(t, d, "n")
	wantError(t, "Renew after the expiry", renewError(t, c), distlock.ErrLost)
}

// refusedName returns a held name.
func refusedName(t *testing.T, d *store) string {
	t.Helper()
	name := testkit.Owner()
	grants(t, d.claimOn(name, time.Minute))
	return name
}

// TestSafeUpdates renews and sweeps in sessions that take no join with a list.
func TestSafeUpdates(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, map[string]string{"sql_safe_updates": "1"}), freshTable(t))
	testLife(t, d)
	if _, err := d.Sweep(t.Context(), time.Microsecond); err != nil {
		t.Errorf("Sweep: %v", err)
	}
}

// TestSweepPassesOver sweeps several rows while one is in another transaction.
func TestSweepPassesOver(t *testing.T) {
	t.Parallel()
	d := testDriver(t, ownPool(t, 4), freshTable(t))
	for _, name := range []string{"a", "b", "c"} {
		c := d.claimOn(name, time.Minute)
		grants(t, c)
		releases(t, c)
	}
	ageFree(t, d)
	tx := lockRow(t, d, "b")
	ctx := t.Context()
	if n, err := d.Sweep(ctx, time.Microsecond); n != 2 || err != nil {
		t.Errorf("Sweep past a row that is locked: %d, %v, want 2", n, err)
	}
	testkit.Must(t, tx.Rollback())
	if n, err := d.Sweep(ctx, time.Microsecond); n != 1 || err != nil {
		t.Errorf("Sweep of the rest: %d, %v, want 1", n, err)
	}
}

// TestBlockedNames keeps the rows of some names locked, and has callers give up on those
// names again and again: other names must not notice, and the server not be flooded.
func TestBlockedNames(t *testing.T) {
	t.Parallel()
	const blocked, rounds = 4, 60
	lockers := openLockers(t, 2, Options{MaxConns: 10})
	d := lockers[0].driverOf(t)
	for i := range blocked {
		refusing := fmt.Sprint("blocked", i)
		grants(t, d.claimOn(refusing, time.Hour))
		lockRow(t, d, refusing)
	}
	l := lockers[1]
	var held []distlock.Lock
	for i := range 5 {
		lock, err := l.Lock(t.Context(), fmt.Sprint("mine", i))
		testkit.Must(t, err)
		held = append(held, lock)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range blocked {
		wg.Go(func() {
			for ctx.Err() == nil {
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				if _, err := l.TryLock(short, fmt.Sprint("blocked", i)); err == nil || errors.Is(err, distlock.ErrHeld) {
					t.Errorf("TryLock of a name whose row is locked: %v", err)
				}
				cancel()
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	working := watch(t, d)
	most := 0
	for i := range rounds { // for longer than the server waits for a row
		most = max(most, working())
		testkit.Within(t, 2*time.Second, func() {
			lock, err := l.TryLock(ctx, "free")
			if err != nil {
				t.Fatalf("TryLock of a free name: %v", err)
			}
			testkit.Must(t, lock.Unlock(ctx))
			if err := held[i%len(held)].Extend(ctx, time.Minute); err != nil {
				t.Errorf("renewal of a lock that has nothing to do with it: %v", err)
			}
		})
		time.Sleep(50 * time.Millisecond)
	}
	// Two under way, and one that was given up in each semaphore.
	if most > 4*blocked+2 {
		t.Errorf("the server had %d statements at a time, want %d for each blocked name at the most", most, 4)
	}
	cancel()
	wg.Wait()
}

// TestRenewalOnSmallPool has claims on locked rows want all connections of a user's pool: one is left to renewals.
func TestRenewalOnSmallPool(t *testing.T) {
	t.Parallel()
	db := poolOf(t, config(t, server(t).URL()))
	db.SetMaxOpenConns(3)
	table := freshTable(t)
	d, other := testDriver(t, db, table), testDriver(t, pool(t, nil), table)
	held := d.claimOn("held", time.Hour)
	grants(t, held)
	for i := range 4 {
		name := fmt.Sprint("n", i)
		grants(t, other.claimOn(name, time.Hour))
		lockRow(t, other, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var claims sync.WaitGroup
	for i := range 4 {
		claims.Go(func() { _, _ = d.claimOn(fmt.Sprint("n", i), time.Hour).Try(ctx) })
	}
	testkit.Until(t, "a claim waits for its row", func() bool { return db.Stats().InUse > 0 })
	short, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	if _, err := held.Renew(short, time.Hour); err != nil {
		t.Error(err)
	}
	cancel()
	claims.Wait()
}

// TestReleaseDoesNotWaitForLock has another request hang on the connection that named locks
// share: a release must return all the same.
func TestReleaseDoesNotWaitForLock(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	holder := holdsWithLock(t, d)
	resume := stalls(t, d.locks)
	releases(t, holder)
	resume()
	givesBack(t, d.locks)
}

// TestOneOwnConnection renews, waits and releases with one connection and without a named lock, and
// renews while that connection is taken.
func TestOneOwnConnection(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	l := openLockers(t, 1, Options{MaxConns: 1, WaitConns: -1, Options: distlock.Options{TTL: ttl}})[0]
	held, err := l.Lock(t.Context(), "n")
	testkit.Must(t, err)
	conn, err := held.(*Lock).claim.driver.db.Conn(t.Context())
	testkit.Must(t, err)
	extended := func() {
		testkit.Until(t, "the lock is extended", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the first request may wait for the pool
			defer cancel()
			err := held.Extend(ctx, ttl)
			if errors.Is(err, distlock.ErrLost) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	extended()
	extended()
	testkit.Should(t, conn.Close())
	next := handOff(t, held, l, extended)
	testkit.Should(t, next.Unlock(t.Context()))
}

// TestPoolIsClosed closes the pool of New before the Locker: that is final.
func TestPoolIsClosed(t *testing.T) {
	t.Parallel()
	db, waiting := pool(t, nil), pool(t, nil)
	d := testDriver(t, db, freshTable(t))
	d.renewals = newRenewals(waiting, db, renewConns)
	c, next := d.claimOn("n", time.Minute), d.claimOn("m", time.Minute)
	grants(t, c)
	testkit.Must(t, waiting.Close())
	if _, err := c.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("Renew without WaitDB: %v", err)
	}
	testkit.Must(t, db.Close())
	_, tried := next.Try(t.Context())
	next.ambiguous = true // as if it had been sent
	_, inspected := d.Inspect(t.Context(), "n")
	for what, err := range map[string]error{
		"Try": tried, "Renew": renewError(t, c), "Release": c.Release(t.Context()), "Inspect": inspected, "undo": next.Release(t.Context()),
	} {
		if !errors.Is(err, distlock.ErrClosed) || errors.Is(err, distlock.ErrLost) {
			t.Errorf("%s on a pool that was closed: %v, want ErrClosed", what, err)
		}
	}
}

// TestRenewalBesideBlockedRows renews one lock while others are being renewed alone on locked
// rows. The one lock is the only one due: it must not queue with them.
func TestRenewalBesideBlockedRows(t *testing.T) {
	t.Parallel()
	d := testDriver(t, ownPool(t, 10), freshTable(t))
	mine := d.claimOn("mine", time.Minute)
	grants(t, mine)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range 10 {
		c := d.claimOn(fmt.Sprint("blocked", i), time.Hour)
		grants(t, c)
		lockRow(t, d, c.request.Name)
		wg.Go(func() { d.Renew(ctx, []driver.Renewal{{Claim: c, TTL: time.Hour}}) })
	}
	testkit.Until(t, "the others wait for their rows", func() bool { return len(d.renewals.alone) == cap(d.renewals.alone) })
	time.Sleep(100 * time.Millisecond)                              // for the rest of them to queue
	for _, ttl := range []time.Duration{time.Minute, time.Second} { // the second changes nothing on the row
		testkit.Within(t, 2*time.Second, func() {
			if g, err := mine.Renew(t.Context(), ttl); err != nil || g.TTL != ttl {
				t.Errorf("Renew for %v: %+v, %v", ttl, g, err)
			}
		})
	}
}
