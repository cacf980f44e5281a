package conformance

import (
	"testing"
	"testing/synctest"
)

// RaceEnabled reports whether the tests are compiled with -race.
const RaceEnabled = raceEnabled

// CollectFar is Collect in virtual time, but with the times and the numbers that checks have on a server: so the bounds
// for a slow one are judged, and cost nothing.
func CollectFar(t *testing.T, h Harness, o *Options) []Result {
	s := newSuite(t.Context(), h, o)
	synctest.Test(t, func(*testing.T) {
		s.calibrate()
		s.Virtual = false
		s.derive(s.timing)
		s.Slack = max(s.Slack, o.Slack)
	})
	return s.allInBubbles(t)
}
