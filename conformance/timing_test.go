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
