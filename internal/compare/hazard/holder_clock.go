package hazard

import (
	"sync"
	"time"
)

// machineClock is the monotonic clock that all processes of this machine share, as far
// as this process knows it. Its own monotonic clock begins at its start, and runs at
// the same rate.
var machineClock = sync.OnceValue(func() (c struct {
	base   time.Time
	offset time.Duration // of base on the clock of the machine
}) {
	// Of many readings between two of the other clock, the quickest is the one
	// that nothing came in between.
	best := time.Hour
	c.base = time.Now()
	for range 100 {
		before := time.Since(c.base)
		now := bootTime()
		after := time.Since(c.base)
		if after-before < best {
			best = after - before
			c.offset = now - (before+after)/2
		}
	}
	return c
})

// machineAt returns the place of t on the clock of the machine. t must have a monotonic
// reading. The zero time stands for an unknown one and gives 0.
func machineAt(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	c := machineClock()
	return c.offset + t.Sub(c.base)
}

func machineNow() time.Duration { return machineAt(time.Now()) }
