package mysqllock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// clockStands is for pools. Their sessions never see time pass, so that a test decides when
// something has worn off.
var clockStands = map[string]string{"timestamp": "1900000000.5"}

// lockDriver makes a driver with named locks for many claims on a new table. The clock of its
// server stands still.
func lockDriver(t *testing.T) *store {
	t.Helper()
	return lockDriverOn(t, freshTable(t))
}

func lockDriverOn(t *testing.T, table string) *store {
	t.Helper()
	d := testDriver(t, pool(t, clockStands), table)
	d.locks = newNamedLocks(pool(t, clockStands), d.sql, 16)
	return d
}

// age makes a time of the row of n, or of another name, lie further back, as if the clock
// had gone on.
func age(t *testing.T, d *store, column string, by time.Duration, other ...string) {
	t.Helper()
	query := "UPDATE " + d.sql.table + " SET " + column + " = " + column + " - ? WHERE name = ?"
	if _, err := d.db.ExecContext(t.Context(), query, by.Microseconds(), append(other, "n")[0]); err != nil {
		t.Fatal(err)
	}
}

// atLock returns a function that says how many wait for the named lock of n in the server.
func atLock(t *testing.T, d *store) func() int {
	t.Helper()
	db, await := pool(t, nil), d.sql.fill("await-lock", d.sql.namedLock("n"))
	return func() int {
		t.Helper()
		return statementsWith(t, db, await)
	}
}

// waits calls Wait in the background, until the test is over at the most.
func waits(t *testing.T, ctx context.Context, c *claim) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	returned := make(chan error, 1)
	var over sync.WaitGroup
	over.Go(func() { returned <- c.Wait(ctx) })
	t.Cleanup(func() {
		cancel()
		over.Wait()
	})
	return returned
}

// isWoken fails the test unless a Wait returns without an error.
func isWoken(t *testing.T, what string, returned <-chan error) {
	t.Helper()
	if err := <-returned; err != nil {
		t.Fatalf("%s: Wait: %v", what, err)
	}
}

// polls fails the test unless Try says that the engine is to poll; and has it wait.
func polls(t *testing.T, c *claim) {
	t.Helper()
	_, err := c.Try(t.Context())
	var held *driver.Held
	if !errors.As(err, &held) || !held.NoWake {
		t.Fatalf("Try: %v, want HeldError with NoWake", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("Wait: %v", err)
	}
}

// TestLockComesBeforeWait has the named lock come between a Try and the Wait after it: that
// must not block, and the lock not be given back untried.
func TestLockComesBeforeWait(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	holder := holdsWithLock(t, d)
	age(t, d, "acquired", time.Second)
	c, queued := d.claimOn("n", time.Minute), atLock(t, d)
	refuses(t, c)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, "Wait", c.Wait(over), context.Canceled)
	testkit.Until(t, "the claim waits for the named lock", func() bool { return queued() == 1 })
	refuses(t, c)
	releases(t, holder)
	testkit.Until(t, "the named lock comes", c.waiter.over)
	if err := c.Wait(t.Context()); err != nil {
		t.Fatalf("Wait: %v", err)
	}
	grants(t, c)
	releases(t, c)
}

// goesToLock brings a claim on a held name to its named lock.
func goesToLock(t *testing.T, ctx context.Context, c *claim) <-chan error {
	t.Helper()
	queued := atLock(t, c.driver)
	before := queued()
	refuses(t, c)
	if !c.invited {
		t.Fatal("the claim was not sent to the named lock")
	}
	returned := waits(t, ctx, c)
	testkit.Until(t, "the claim waits for the named lock", func() bool { return queued() == before+1 })
	return returned
}

// staysAtLock is goesToLock for a claim that looks by itself, although it is not woken.
func staysAtLock(t *testing.T, c *claim) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	returned := goesToLock(t, ctx, c)
	cancel()
	wantError(t, "Wait", <-returned, context.Canceled)
}

