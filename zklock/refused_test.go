package zklock

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestRefused: if no server can be reached, and the library knows it, a call waits until it says so once, which is a second.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newProxy(t)
	d, err := parse(server(t).URLVia(w.addr)+freshPrefix()+"?tick_time=200ms&ttl=15s", nil)
	testkit.Must(t, err)
	testkit.Must(t, d.open(t.Context()))
	l, err := newLocker(d)
	testkit.Must(t, err)
	defer l.Close()
	unlock(t, lock(t, l, "x"))
	w.away.Store(true)
	w.cut()
	failed := func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.ContainsFunc(slices.Collect(maps.Values(d.classes)), func(c *class) bool {
			return c.session != nil && c.session.conn.Reason() != nil
		})
	}
	testkit.Until(t, "an attempt to connect has failed", failed)
	testkit.Within(t, 1500*time.Millisecond, func() { _, err = l.TryLock(t.Context(), "x") })
	if driver.FateOf(err) != driver.NotSent {
		t.Errorf("TryLock: %v (%v), want one that was not sent", err, driver.FateOf(err))
	}
	w.away.Store(false)
	// The library may not be through with what it fails, and would fail the next request along with it.
	testkit.Until(t, "an attempt to connect has succeeded", func() bool { return !failed() })
	unlock(t, lock(t, l, "x"))
}
