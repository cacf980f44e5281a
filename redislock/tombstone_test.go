package redislock

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/distlock-go/distlock/internal/testkit"
)

// Claims may be given up while their requests are ambiguous. They cost the server a few steps
// each, however many there are, and are forgotten.
func TestManyEndedClaims(t *testing.T) {
	t.Parallel()
	_, admin := own(t)
	d := driverOn(t, admin, freshPrefix())
	giveUp := func(n int) {
		for range n {
			b := d.claim("x", long)
			b.ambiguous = true
			releases(t, b)
		}
	}
	giveUp(1) // loads the script
	testkit.Must(t, admin.ConfigResetStat(t.Context()).Err())
	giveUp(299)
	calls := regexp.MustCompile(`cmdstat_hgetall:calls=(\d+)`).FindStringSubmatch(admin.Info(t.Context(), "commandstats").Val())
	if calls == nil {
		t.Fatal("the ended claims are never looked at")
	}
	if n, _ := strconv.Atoi(calls[1]); n > 20 {
		t.Errorf("300 claims had all of them looked at %d times", n)
	}
	key := keyOf(d.prefix, "x").waiters()
	for owner, place := range admin.HGetAll(t.Context(), key).Val() {
		if owner != "" {
			testkit.Must(t, admin.HSet(t.Context(), key, owner, "1"+place[13:]).Err())
		}
	}
	giveUp(310)
	if n := admin.HLen(t.Context(), key).Val(); n > 312 {
		t.Errorf("%d claims are remembered, 300 of them have ended long ago", n)
	}
}