func releases(t *testing.T, c *claim) {
	t.Helper()
	if err := repeated(func() error { return c.Release(t.Context()) }); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// holdsWithLock returns a claim that holds n and its named lock.
func holdsWithLock(t *testing.T, d *store) *claim {
	t.Helper()
	c := d.claimOn("n", time.Minute)
	grants(t, c)
	takesLock(t, c)
	return c
}

// TestOrderAtTheLock has claims wait for a name. Another claim always asks at the moments that
// suit it best. It must not pass by any of them, however long they take to come.
func TestOrderAtTheLock(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	holder := holdsWithLock(t, d)
	greedy := d.claimOn("n", time.Minute)
	refuses(t, greedy)
	if greedy.invited {
		t.Error("sent to the named lock of a holder that may not have it yet")
	}
	age(t, d, "acquired", time.Second)

	var line []*claim
	var woken []<-chan error
	for range 5 {
		c := d.claimOn("n", time.Minute)
		line, woken = append(line, c), append(woken, goesToLock(t, t.Context(), c))
	}
	for i, c := range line {
		releases(t, holder)
		if left := refuses(t, greedy); left <= 0 || left > time.Second || !greedy.invited {
			t.Errorf("place %d: the name is kept for %v, invited=%t; want a second, and true", i, left, greedy.invited)
		}
		isWoken(t, "the next in line", woken[i])
		for j := i + 1; j < len(line); j++ {
			if len(woken[j]) > 0 {
				t.Errorf("place %d was woken with %d", j, i)
			}
		}
		refuses(t, greedy)
		grants(t, c)
		refuses(t, greedy)
		if !greedy.invited {
			t.Error("not sent to the named lock of a holder that has it")
		}
		holder = c
	}
	releases(t, holder)
	refuses(t, greedy)
	isWoken(t, "the last, with nobody at the named lock", waits(t, t.Context(), greedy))
	grants(t, greedy)
	releases(t, greedy)
}

// TestNameIsKept releases a name while a claim waits, and has another claim ask for it: the name
// is kept for the waiter, but for the cases marked taken.
func TestNameIsKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		happen func(*testing.T, *store)
		noWait bool
		taken  bool
	}{
		{what: "at once"},
		{what: "by a TryLock", noWait: true, taken: true},
		{what: "after 0.9 s", happen: func(t *testing.T, d *store) { age(t, d, "waited", 900*time.Millisecond) }},
		{what: "after a second", taken: true,
			happen: func(t *testing.T, d *store) {
				age(t, d, "waited", time.Second)
				solo := d.claimOn("n", time.Minute) // for whom nobody waits, and which renews nothing thereby
				grants(t, solo)
				releases(t, solo)
			}},
		{what: "when the clock has gone back", taken: true,
			happen: func(t *testing.T, d *store) { age(t, d, "waited", -time.Hour) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := lockDriver(t)
			holder, waiter := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
			grants(t, holder)
			refuses(t, waiter)
			// It has come a while ago, and the hold has been longer than names are kept.
			age(t, d, "waited", 10*time.Second)
			age(t, d, "acquired", 20*time.Second)
			releases(t, holder)
			if c.happen != nil {
				c.happen(t, d)
			}
			taker := d.claimOn("n", time.Minute)
			taker.request.NoWait = c.noWait
			if c.taken {
				grants(t, taker)
			} else {
				refuses(t, taker)
			}
		})
	}
	t.Run("expired", func(t *testing.T) {
		d := lockDriver(t)
		grants(t, d.claimOn("n", time.Minute))
		refuses(t, d.claimOn("n", time.Minute))
		expire(t, d, "n")
		grants(t, d.claimOn("n", time.Minute)) // a holder that has gone wakes nobody up
	})
}

// TestNameIsKeptAgain has somebody wait for a hold that has begun just after somebody
// had waited for the one before.
func TestNameIsKeptAgain(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	first, second := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	grants(t, first)
	refuses(t, d.claimOn("n", time.Minute))
	age(t, d, "waited", 100*time.Millisecond)
	releases(t, first)
	second.request.NoWait = true
	grants(t, second)
	refuses(t, d.claimOn("n", time.Minute))
	age(t, d, "waited", 5*time.Second)
	age(t, d, "acquired", 5*time.Second)
	releases(t, second)
	refuses(t, d.claimOn("n", time.Minute))
}

// TestWaitIsNotedOnce has claims ask for a held name again and again: the first alone leaves a note of it, and so does the first
// that comes behind a holder that has waited itself.
func TestWaitIsNotedOnce(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	grants(t, d.claimOn("n", time.Minute))
	age(t, d, "acquired", 20*time.Second)
	notedAgo := func(via int64) (ago int64) {
		t.Helper()
		ask := d.acquire.with(d.claimOn("n", time.Minute).values(), time.Minute.Microseconds(), via)
		if answer, _, err := d.exec(t.Context(), ask); answer >= 0 || err != nil {
			t.Fatalf("asking for a held name: %d, %v", answer, err)
		}
		testkit.Must(t, d.db.QueryRow("SELECT ("+d.sql.text["now"]+" - waited) DIV 1000000 FROM "+d.sql.table+" WHERE name = 'n'").Scan(&ago))
		return ago
	}
	for _, via := range []int64{viaWaiting, viaLock} {
		age(t, d, "waited", 60*time.Second) // before the hold
		if ago := notedAgo(via); ago != 0 {
			t.Errorf("the first that waits was noted %d s ago", ago)
		}
		age(t, d, "waited", 10*time.Second)
		if ago := notedAgo(via); ago != 10 {
			t.Errorf("the wait that began 10 s ago was noted %d s ago", ago)
		}
		age(t, d, "waited", 10*time.Second) // when the holder came
		if ago := notedAgo(via); ago != 0 {
			t.Errorf("the first behind a holder that has waited was noted %d s ago", ago)
		}
	}
}

// TestLateHolder has a waiter come to the named lock before the holder has taken it, as
// happens where a machine is slow: the waiter must not keep it.
func TestLateHolder(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	slow := testDriver(t, pool(t, clockStands), d.sql.table)
	slow.locks = newNamedLocks(pool(t, clockStands), slow.sql, 16)
	resume := stalls(t, slow.locks)
	holder, waiter := slow.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	grants(t, holder)
	age(t, d, "acquired", time.Second)
	refuses(t, waiter)
	isWoken(t, "the waiter, with nobody at the named lock", waits(t, t.Context(), waiter))
	polls(t, waiter) // and gives it back, in the background
	testkit.Until(t, "the waiter has given the named lock back", func() bool { return len(d.locks.conns) == 0 })
	resume()
	takesLock(t, holder)
	woken := goesToLock(t, t.Context(), waiter)
	releases(t, holder)
	isWoken(t, "the waiter", woken)
	grants(t, waiter)
	releases(t, waiter)
}
