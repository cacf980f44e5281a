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
	groups := []string{"core", "after", "owner", "pair"}
	for name, near := range map[string][]string{
		"LookThenTake": {"pair/try-free"},
		"BlindUnlock":  {"owner/stale-unlock-free", "owner/same-client-stale"},
		"UpMeansGot":   {"core/exclusive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := mutants.All()
			m := all[slices.IndexFunc(all, func(m mutants.Mutant) bool { return m.Name == name })]
			summary := examine(t, m.Harness(), func(k conformance.Check) bool { return slices.Contains(groups, k.Group()) }).Summary()
			_, rest, _ := strings.Cut(summary, "\n  read first: ")
			if first, _, _ := strings.Cut(rest, "\n"); !slices.Contains(near, first) {
				t.Errorf("read first: %q, want one of %q; %s", first, near, summary)
			} else {
				t.Logf("read first: %s", first)
			}
		})
	}
}
