package mysqllock

import (
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestStuckLock has another user keep the named lock. A Locker may not end the connections of others: it waits for it once.
func TestStuckLock(t *testing.T) {
	t.Parallel()
	d := lockDriver(t)
	conn, err := adminPool(t).Conn(t.Context())
	testkit.Must(t, err)
	defer conn.Close()
	var got int
	if err := conn.QueryRowContext(t.Context(), d.sql.fill("await-lock", d.sql.namedLock("n"))).Scan(&got); err != nil || got == 0 {
		t.Fatal(got, err)
	}
	holder, waiter := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	grants(t, holder)
	age(t, d, "acquired", time.Second)
	queued := atLock(t, d)
	staysAtLock(t, waiter)
	releases(t, holder)
	refuses(t, waiter) // it looks by itself, but too early
	age(t, d, "waited", time.Second)
	grants(t, waiter)

	second := d.claimOn("n", time.Minute)
	polls(t, second)
	if queued() > 1 {
		t.Error("the second waiter waits for the named lock too")
	}
	releases(t, waiter)
	grants(t, second)
	releases(t, second)
}

// TestExpelled has a process keep the named lock of a name that it holds no more, as a frozen one does. The first claim that
// gets the name past it ends its connection, for those that wait behind.
func TestExpelled(t *testing.T) {
	t.Parallel()
	table := freshTable(t)
	frozen, d := lockDriverOn(t, table), lockDriverOn(t, table)
	holdsWithLock(t, frozen)
	age(t, d, "acquired", time.Second)
	heir, next := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	staysAtLock(t, heir)
	woken := goesToLock(t, t.Context(), next)
	expire(t, d, "n") // without the named lock
	grants(t, heir)
	testkit.Until(t, "the named lock has come to the heir, and is of use again", func() bool { return heir.waiter.over() && !d.locks.disabled.Has("n") })
	releases(t, heir)
	isWoken(t, "the next", woken)
	grants(t, next)
	releases(t, next)
}

// TestExpelsNoneThatLives ends the lease of a holder that lives, and is a little late with its named lock. The connection of that
// has the named lock of another name, too, and keeps it.
func TestExpelsNoneThatLives(t *testing.T) {
	t.Parallel()
	table := freshTable(t)
	late, d := lockDriverOn(t, table), lockDriverOn(t, table)
	d.locks.expelAfter = time.Hour
	holder, other := holdsWithLock(t, late), late.claimOn("other", time.Minute)
	grants(t, other)
	takesLock(t, other)
	age(t, d, "acquired", time.Second)
	before := usesLock(t, d, "other")
	heir := d.claimOn("n", time.Minute)
	staysAtLock(t, heir)
	expire(t, d, "n")
	grants(t, heir)
	time.Sleep(50 * time.Millisecond) // in which the holder is late; only a pass can be false
	wantError(t, "Release of the lock that was lost", holder.Release(t.Context()), distlock.ErrLost)
	testkit.Until(t, "the named lock has come to the heir, and is of use again", func() bool { return heir.waiter.over() && !d.locks.disabled.Has("n") })
	if now := usesLock(t, d, "other"); now != before || before == 0 {
		t.Errorf("the named lock of the other name was with the connection %d, and is with %d", before, now)
	}
	releases(t, heir)
	releases(t, other)
}
