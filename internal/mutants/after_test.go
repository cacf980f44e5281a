package mutants_test

import (
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/mutants"
)

// TestGenerated: each flaw on each occasion is found by the check of what it breaks.
func TestGenerated(t *testing.T) {
	for i, m := range mutants.Generated() {
		if testing.Short() && i%7 != 0 {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			report := examine(t, m.Harness(), func(k conformance.Check) bool { return mustFail(m, k.ID) })
			if r, _ := report.Result(m.KilledBy[0].Check); r.Status != conformance.Failed {
				t.Errorf("SURVIVED %s, which ended as %s: a driver that %s: %s", m.KilledBy[0].Check, r.Status, m.Flaw, r.Reason)
			}
		})
	}
}
