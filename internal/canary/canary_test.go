package canary

import (
	"testing"
	"testing/synctest"
	"time"
)

// In virtual time nobody is ever late.
func TestNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Start()
		time.Sleep(time.Minute)
		if late := c.Stop(); late != 0 {
			t.Errorf("a canary on a machine that is never late was late by %v", late)
		}
	})
}

// A sleep that is over and has not been noted yet counts: the goroutine of the canary may be
// the one that gets no processor.
func TestOverdueCounts(t *testing.T) {
	c := &Canary{quit: make(chan struct{}), due: time.Now().Add(-time.Second)}
	if late := c.Stop(); late < time.Second {
		t.Errorf("overdue by a second: got %v", late)
	}
	c.Stop()
}

// Within the granularity of timers nobody is late.
func TestNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Canary{quit: make(chan struct{}), due: time.Now().Add(-noise)}
		if late := c.Late(); late != 0 {
			t.Errorf("late by the granularity of timers: got %v", late)
		}
	})
}
