package zklock

import (
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
	testkit.Until(t, "an attempt to connect has failed", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, c := range d.classes {
			if c.session != nil && c.session.conn.Reason() != nil {
				return true
			}
		}
		return false
	})
	testkit.Within(t, 1500*time.Millisecond, func() { _, err = l.TryLock(t.Context(), "x") })
	if driver.FateOf(err) != driver.NotSent {
		t.Errorf("TryLock: %v (%v), want one that was not sent", err, driver.FateOf(err))
	}
	w.away.Store(false)
	unlock(t, lock(t, l, "x"))
}
