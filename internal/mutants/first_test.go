package mutants_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/mutants"
)

// TestReadFirst: of all that fails, the summary names a check that says what is wrong with the driver.
func TestReadFirst(t *testing.T) {
	t.Parallel()
	keep := func(k conformance.Check) bool { // not all of pair/, which takes long
		return slices.Contains([]string{"core", "after", "owner"}, k.Group()) || slices.Contains([]string{"pair/try-free", "pair/unlock", "pair/close"}, k.ID)
	}
	for name, near := range map[string][]string{
		"LookThenTake": {"pair/try-free"},
		"BlindUnlock":  {"owner/stale-unlock-free", "owner/same-client-stale"},
		"UpMeansGot":   {"core/exclusive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := mutants.All()
			m := all[slices.IndexFunc(all, func(m mutants.Mutant) bool { return m.Name == name })]
			summary := examine(t, m.Harness(), keep).Summary()
			_, rest, _ := strings.Cut(summary, "\n  read first: ")
			if first, _, _ := strings.Cut(rest, "\n"); !slices.Contains(near, first) {
				t.Errorf("read first: %q, want one of %q; %s", first, near, summary)
			} else {
				t.Logf("read first: %s", first)
			}
		})
	}
}
