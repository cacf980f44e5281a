package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// The table of docs/writing-a-driver.md, cell by cell: what the engine makes of each fate of a
// TryLock, a first Lock, a waiter, a renewal and a release.

var errStore = errors.New("the store says no")

// fails answers with a fault of the given fate. The request has had no effect.
func fails(fate driver.Fate) rule {
	return func(context.Context, memlock.Call, func()) (bool, error) {
		return true, &driver.Fault{Fate: fate, Err: errStore}
	}
}

// times lets the first n requests meet the fault.
func times(n int, r rule) rule {
	return func(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
		if n == 0 {
			return false, nil
		}
		n--
		return r(ctx, c, apply)
	}
}

var allFates = []driver.Fate{driver.Unknown, driver.NotSent, driver.Again, driver.NotNow, driver.Answered}

// eachFate runs f in a bubble for each fate.
func eachFate(t *testing.T, f func(t *testing.T, fate driver.Fate, n *network, l, rival *memlock.Locker)) {
	for _, fate := range allFates {
		t.Run(fate.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) { f(t, fate, n, l, rival) })
		})
	}
}

// A TryLock that fails fails at once, with the store's error, and is undone only where it may
// have been applied. Again is no failure.
func TestFateOfTryLock(t *testing.T) {
	eachFate(t, func(t *testing.T, fate driver.Fate, n *network, l, _ *memlock.Locker) {
		n.use(on("try", times(3, fails(fate))))
		began := time.Now()
		lock, err := l.TryLock(bg, "x")
		took := time.Since(began)
		if fate == driver.Again {
			if err != nil || n.count("try") != 4 || took > 50*time.Millisecond {
				t.Fatalf("%v after %d tries and %v", err, n.count("try"), took)
			}
			_ = lock.Unlock(bg)
			return
		}
		wantErr(t, "TryLock", err, errStore)
		time.Sleep(time.Minute)
		if n.count("try") != 1 || took != 0 {
			t.Errorf("%d tries in %v, want one", n.count("try"), took)
		}
		owed := 0
		if fate == driver.Unknown {
			owed = 1
		}
		if got := n.count("release"); got != owed {
			t.Errorf("%d releases, want %d", got, owed)
		}
	})
}

// A first Lock is tried for a while at a store that says "not now", and again where that helps at
// once; else it fails as a TryLock does.
func TestFateOfFirstLock(t *testing.T) {
	const ttl = time.Minute
	eachFate(t, func(t *testing.T, fate driver.Fate, n *network, l, _ *memlock.Locker) {
		n.use(on("try", fails(fate)))
		began := time.Now()
		_, err := l.Lock(bg, "x", distlock.TTL(ttl))
		wantErr(t, "Lock", err, errStore)
		took, tries := time.Since(began), n.count("try")
		switch fate {
		case driver.NotNow:
			if took < 9*time.Second || took > 10*time.Second || tries < 10 || tries > 25 {
				t.Errorf("%d tries in %v, want some 20 in ten seconds", tries, took)
			}
		case driver.Again:
			if took < 9*time.Second || took > 10*time.Second+50*time.Millisecond || tries < 200 {
				t.Errorf("%d tries in %v, want one in 50 ms at the least for ten seconds", tries, took)
			}
		default:
			if took != 0 || tries != 1 {
				t.Errorf("%d tries in %v, want one", tries, took)
			}
		}
		time.Sleep(time.Minute)
		if got := n.count("release"); (got > 0) != (fate == driver.Unknown) {
			t.Errorf("%d releases", got)
		}
		// What passes is outlived.
		if fate == driver.NotNow || fate == driver.Again {
			n.use(on("try", times(5, fails(fate))))
			mustLock(t, bg, l, "x", distlock.TTL(ttl))
		}
	})
}

// The error of a context that ends carries what the store has said last, also while it says
// "again", which each call repeats.
func TestStoreErrorAtTheEndOfAContext(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "held", distlock.TTL(time.Minute))
		n.use(func(context.Context, memlock.Call, func()) (bool, error) {
			return true, &driver.Fault{Fate: driver.Again, Err: errStore}
		})
		for _, c := range []struct {
			what string
			call func(context.Context) error
		}{
			{"TryLock", func(ctx context.Context) error { _, err := l.TryLock(ctx, "x"); return err }},
			{"Lock", func(ctx context.Context) error { _, err := l.Lock(ctx, "x"); return err }},
			{"Extend", func(ctx context.Context) error { return lock.Extend(ctx, time.Minute) }},
			{"Inspect", func(ctx context.Context) error { _, err := l.Inspect(ctx, "x"); return err }},
			{"Unlock", lock.Unlock},
		} {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			err := c.call(ctx)
			cancel()
			wantErr(t, c.what, err, context.DeadlineExceeded)
			wantErr(t, c.what, err, errStore)
		}
	})
}

