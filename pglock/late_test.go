package pglock

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// again sends the request of a Try once more, as one that had no answer and comes late.
func again(t *testing.T, c *claim) (granted bool) {
	t.Helper()
	testkit.Must(t, c.store.send(t.Context(), query{c.store.text["acquire"],
		[]any{c.name(), c.owner, []byte(c.request.Holder), c.request.TTL.Microseconds(), true},
		func(pgx.Rows) error { granted = true; return nil }}))
	return granted
}

// A late request of the claim that holds may raise the token of the row: Guard must not take that for a loss. If another has
// held the name meanwhile, it must, and so must a renewal.
func TestHeldBesideLateRequest(t *testing.T) {
	t.Parallel()
	name, pool := table(t), poolWith(t, nil)
	lock := value[distlock.Lock](t)(locker(t, pool, name).TryLock(t.Context(), "x"))
	held, _ := distlock.As[*Lock](lock)
	guard := func() error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return held.Guard(t.Context(), tx) })
	}
	if !again(t, held.claim) {
		t.Fatal("the late request of the holder was not granted")
	}
	testkit.Must(t, guard())
	exec(t, pool, "UPDATE "+name+" SET expires = clock_timestamp()") // the server's clock is ahead of the holder's
	other := value[distlock.Lock](t)(locker(t, pool, name).TryLock(t.Context(), "x"))
	testkit.Must(t, other.Unlock(t.Context()))
	if !again(t, held.claim) {
		t.Fatal("the late request was not granted although the name was free")
	}
	if err := guard(); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Guard of a lock that another had after it: %v", err)
	}
	renewals := []driver.Renewal{{Claim: held.claim, TTL: time.Minute}, {Claim: held.claim, TTL: time.Minute}}
	if held.claim.store.Renew(t.Context(), renewals); !errors.Is(renewals[0].Err, distlock.ErrLost) {
		t.Errorf("renewal of a lock that another had after it: %v", renewals[0].Err)
	}
}

// After a Break a late request of the claim is refused: it would take the name for nobody.
func TestBreakRefusesLateRequests(t *testing.T) {
	t.Parallel()
	name, pool := table(t), poolWith(t, nil)
	l := locker(t, pool, name)
	held, _ := distlock.As[*Lock](value[distlock.Lock](t)(l.TryLock(t.Context(), "x")))
	testkit.Must(t, l.Break(t.Context(), "x", held.Token()))
	if again(t, held.claim) {
		t.Error("the late request was granted")
	}
	testkit.Must(t, value[distlock.Lock](t)(l.TryLock(t.Context(), "x")).Unlock(t.Context()))
}

// A hold was broken before the claim heard of its grant: the claim waits on, and what was sent before is refused.
func TestBreakOfUnheardGrant(t *testing.T) {
	t.Parallel()
	name, pool := table(t), poolWith(t, nil)
	l := locker(t, pool, name)
	holder := value[distlock.Lock](t)(l.TryLock(t.Context(), "x"))
	c := claimOn(t, l)
	if _, err := c.Try(t.Context()); !errors.Is(err, distlock.ErrHeld) {
		t.Fatal(err)
	}
	before := *c
	testkit.Must(t, holder.Unlock(t.Context()))
	if !again(t, c) {
		t.Fatal("not granted")
	}
	c.fresh, c.ambiguous = true, true // as after a Try without an answer
	broken := value[distlock.Status](t)(l.Inspect(t.Context(), "x")).Token
	testkit.Must(t, l.Break(t.Context(), "x", broken))
	if _, err := c.Try(t.Context()); driver.FateOf(err) != driver.Again {
		t.Fatal(err)
	}
	if grant := value[driver.Grant](t)(c.Try(t.Context())); grant.Token <= broken {
		t.Errorf("token %d after %d", grant.Token, broken)
	}
	testkit.Must(t, c.Release(t.Context()))
	if again(t, &before) {
		t.Error("a late copy of what was sent before the Break was granted")
	}
}

// A row that refuses a late request outlives a sweep of what is younger than that request may be.
func TestSweepLeavesTombstones(t *testing.T) {
	t.Parallel()
	name, pool := table(t), poolWith(t, nil)
	l := locker(t, pool, name)
	value[distlock.Lock](t)(l.TryLock(t.Context(), "x"))
	exec(t, pool, "UPDATE "+name+" SET token = token - 3600000000, expires = clock_timestamp() - interval '1 hour'") // its holder has died
	c := claimOn(t, l)
	c.ambiguous = true // its Try has had no answer yet
	testkit.Must(t, c.Release(t.Context()))
	value[int](t)(l.Sweep(t.Context(), time.Second))
	if again(t, c) {
		t.Fatal("the request of a claim that was undone was granted")
	}
	for _, age := range []string{"0", "290 seconds"} {
		exec(t, pool, "UPDATE "+name+" SET token = token - 3600000000, expires = clock_timestamp() - interval '"+age+"' WHERE name = 'x'")
		value[int](t)(l.Sweep(t.Context(), time.Second))
		if again(t, c) {
			t.Fatalf("%v after the claim was undone its request was granted", age)
		}
	}
	exec(t, pool, "UPDATE "+name+" SET expires = clock_timestamp() - interval '300 seconds' WHERE name = 'x'")
	if n := value[int](t)(l.Sweep(t.Context(), time.Second)); n != 1 {
		t.Errorf("%d rows were swept after %v, want 1", n, driver.MaxLate)
	}
}
