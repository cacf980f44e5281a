package mysqllock

import (
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestTokenOverSweep has a claim wait for a row while others hold the name, give it back and
// have the row swept. The statement of the claim has read the clock before all that.
func TestTokenOverSweep(t *testing.T) {
	t.Parallel()
	db := pool(t, nil) // not one that gives up a row after a second
	d := testDriver(t, db, freshTable(t))
	rival := testDriver(t, db, d.sql.table) // not d, which knows that it has freed the name
	first := d.claimOn("n", time.Minute)
	grants(t, first)
	releases(t, first)
	tx := lockRow(t, d, "n")
	working := watch(t, d)
	token := make(chan int64)
	go func() {
		defer close(token)
		token <- grants(t, rival.claimOn("n", time.Minute)).Token
	}()
	testkit.Until(t, "the claim waits for the row", func() bool { return working() > 0 })

	// A sweep leaves what is younger than this, so it takes at least as long.
	time.Sleep(minIdle)
	var between int64 // what a lock that was held meanwhile has had for a token
	testkit.Must(t, tx.QueryRowContext(t.Context(), "SELECT "+d.sql.text["now"]).Scan(&between))
	if _, err := tx.ExecContext(t.Context(), "DELETE FROM "+d.sql.table+" WHERE name = 'n'"); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, tx.Commit())
	if after := <-token; after <= between {
		t.Errorf("the claim has token %d, and the lock before it %d", after, between)
	}
}

// TestSweepLeavesTheYoung asks for an idle time below the shortest.
func TestSweepLeavesTheYoung(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, clockStands), freshTable(t))
	c := d.claimOn("n", time.Minute)
	grants(t, c)
	releases(t, c)
	age(t, d, "token", time.Hour)
	age(t, d, "expires", -(minIdle - time.Microsecond))
	if n, err := d.Sweep(t.Context(), time.Nanosecond); n != 0 || err != nil {
		t.Errorf("Sweep of a row that was given back less than %v ago: %d, %v, want 0", minIdle, n, err)
	}
	age(t, d, "expires", -time.Microsecond)
	if n, err := d.Sweep(t.Context(), time.Nanosecond); n != 1 || err != nil {
		t.Errorf("Sweep of a row that was given back %v ago: %d, %v, want 1", minIdle, n, err)
	}
}

// TestSweepLeavesTombstones has a row outlive a sweep that refuses a late request, if that is older than the idle time but
// younger than such a request may be.
func TestSweepLeavesTombstones(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, clockStands), freshTable(t))
	c := d.claimOn("n", time.Minute)
	c.ambiguous = true // its Try has had no answer yet
	releases(t, c)
	age(t, d, "token", time.Hour)
	age(t, d, "expires", -(driver.MaxLate - time.Microsecond)) // negative: when it was given back
	if n, err := d.Sweep(t.Context(), time.Second); n != 0 || err != nil {
		t.Errorf("Sweep less than %v after a claim was undone: %d, %v, want 0", driver.MaxLate, n, err)
	}
	if _, err := c.Try(t.Context()); err == nil {
		t.Error("a late request of a claim that was undone was granted")
	}
	age(t, d, "expires", -time.Microsecond)
	if n, err := d.Sweep(t.Context(), time.Second); n != 1 || err != nil {
		t.Errorf("Sweep %v after a claim was undone: %d, %v, want 1", driver.MaxLate, n, err)
	}
}

// TestSweepLeavesTombstonesOfTheDead is TestSweepLeavesTombstones on the row of a holder that has died: its lease ended long ago.
// That holder is told as before that it has lost the name.
func TestSweepLeavesTombstonesOfTheDead(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, clockStands), freshTable(t))
	dead, c := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	grants(t, dead)
	c.ambiguous, dead.ambiguous = true, true
	for _, undo := range []struct {
		claim *claim
		want  error
	}{{c, nil}, {dead, distlock.ErrLost}, {dead, distlock.ErrLost}} {
		expire(t, d, "n")
		age(t, d, "token", time.Hour)
		wantError(t, "Release", undo.claim.Release(t.Context()), undo.want)
		if n, err := d.Sweep(t.Context(), time.Second); n != 0 || err != nil {
			t.Errorf("Sweep just after a claim was undone: %d, %v, want 0", n, err)
		}
		late := d.acquire.with(undo.claim.values(), time.Minute.Microseconds(), viaNothing)
		if answer, _, err := d.exec(t.Context(), late); answer != 0 || err != nil {
			t.Errorf("a late request of a claim that was undone: %d, %v, want 0", answer, err)
		}
	}
	age(t, d, "expires", driver.MaxLate-time.Microsecond)
	if n, err := d.Sweep(t.Context(), time.Second); n != 0 || err != nil {
		t.Errorf("Sweep less than %v after the last was undone: %d, %v, want 0", driver.MaxLate, n, err)
	}
	age(t, d, "expires", time.Microsecond)
	if n, err := d.Sweep(t.Context(), time.Second); n != 1 || err != nil {
		t.Errorf("Sweep %v after the last was undone: %d, %v, want 1", driver.MaxLate, n, err)
	}
}

// TestUndoRevivesNoLease undoes a claim on the row of a holder that has died. A renewal of that holder's has read the clock before,
// and finds the row after it.
func TestUndoRevivesNoLease(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, clockStands), freshTable(t))
	before := testDriver(t, pool(t, map[string]string{"timestamp": "1899999950.5"}), d.sql.table) // 50 s: so long may it wait for a row
	dead, c := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	grants(t, dead)
	expire(t, d, "n")
	c.ambiguous = true
	releases(t, c)
	dead.driver = before
	_, err := dead.Renew(t.Context(), time.Minute)
	wantError(t, "a late renewal of a lease that ended an hour ago", err, distlock.ErrLost)
}
