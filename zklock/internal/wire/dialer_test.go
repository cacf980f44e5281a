package wire

import (
	"testing"
	"time"
)

// A server that grants each session and drops it at once is not asked again without end. One that has served for a while is
// asked at once.
func TestPauseAfterShortConnections(t *testing.T) {
	connect := func(h *hosts, lasted time.Duration) (pauses int) {
		for range 3 * maxShort {
			if _, allTried := h.Next(); allTried {
				pauses++
			}
			h.Connected()
			h.connected = h.connected.Add(-lasted)
		}
		return pauses
	}
	for _, list := range [][]string{{"a:1"}, {"a:1", "b:1", "c:1"}} {
		if n := connect(&hosts{list: list}, 0); n < 2 {
			t.Errorf("%d servers: %d pauses in %d connections that were lost at once", len(list), n, 3*maxShort)
		}
		if n := connect(&hosts{list: list}, lasting); n > 0 {
			t.Errorf("%d servers: %d pauses after connections that lasted", len(list), n)
		}
	}
}

// Haste is for a session that can be saved. A new one has the whole dial_timeout.
func TestLimitOfADial(t *testing.T) {
	const whole = 5 * time.Second
	d := newDialer(Target{DialTimeout: whole, Lease: func(granted time.Duration) time.Duration { return granted / 2 }})
	defer d.end()
	if got := d.limit(); got != whole {
		t.Errorf("the first connection has %v", got)
	}
	d.granted.Store(int64(4 * time.Second))
	if got := d.limit(); got != 2*minSilence {
		t.Errorf("with a session to save: %v", got)
	}
	d.began = d.began.Add(-time.Minute)
	if got := d.limit(); got != whole {
		t.Errorf("without a session to save: %v", got)
	}
}

// A session that was granted less when it reconnected is not ended before the longer lease is over that a lock was promised before.
func TestLongerLeaseIsOutlived(t *testing.T) {
	d := newDialer(Target{Lease: func(granted time.Duration) time.Duration { return granted / 2 }})
	defer d.end()
	for _, granted := range []time.Duration{40 * time.Second, 0, 6 * time.Second} {
		d.succeed(granted)
	}
	if got := d.outlived(); got != 17*time.Second {
		t.Errorf("granted 40 s and then 6 s: %v after the session was given up", got)
	}
	d.succeed(6 * time.Second)
	if got := d.outlived(); got != 0 {
		t.Errorf("the next one, always 6 s: %v", got)
	}
}
