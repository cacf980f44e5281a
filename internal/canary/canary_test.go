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

// Of each time in which the canary was late, what lies between the two instants counts, that of a sleep under way as well.
func TestBetween(t *testing.T) {
	now := time.Now()
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	c := &Canary{quit: make(chan struct{}), due: at(-2), records: true, overran: []span{{at(-20), at(-17)}, {at(-10), at(-8)}}}
	for _, tc := range []struct{ from, to, want int }{
		{-30, -25, 0}, {-30, -5, 5}, {-19, -9, 3}, {-9, -8, 1}, {-8, -2, 0}, {-30, -1, 6}, {-19, -18, 1},
	} {
		if got := c.Between(at(tc.from), at(tc.to)); got != time.Duration(tc.want)*time.Second {
			t.Errorf("between %d and %d: got %v, want %ds", tc.from, tc.to, got, tc.want)
		}
	}
	c.waited = []span{{at(-25), at(-16)}, {at(-7), at(-6)}}
	if late := c.Between(at(-30), at(-10)); late != 9*time.Second {
		t.Errorf("threads were late for %v", late)
	}
	if thread, sleep := c.Longest(at(-17)), c.Longest(at(-8)); thread != 9*time.Second || sleep < 2*time.Second || sleep > 8*time.Second {
		t.Errorf("the longest were %v, of a thread, and %v, of the sleep under way", thread, sleep)
	}
	if late := c.Between(at(-1), at(1)); late < time.Second {
		t.Errorf("a sleep under way that is overdue: got %v", late)
	}
}
