package mysqllock

import (
	"context"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestBreakWakes breaks the lock of a holder that has the named lock. The holder does not release
// that before its next renewal. The waiter is not to wait for that, whether the holder has waited
// for its named lock or not, and nobody overtakes it meanwhile.
func TestBreakWakes(t *testing.T) {
	t.Parallel()
	lockers := openLockers(t, 4, Options{Options: distlock.Options{TTL: time.Minute}})
	held, err := lockers[0].Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	takesLocks(t, lockers[0].driverOf(t).locks, 1)
	queued := atLock(t, lockers[3].driverOf(t))
	turn := 0
	for range 2 {
		testkit.WithinFresh(t, patience, func() func() {
			turn++
			next, got := lockers[turn%3], make(chan distlock.Lock, 1)
			go func() {
				h, err := next.Lock(context.Background(), "n")
				if err != nil {
					t.Error(err)
				}
				got <- h
			}()
			testkit.Until(t, "the next waits for the named lock", func() bool { return queued() == 1 })
			return func() {
				if err := distlock.Break(t.Context(), lockers[3], "n", held.Token()); err != nil {
					t.Fatal(err)
				}
				h := <-got
				if h == nil {
					t.FailNow()
				}
				if h.Token() <= held.Token() {
					t.Errorf("token %d after the broken one's %d", h.Token(), held.Token())
				}
				wantError(t, "Unlock of the broken lock", held.Unlock(t.Context()), distlock.ErrLost)
				held = h
			}
		})
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBreakKeepsOrder breaks a lock while a claim waits for it. A claim that comes later is sent
// behind the waiter, as after a release.
func TestBreakKeepsOrder(t *testing.T) {
	t.Parallel()
	l := openLockers(t, 1, Options{})[0]
	d := l.driverOf(t)
	holder, waiter, late := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	token := grants(t, holder).Token
	refuses(t, waiter)
	if err := d.Break(t.Context(), "n", token); err != nil {
		t.Fatal(err)
	}
	if left := refuses(t, late); left > time.Second {
		t.Errorf("the name is kept for %v, want a second at the most", left)
	}
	wantError(t, "Release of the broken claim", holder.Release(t.Context()), distlock.ErrLost)
	for _, c := range []*claim{waiter, late} {
		releases(t, c)
	}
}
