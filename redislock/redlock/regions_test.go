package redlock

import (
	"errors"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// Claims that are far from the servers split them again and again if their pauses are shorter than the way: with such pauses, five
// clients, each 40 ms from four of the servers, wanted 50 names at the same moments, and 3 to 6 of these went to nobody.
func TestPauseOfFarClaims(t *testing.T) {
	t.Parallel()
	g := five(t)
	const far = 50 * time.Millisecond // there and back
	key := keyOf(defaultPrefix, "x").entry()
	kept := key + "/kept"
	for _, some := range []int{0, 2} { // two claims have two servers each
		held := lock(t, open(t, g.url()), "x", distlock.TTL(time.Minute), distlock.NoRenewal())
		testkit.Until(t, "it is on all servers", func() bool { return len(g.entries(t, "x")) == 5 })
		entry, err := g.admins[0].Get(t.Context(), key).Result()
		testkit.Must(t, err)
		testkit.Must(t, held.Unlock(t.Context()))
		testkit.Until(t, "it is on none", func() bool { return len(g.entries(t, "x")) == 0 })
		for _, a := range g.admins[some : some+2] {
			testkit.Must(t, a.Set(t.Context(), kept, entry, time.Hour).Err())
		}
	}
	for _, a := range g.admins[:4] {
		testkit.Must(t, a.Rename(t.Context(), kept, key).Err())
	}
	l, via := proxied(t, g, "&request_timeout=10s")
	via.Delay(far, 0)
	began := time.Now()
	_, err := l.TryLock(t.Context(), "x")
	took := time.Since(began)
	if !errors.Is(err, distlock.ErrHeld) {
		t.Fatalf("TryLock where two others have two servers each: %v, want ErrHeld", err)
	}
	// Four rounds, each of one way there and back, and three pauses, of which the first is as long as a round at the least, and
	// each at least twice the one before. With short pauses it was 400 ms.
	if least := 10 * far; took < least {
		t.Errorf("TryLock gave up after %v, the servers being %v away, there and back; want %v at the least", took, far, least)
	}
}
