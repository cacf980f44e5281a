package mysqllock

import (
	"context"
	"sync"
	"testing"
	"time"
)

// clockStands is for pools whose sessions never see time pass, so that a test
// decides when something has worn off.
var clockStands = map[string]string{"timestamp": "1900000000.5"}

// bellDriver makes a driver with bells for many claims on a new table, on a server
// whose clock stands still.
func bellDriver(t *testing.T) *driver {
	t.Helper()
	d := testDriver(t, pool(t, clockStands), freshTable(t))
	d.bells = newBells(pool(t, clockStands), d.sql, 16)
	return d
}

// age makes a time of the row of n lie further back, as if the clock had gone on.
func age(t *testing.T, d *driver, column string, by time.Duration) {
	t.Helper()
	query := "UPDATE " + d.sql.table + " SET " + column + " = " + column + " - ? WHERE name = 'n'"
	if _, err := d.db.ExecContext(t.Context(), query, by.Microseconds()); err != nil {
		t.Fatal(err)
	}
}

// atBell returns a function that says how many wait for the bell of n in the server.
func atBell(t *testing.T, d *driver) func() int {
	t.Helper()
	db, await := pool(t, nil), d.sql.fill("await-bell", d.bells.name("n"))
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

// isRung fails the test unless a Wait returns without an error.
func isRung(t *testing.T, what string, returned <-chan error) {
	t.Helper()
	select {
	case err := <-returned:
		if err != nil {
			t.Fatalf("%s: Wait: %v", what, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s: nobody rang within a minute", what)
	}
}

// goesToBell brings a claim on a held name to its bell.
func goesToBell(t *testing.T, c *claim) <-chan error {
	t.Helper()
	queued := atBell(t, c.driver)
	before := queued()
	refuses(t, c)
	if !c.invited {
		t.Fatal("the claim was not sent to the bell")
	}
	returned := waits(t, t.Context(), c)
	eventually(t, "the claim waits for the bell", func() bool { return queued() == before+1 })
	return returned
}

func releases(t *testing.T, c *claim) {
	t.Helper()
	if err := c.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// holdsWithBell returns a claim that holds n and rings when it releases it.
func holdsWithBell(t *testing.T, d *driver) *claim {
	t.Helper()
	c := d.bid("n", time.Minute)
	grants(t, c)
	takesBells(t, d.bells, 1)
	return c
}

// TestOrderAtTheBell has claims wait for a name, and another, which always asks at
// the moments that suit it best: it must not pass by any of them, however long they
// take to come.
func TestOrderAtTheBell(t *testing.T) {
	d := bellDriver(t)
	holder := holdsWithBell(t, d)
	greedy := d.bid("n", time.Minute)
	refuses(t, greedy)
	if greedy.invited {
		t.Error("sent to the bell of a holder that may not have it yet")
	}
	age(t, d, "acquired", time.Second)

	var line []*claim
	var rung []<-chan error
	for range 5 {
		c := d.bid("n", time.Minute)
		line, rung = append(line, c), append(rung, goesToBell(t, c))
	}
	for i, c := range line {
		releases(t, holder)
		if left := refuses(t, greedy); left <= 0 || left > time.Second || !greedy.invited {
			t.Errorf("place %d: the name is kept for %v, invited=%t; want a second, and true", i, left, greedy.invited)
		}
		isRung(t, "the next in line", rung[i])
		for j := i + 1; j < len(line); j++ {
			if len(rung[j]) > 0 {
				t.Errorf("place %d was rung for with %d", j, i)
			}
		}
		refuses(t, greedy)
		grants(t, c)
		refuses(t, greedy)
		if !greedy.invited {
			t.Error("not sent to the bell of a holder that has it")
		}
		holder = c
	}
	releases(t, holder)
	refuses(t, greedy)
	isRung(t, "the last, with nobody at the bell", waits(t, t.Context(), greedy))
	grants(t, greedy)
	releases(t, greedy)
}

// TestNameIsKept takes a name that was given back while somebody was waiting, in
// every way that is allowed to.
func TestNameIsKept(t *testing.T) {
	for _, c := range []struct {
		what   string
		happen func(*testing.T, *driver)
		noWait bool
		taken  bool
	}{
		{what: "at once"},
		{what: "by a TryLock", noWait: true, taken: true},
		{what: "after 0.9 s", happen: func(t *testing.T, d *driver) { age(t, d, "waited", 900*time.Millisecond) }},
		{what: "after a second", taken: true,
			happen: func(t *testing.T, d *driver) {
				age(t, d, "waited", time.Second)
				solo := d.bid("n", time.Minute) // for whom nobody waits, and which renews nothing thereby
				grants(t, solo)
				releases(t, solo)
			}},
		{what: "when the clock has gone back", taken: true,
			happen: func(t *testing.T, d *driver) { age(t, d, "waited", -time.Hour) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := bellDriver(t)
			holder, waiter := d.bid("n", time.Minute), d.bid("n", time.Minute)
			grants(t, holder)
			refuses(t, waiter)
			// It has come a while ago, and the hold has been longer than names are kept.
			age(t, d, "waited", 10*time.Second)
			age(t, d, "acquired", 20*time.Second)
			releases(t, holder)
			if c.happen != nil {
				c.happen(t, d)
			}
			taker := d.bid("n", time.Minute)
			taker.request.NoWait = c.noWait
			if c.taken {
				grants(t, taker)
			} else {
				refuses(t, taker)
			}
		})
	}
	for what, end := range map[string]func(*testing.T, *driver){
		"expired": func(t *testing.T, d *driver) { expire(t, d, "n") },
		"broken": func(t *testing.T, d *driver) {
			if err := d.Break(t.Context(), "n"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := bellDriver(t)
			grants(t, d.bid("n", time.Minute))
			refuses(t, d.bid("n", time.Minute))
			end(t, d)
			grants(t, d.bid("n", time.Minute)) // a holder that has gone does not ring
		})
	}
}

// TestNameIsKeptAgain has somebody wait for a hold that has begun just after somebody
// had waited for the one before.
func TestNameIsKeptAgain(t *testing.T) {
	d := bellDriver(t)
	first, second := d.bid("n", time.Minute), d.bid("n", time.Minute)
	grants(t, first)
	refuses(t, d.bid("n", time.Minute))
	age(t, d, "waited", 100*time.Millisecond)
	releases(t, first)
	second.request.NoWait = true
	grants(t, second)
	refuses(t, d.bid("n", time.Minute))
	age(t, d, "waited", 5*time.Second)
	age(t, d, "acquired", 5*time.Second)
	releases(t, second)
	refuses(t, d.bid("n", time.Minute))
}

// TestLateHolder has a waiter come to the bell before the holder has taken it, as
// happens where a machine is slow: the waiter must not keep it.
func TestLateHolder(t *testing.T) {
	d := bellDriver(t)
	slow := testDriver(t, pool(t, clockStands), d.sql.table)
	slow.bells = newBells(pool(t, clockStands), slow.sql, 16)
	slow.bells.line.Lock()
	holder, waiter := slow.bid("n", time.Minute), d.bid("n", time.Minute)
	grants(t, holder)
	age(t, d, "acquired", time.Second)
	refuses(t, waiter)
	isRung(t, "the waiter, with nobody at the bell", waits(t, t.Context(), waiter))
	refuses(t, waiter)
	isRung(t, "the waiter, which gives it back", waits(t, t.Context(), waiter))
	slow.bells.line.Unlock()
	takesBells(t, slow.bells, 1)
	rung := goesToBell(t, waiter)
	releases(t, holder)
	isRung(t, "the waiter", rung)
	grants(t, waiter)
	releases(t, waiter)
}

// TestStuckBell has a stranger keep the bell, as a frozen process does: a Locker may
// fall for it once.
func TestStuckBell(t *testing.T) {
	d := bellDriver(t)
	conn, err := pool(t, nil).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got int
	if err := conn.QueryRowContext(t.Context(), d.sql.fill("await-bell", d.bells.name("n"))).Scan(&got); err != nil || got == 0 {
		t.Fatal(got, err)
	}
	holder, waiter := d.bid("n", time.Minute), d.bid("n", time.Minute)
	grants(t, holder)
	age(t, d, "acquired", time.Second)
	refuses(t, waiter)
	ctx, cancel := context.WithCancel(t.Context())
	returned := waits(t, ctx, waiter)
	queued := atBell(t, d)
	eventually(t, "the waiter falls for the bell", func() bool { return queued() == 1 })
	cancel()
	wantError(t, "Wait", <-returned, context.Canceled)
	releases(t, holder)
	refuses(t, waiter) // it looks by itself, but too early
	age(t, d, "waited", time.Second)
	grants(t, waiter)

	second := d.bid("n", time.Minute)
	refuses(t, second)
	isRung(t, "the second waiter, which asks again after a while", waits(t, t.Context(), second))
	if queued() > 1 {
		t.Error("the second waiter went to the bell too")
	}
	releases(t, waiter)
	grants(t, second)
	releases(t, second)
}

// TestBellComesLate has a claim get its name before it sees its bell, as in a process that
// was stopped: the bell is passed by until it comes, and no longer.
func TestBellComesLate(t *testing.T) {
	d := bellDriver(t)
	first := holdsWithBell(t, d)
	age(t, d, "acquired", time.Second)
	c, queued := d.bid("n", time.Minute), atBell(t, d)
	refuses(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	returned := waits(t, ctx, c)
	eventually(t, "the claim waits for the bell", func() bool { return queued() == 1 })
	cancel()
	wantError(t, "Wait", <-returned, context.Canceled)
	expire(t, d, "n") // without the bell
	grants(t, c)
	if !d.bells.suspects("n") {
		t.Error("the name was free and its bell was not, yet that is not noticed")
	}
	first.leave()
	eventually(t, "the bell comes", c.bell.over)
	releases(t, c)
	if d.bells.suspects("n") {
		t.Error("the bell has come, and is passed by all the same")
	}
}

// TestEverybodyGetsATurn has many processes contend without a pause until each of
// them has had its turns. A stalled machine may make one distrust the bell, and then it
// is passed over until it does not any more.
func TestEverybodyGetsATurn(t *testing.T) {
	const n, turns = 12, 15
	lockers := openLockers(t, n, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), distrust+time.Minute)
	defer cancel()
	var served, wg sync.WaitGroup
	served.Add(n)
	for _, l := range lockers {
		wg.Go(func() {
			for had := 0; ctx.Err() == nil; {
				lock, err := l.Lock(ctx, "n")
				if err != nil {
					break
				}
				if had++; had == turns {
					served.Done()
				}
				if err := lock.Unlock(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all := make(chan struct{})
	go func() {
		served.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
		t.Errorf("somebody did not have %d turns within %v", turns, distrust+time.Minute)
	}
	cancel()
	wg.Wait()
}
