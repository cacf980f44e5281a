package etcdlock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A call fails at once, and says why, if every member refuses the connection, also if a lease is held in readiness. When the
// server is back, the next call reaches it.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	l, err := Open(t.Context(), s.URL(), nil)
	testkit.Must(t, err)
	defer l.Close()
	take := func() {
		h, err := l.TryLock(t.Context(), "x")
		testkit.Must(t, err)
		testkit.Must(t, h.Unlock(t.Context()))
	}
	take()
	testkit.Must(t, s.Kill(t.Context()))
	testkit.Until(t, "the client has met a refusal", func() bool {
		_, err := l.TryLock(t.Context(), "x")
		return driver.FateOf(err) == driver.NotSent
	})
	for what, call := range map[string]func(context.Context, string, ...distlock.Option) (distlock.Lock, error){"TryLock": l.TryLock, "Lock": l.Lock} {
		for with, opts := range map[string][]distlock.Option{
			"": nil, "and a lease to be granted": {distlock.TTL(time.Hour)}, "and a lease of its own": {distlock.NoRenewal()},
		} {
			testkit.Within(t, time.Second, func() { _, err = call(t.Context(), "x", opts...) })
			if driver.FateOf(err) != driver.NotSent || !strings.Contains(err.Error(), "connect") {
				t.Errorf("%s %s: %v (%v), want one that was not sent, and why", what, with, err, driver.FateOf(err))
			}
		}
	}
	testkit.Must(t, s.Restart(t.Context()))
	take()
}