// A context that ends while a Lock outlives an outage says why, and a TTL bounds how long it does.
func TestFirstLockInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("try", fails(driver.NotNow)))
		ctx, cancel := context.WithTimeout(bg, 2*time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "x")
		wantErr(t, "Lock", err, context.DeadlineExceeded)
		wantErr(t, "Lock", err, errStore)
		began := time.Now()
		_, err = l.Lock(bg, "x", distlock.TTL(time.Second))
		wantErr(t, "Lock", err, errStore)
		if took := time.Since(began); took > time.Second {
			t.Errorf("with a TTL of a second it failed after %v", took)
		}
		if n.count("release") != 0 {
			t.Error("a Lock that was refused is undone")
		}
	})
}

// A waiter outlives all but an answer, for its TTL or a minute after the last refusal, and is
// undone in any case: it is in the queue.
func TestFateOfWaiter(t *testing.T) {
	for _, ttl := range []time.Duration{12 * time.Second, time.Hour} {
		t.Run(ttl.String(), func(t *testing.T) {
			eachFate(t, func(t *testing.T, fate driver.Fate, n *network, l, rival *memlock.Locker) {
				held := mustLock(t, healthy(), rival, "x", distlock.TTL(time.Hour))
				wait := func(ctx context.Context) <-chan error {
					done := make(chan error, 1)
					go func() {
						lock, err := l.Lock(ctx, "x", distlock.TTL(ttl))
						if err == nil {
							err = lock.Unlock(bg)
						}
						done <- err
					}()
					synctest.Wait()
					return done
				}
				first := wait(bg)
				n.use(on("try", fails(fate)))
				began, tries, releases := time.Now(), n.count("try"), n.count("release")
				err := <-first
				took := time.Since(began)
				wantErr(t, "the waiter", err, errStore)
				if errors.Is(err, distlock.ErrHeld) {
					t.Errorf("an outage is told as ErrHeld: %v", err)
				}
				bound, next := min(ttl, time.Minute), min(ttl/3, 10*time.Second)
				switch {
				case fate == driver.Answered && took > next:
					t.Errorf("it went on for %v", took)
				case fate != driver.Answered && (took < bound-time.Second || took > bound+10*time.Second):
					t.Errorf("it went on for %v, want %v", took, bound)
				case fate != driver.Again && n.count("try")-tries > 100:
					t.Errorf("%d tries in %v", n.count("try")-tries, took)
				}
				time.Sleep(time.Second)
				if n.count("release") == releases {
					t.Error("what was in the queue is not undone")
				}
				if fate == driver.Answered {
					return
				}
				// A context that ends meanwhile says all three.
				n.use()
				ctx, cancel := context.WithTimeout(bg, bound-time.Second)
				defer cancel()
				second := wait(ctx)
				n.use(on("try", fails(fate)))
				err = <-second
				wantErr(t, "the waiter", err, context.DeadlineExceeded)
				wantErr(t, "the waiter", err, distlock.ErrHeld)
				wantErr(t, "the waiter", err, errStore)
				// What passes is outlived.
				n.use()
				third := wait(bg)
				n.use(on("try", fails(fate)))
				time.Sleep(bound - 2*time.Second)
				n.use()
				mustUnlock(t, healthy(), held)
				if err := <-third; err != nil {
					t.Errorf("the third waiter: %v", err)
				}
			})
		})
	}
}

// A renewal that failed is tried again until the deadline, unless the client library was closed.
func TestFateOfRenewal(t *testing.T) {
	eachFate(t, func(t *testing.T, fate driver.Fate, n *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
		n.use(on("renew", fails(fate)))
		time.Sleep(2500 * time.Millisecond)
		if got := n.count("renew"); fate == driver.Again && (got < 50 || got > 80) || fate != driver.Again && (got < 3 || got > 10) {
			t.Errorf("%d renewals in a second and a half", got)
		}
		if lock.Err() != nil {
			t.Fatalf("a failed renewal has ended the lock: %v", lock.Err())
		}
		n.use()
		time.Sleep(time.Minute)
		if lock.Err() != nil {
			t.Fatalf("no renewal has followed: %v", lock.Err())
		}
		// An Extend fails with the store's error, and again where that helps at once.
		n.use(on("renew", times(3, fails(fate))))
		err := lock.Extend(bg, 4*time.Second)
		if fate == driver.Again {
			if err != nil {
				t.Errorf("Extend: %v", err)
			}
		} else {
			wantErr(t, "Extend", err, errStore)
		}
		n.use(on("renew", fails(fate)))
		<-lock.Done()
		wantErr(t, "Err", lock.Err(), distlock.ErrLost)
		wantErr(t, "Err", lock.Err(), errStore)
	})
}

