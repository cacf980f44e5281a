package mysqllock

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
)

// openLockers opens Lockers with connections of their own, as if they were in
// different processes.
func openLockers(t testing.TB, n int, o Options) []*Locker {
	t.Helper()
	o.Table, o.Create = freshTable(t), true
	var lockers []*Locker
	for range n {
		l, err := Open(t.Context(), server(t).URL(), &o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		lockers = append(lockers, l)
	}
	return lockers
}

// handOff has next wait for what held holds for the given time, and returns the new
// lock and how long that took from the release on.
func handOff(t *testing.T, held distlock.Lock, next *Locker, after time.Duration) (distlock.Lock, time.Duration) {
	t.Helper()
	got := make(chan distlock.Lock)
	go func() {
		l, err := next.Lock(context.Background(), held.Name())
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	time.Sleep(after)
	start := time.Now()
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	l := <-got
	lag := time.Since(start)
	if l == nil {
		t.FailNow()
	}
	return l, lag
}

// TestHandOff passes a name to and fro between two processes and counts how often
// the one that waits has to ask.
func TestHandOff(t *testing.T) {
	const rounds = 20
	for _, c := range []struct {
		what      string
		doorbells int
	}{{"rung", 8}, {"polled", -1}} {
		t.Run(c.what, func(t *testing.T) {
			var tries []int
			lockers := openLockers(t, 2, Options{Doorbells: c.doorbells, Options: distlock.Options{
				Observer: &distlock.Observer{Acquired: func(a distlock.Acquired) { tries = append(tries, a.Tries) }},
			}})
			if push := lockers[0].Capabilities().Push; push != (c.doorbells > 0) {
				t.Errorf("Push is %t", push)
			}
			held, err := lockers[0].Lock(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			var lags []time.Duration
			for i := range rounds {
				var lag time.Duration
				held, lag = handOff(t, held, lockers[(i+1)%2], 20*time.Millisecond+rand.N(100*time.Millisecond))
				lags = append(lags, lag)
			}
			if err := held.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			slices.Sort(lags)
			slices.Sort(tries)
			t.Logf("median lag %v, median of %d tries", lags[rounds/2], tries[rounds/2])
			if c.doorbells > 0 && tries[rounds/2] > 3 {
				t.Errorf("with the bell the waiter asks %d times", tries[rounds/2])
			}
			if c.doorbells < 0 && tries[rounds/2] <= 3 {
				t.Errorf("without it the waiter asks %d times: this test cannot tell", tries[rounds/2])
			}
		})
	}
}

// TestLongHold has somebody wait for a name that was taken without its bell, and
// counts the requests once the bell has been taken.
func TestLongHold(t *testing.T) {
	lockers := openLockers(t, 2, Options{})
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	bells := lockers[0].driverOf(t).bells
	eventually(t, "the bell is taken", func() bool {
		bells.mu.Lock()
		defer bells.mu.Unlock()
		return bells.taken == 1
	})
	waiter := lockers[1].driverOf(t).bid("n", 30*time.Second)
	for tries := 1; ; tries++ {
		if _, err := waiter.Try(t.Context()); err == nil {
			t.Fatal("the name was free")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_ = waiter.Wait(ctx)
		over := ctx.Err() != nil
		cancel()
		if over {
			break // nobody rings, and it does not poll
		}
		if tries > bellPolls+1 {
			t.Fatalf("still polling after %d tries", tries)
		}
	}
	rung := make(chan error, 1)
	go func() { rung <- waiter.Wait(context.Background()) }()
	if err := held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-rung; err != nil {
		t.Errorf("Wait: %v", err)
	}
	grants(t, waiter)
	if err := waiter.Release(t.Context()); err != nil {
		t.Error(err)
	}
	eventually(t, "the connection is given back", func() bool {
		bells.line.Lock()
		defer bells.line.Unlock()
		return bells.shared == nil
	})
}

// driverOf returns the driver of a Locker.
func (l *Locker) driverOf(t testing.TB) *driver {
	t.Helper()
	lock, err := l.TryLock(t.Context(), randomText())
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	return lock.(*Lock).claim.driver
}

// TestContentionWearsOff has one process alone take a name that others have left: it
// must soon cost no more than any other.
func TestContentionWearsOff(t *testing.T) {
	var tries int
	lockers := openLockers(t, 2, Options{Options: distlock.Options{
		Observer: &distlock.Observer{Acquired: func(a distlock.Acquired) { tries = a.Tries }},
	}})
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	held, _ = handOff(t, held, lockers[1], 100*time.Millisecond)
	var all []int
	for range 12 {
		if err := held.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if held, err = lockers[1].Lock(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		all = append(all, tries)
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if all[0] != 2 || all[11] != 1 {
		t.Errorf("right after the contention it took these tries: %v; want 2 at first and 1 in the end", all)
	}
}

// TestEverybodyGetsATurn has many processes contend without a pause.
func TestEverybodyGetsATurn(t *testing.T) {
	const n, turns = 12, 15
	lockers := openLockers(t, n, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	count, least := make([]int, n), 0
	var wg sync.WaitGroup
	for i, l := range lockers {
		wg.Go(func() {
			for range turns {
				lock, err := l.Lock(ctx, "n")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if count[i]++; count[i] == turns && least == 0 {
					least = slices.Min(count)
				}
				mu.Unlock()
				if err := lock.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("when the first had its %d turns, everybody had %d at least", turns, least)
	if least < turns/3 {
		t.Errorf("when the first had its %d turns, somebody had %d", turns, least)
	}
}

// TestBellsOfNoUse takes away what bells rest on, one way at a time; the names must
// be passed on all the same.
func TestBellsOfNoUse(t *testing.T) {
	for _, c := range []struct {
		what  string
		spoil func(*testing.T, []*Locker)
	}{
		{"named locks do not work", func(t *testing.T, ls []*Locker) {
			dead := config(t, server(t).URL())
			dead.Addr = "127.0.0.1:1"
			for _, l := range ls {
				l.driverOf(t).bells.db = poolOf(t, dead)
			}
		}},
		{"each process has a server of its own", func(t *testing.T, ls []*Locker) {
			for _, l := range ls {
				l.driverOf(t).sql.schema = randomText()
			}
		}},
		{"no connection is left", func(t *testing.T, ls []*Locker) {
			for _, l := range ls {
				l.driverOf(t).bells.slots = nil
			}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			lockers := openLockers(t, 2, Options{})
			c.spoil(t, lockers)
			held, err := lockers[0].Lock(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				var lag time.Duration
				held, lag = handOff(t, held, lockers[(i+1)%2], rand.N(200*time.Millisecond))
				if lag > 5*time.Second { // a third of the TTL is 10 s, a poll 100 ms
					t.Errorf("hand-off %d took %v", i, lag)
				}
			}
			if err := held.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStuckBell has a stranger keep the bell, as a frozen process does: each Locker
// may fall for it once.
func TestStuckBell(t *testing.T) {
	lockers := openLockers(t, 2, Options{Options: distlock.Options{TTL: 9 * time.Second}})
	b := lockers[0].driverOf(t).bells
	conn, err := pool(t, nil).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got int
	if err := conn.QueryRowContext(t.Context(), b.sql.fill("await-bell", b.name("n"))).Scan(&got); err != nil || got != 1 {
		t.Fatal(got, err)
	}
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		var lag time.Duration
		held, lag = handOff(t, held, lockers[(i+1)%2], 300*time.Millisecond)
		t.Logf("hand-off %d took %v", i, lag)
		if i >= 2 && lag > 1500*time.Millisecond { // a third of the TTL is 3 s, a poll 100 ms
			t.Errorf("hand-off %d took %v", i, lag)
		}
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBellsLeaveNothing cancels waiters, closes Lockers, and counts connections.
func TestBellsLeaveNothing(t *testing.T) {
	db := pool(t, nil)
	threads := func() (n int) {
		t.Helper()
		var name string
		if err := db.QueryRow("SHOW GLOBAL STATUS LIKE 'Threads_connected'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := threads()
	o := &Options{Table: freshTable(t), Create: true}
	var lockers []*Locker
	for range 2 {
		l, err := Open(t.Context(), server(t).URL(), o)
		if err != nil {
			t.Fatal(err)
		}
		lockers = append(lockers, l)
	}
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond) // it waits for the bell after 130 ms
		if _, err := lockers[1].Lock(ctx, "n"); err == nil {
			t.Error("the held name was granted")
		}
		cancel()
	}
	// What waits in the server for clients that have gone must not be rung for in
	// their place for long.
	held, lag := handOff(t, held, lockers[1], 250*time.Millisecond)
	t.Logf("hand-off past cancelled waiters: %v", lag)
	if lag > 5*time.Second {
		t.Errorf("hand-off past cancelled waiters: %v", lag)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := lockers[0].Lock(context.Background(), "n")
		waiting <- err
	}()
	time.Sleep(250 * time.Millisecond)
	for _, l := range lockers {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	wantError(t, "the waiting Lock", <-waiting, distlock.ErrClosed)
	wantError(t, "the lock after Close", held.Err(), distlock.ErrUnlocked)
	eventually(t, "all connections are closed", func() bool { return threads() <= before })
}
