package conformance

import (
	"testing"
	"time"
)

// Four times the unit is a TTL of checks: it must not be more than a driver promises, as it was
// of a ZooKeeper with sessions of 13 s on a slow machine.
func TestUnitFits(t *testing.T) {
	for _, timing := range []Timing{
		{MaxTTL: 8138 * time.Millisecond, TTLGranularity: time.Millisecond},
		{MaxTTL: 11 * time.Second, TTLGranularity: time.Second},
	} {
		if unit := timing.fitUnit(time.Minute); 4*unit > timing.MaxTTL || unit%timing.TTLGranularity != 0 {
			t.Errorf("%v: the unit is %v", timing, unit)
		}
	}
}

// The shortest leases are as long as what was measured asks for, and no longer than the bounds of a check allow for.
func TestShortFollows(t *testing.T) {
	k := Calibration{Pair: 10 * time.Millisecond}
	k.derive(Timing{MinTTL: time.Millisecond})
	for _, step := range []struct{ slowest, want time.Duration }{
		{0, minShort},
		{300 * time.Millisecond, 1200 * time.Millisecond},
		{0, 1200 * time.Millisecond}, // within a check it never falls
		{3 * time.Second, minUnit},
	} {
		if k.follow(step.slowest); k.Short != step.want {
			t.Errorf("after a delay of %v it is %v, want %v", step.slowest, k.Short, step.want)
		}
	}
}