// A release that failed goes on in the background. The caller is told at once what the store
// refuses for good.
func TestFateOfRelease(t *testing.T) {
	eachFate(t, func(t *testing.T, fate driver.Fate, n *network, l, rival *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(time.Minute))
		n.use(on("release", fails(fate)))
		began := time.Now()
		err := lock.Unlock(bg)
		took := time.Since(began)
		switch {
		case fate == driver.Answered && took != 0:
			t.Errorf("an answer came after %v", took)
		case took > 5*time.Second:
			t.Errorf("Unlock took %v", took)
		}
		wantErr(t, "Unlock", err, errStore)
		if fate == driver.Answered {
			began = time.Now()
			wantErr(t, "Unlock once more", lock.Unlock(bg), errStore)
			if took := time.Since(began); took != 0 {
				t.Errorf("an answer that is known came after %v", took)
			}
		}
		time.Sleep(20 * time.Second)
		if got := n.count("release"); fate != driver.Again && (got < 10 || got > 50) || fate == driver.Again && got < 400 {
			t.Errorf("%d releases in 20s", got)
		}
		n.use()
		time.Sleep(time.Second)
		if _, err := rival.TryLock(healthy(), "x"); err != nil {
			t.Errorf("not free after the outage: %v", err)
		}
		wantErr(t, "the second Unlock", lock.Unlock(bg), nil)
	})
}

// A release ends when the store has let go of the entry by itself.
func TestReleaseIsGivenUp(t *testing.T) {
	eachFate(t, func(t *testing.T, fate driver.Fate, n *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(10*time.Second))
		n.use(on("release", fails(fate)))
		wantErr(t, "Unlock", lock.Unlock(bg), errStore)
		time.Sleep(20 * time.Second)
		before := n.count("release")
		time.Sleep(time.Minute)
		if got := n.count("release") - before; before < 5 || got != 0 {
			t.Errorf("%d releases, and %d after twice the TTL", before, got)
		}
		wantErr(t, "the second Unlock", lock.Unlock(bg), errStore)
	})
}

// What a release may have done already decides what ErrLost means: only an unknown one may have
// freed the name.
func TestReleaseThatFindsNothing(t *testing.T) {
	eachFate(t, func(t *testing.T, fate driver.Fate, n *network, l, rival *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(time.Minute))
		n.use(once(on("release", func(context.Context, memlock.Call, func()) (bool, error) {
			testkit.Should(t, distlock.Break(healthy(), rival, "x", 0))
			return true, &driver.Fault{Fate: fate, Err: errStore}
		})))
		err := lock.Unlock(bg)
		if fate == driver.Answered { // told at once; the rest is in the background
			wantErr(t, "Unlock", err, errStore)
			time.Sleep(2 * time.Second)
			err = lock.Unlock(bg)
		}
		if lost := errors.Is(err, distlock.ErrLost); lost != (fate != driver.Unknown) || !lost && err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// TryLock believes what a waiter of the process was told for a moment, and never once that
// waiter's own look has failed.
func TestTryLockAsks(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		mustLock(t, healthy(), rival, "x", distlock.TTL(time.Hour))
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		go func() { _, _ = l.Lock(ctx, "x", distlock.TTL(300*time.Millisecond)) }()
		synctest.Wait()
		for _, c := range []struct {
			pause time.Duration
			asks  int
		}{{50 * time.Millisecond, 0}, {35 * time.Millisecond, 0}, {0, 0}} {
			time.Sleep(c.pause)
			before := n.count("try")
			_, err := l.TryLock(bg, "x")
			wantErr(t, "TryLock", err, distlock.ErrHeld)
			if got := n.count("try") - before; got != c.asks {
				t.Errorf("it has asked %d times, want %d", got, c.asks)
			}
		}
		n.use(on("try", requestLost))
		time.Sleep(150 * time.Millisecond) // the waiter has looked
		_, err := l.TryLock(bg, "x")
		if errors.Is(err, distlock.ErrHeld) || !errors.Is(err, errBroken) {
			t.Errorf("in an outage: %v", err)
		}
	})
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		mustLock(t, healthy(), rival, "x", distlock.TTL(time.Hour))
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		go func() { _, _ = l.Lock(ctx, "x", distlock.TTL(time.Hour)) }()
		time.Sleep(101 * time.Millisecond)
		before := n.count("try")
		_, err := l.TryLock(bg, "x")
		wantErr(t, "TryLock", err, distlock.ErrHeld)
		if got := n.count("try") - before; got != 1 {
			t.Errorf("it has asked %d times, a tenth of a second after the waiter", got)
		}
	})
}
