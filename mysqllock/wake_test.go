package mysqllock

import (
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestBreakKeepsOrder breaks a lock while a claim waits for it. A claim that comes later is sent
// behind the waiter, as after a release.
func TestBreakKeepsOrder(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	holder, waiter, late := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	token := grants(t, holder).Token
	refuses(t, waiter)
	testkit.Must(t, d.Break(t.Context(), "n", token))
	if left := refuses(t, late); left > time.Second {
		t.Errorf("the name is kept for %v, want a second at the most", left)
	}
	wantError(t, "Release of the broken claim", holder.Release(t.Context()), distlock.ErrLost)
	for _, c := range []*claim{waiter, late} {
		releases(t, c)
	}
}

// TestBreakRefusesLateCopies has a copy of the request that took a lock arrive after the lock was broken.
func TestBreakRefusesLateCopies(t *testing.T) {
	t.Parallel()
	d := openLockers(t, 1, Options{})[0].driverOf(t)
	broken := d.claimOn("n", time.Minute)
	testkit.Must(t, d.Break(t.Context(), "n", grants(t, broken).Token))
	if grant, err := broken.Try(t.Context()); err == nil {
		t.Errorf("a late copy was granted the name: %+v", grant)
	}
	releases(t, holdsWithLock(t, d))
}

// TestBreakOfUnheardGrant breaks a hold after its grant had no answer: the claim waits on, and the late copy is refused.
func TestBreakOfUnheardGrant(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, nil), freshTable(t))
	holder, c := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	grants(t, holder)
	refuses(t, c)
	releases(t, holder)
	copied := d.acquire.with(c.values(), time.Minute.Microseconds(), viaNothing)
	token, _, err := d.exec(t.Context(), copied)
	testkit.Must(t, err)
	c.ambiguous = true // as after a Try without an answer
	testkit.Must(t, d.Break(t.Context(), "n", token))
	if g := grants(t, c); g.Token <= token {
		t.Errorf("token %d after %d", g.Token, token)
	}
	releases(t, c)
	if answer, _, err := d.exec(t.Context(), copied); answer != 0 || err != nil {
		t.Errorf("a late copy of the Try that was broken: %d, %v, want 0", answer, err)
	}
}

// TestBreakBeforeRegrant breaks a hold whose grant took so long that the claim asks for it again: the claim waits on.
func TestBreakBeforeRegrant(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, nil), freshTable(t))
	c := d.claimOn("n", time.Minute)
	slow, err := c.try(t.Context())
	testkit.Must(t, err)
	testkit.Must(t, d.Break(t.Context(), "n", slow.Token))
	if _, err := c.regrant(t.Context(), slow.Token); driver.FateOf(err) != driver.Again {
		t.Fatal(err)
	}
	if g := grants(t, c); g.Token <= slow.Token {
		t.Errorf("token %d after %d", g.Token, slow.Token)
	}
	releases(t, c)
}

// TestBrokenTakesNoLock breaks a lock before its named lock was taken. Then nobody has that, and the next holder takes it.
func TestBrokenTakesNoLock(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	resume := stalls(t, d.locks)
	broken := d.claimOn("n", time.Minute)
	token := grants(t, broken).Token
	shared := &d.locks.shared
	testkit.Until(t, "its named lock is to be taken", func() bool {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		return len(shared.takes) == 1
	})
	testkit.Must(t, d.Break(t.Context(), "n", token))
	resume()
	givesBack(t, d.locks)
	lockIsFree(t, d.db, d.sql.namedLock("n").lock)
	releases(t, holdsWithLock(t, d))
}
