package mutants_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/mutants"
)

// TestTolerated: no check accuses an unusual driver that is right, nor leaves it in
// doubt. Each is seen in a few situations, and each in others; in all of them by make matrix. A short run gives each
// driver half of the checks: each check sees every second driver.
func TestTolerated(t *testing.T) {
	for i, o := range mutants.AllTolerated() {
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			options := conformance.Options{Filter: halfIfShort(i), Seed: uint64(i + 1), Sample: true}
			for _, r := range examineBy(t, o.Harness(), options).Results {
				if r.Status == conformance.Failed || r.Status == conformance.Inconclusive {
					t.Errorf("a driver that %s is accused: %s", o.Unusual, r.Text())
				}
			}
		})
	}
}

// TestReference: neither is the driver that all mutants are made from, by the harness
// that they have.
func TestReference(t *testing.T) {
	for _, r := range examine(t, mutants.Mutant{}.Harness(), mandatoryIfShort).Results {
		if r.Status == conformance.Failed || r.Status == conformance.Inconclusive {
			t.Errorf("memlock is accused: %s", r.Text())
		}
	}
}

// TestFailover: a driver that claims to survive a failover and does is not accused;
// one that claims nothing is not let off with a pass, but reported with what was seen.
func TestFailover(t *testing.T) {
	all := mutants.AllTolerated()
	survivor := all[slices.IndexFunc(all, func(o mutants.Tolerated) bool { return o.Name == "Survivor" })]
	only := func(k conformance.Check) bool { return k.ID == "fault/failover" }
	for name, want := range map[string]struct {
		h      conformance.Harness
		status conformance.Status
		says   string
	}{
		"survives":       {survivor.Harness(), conformance.Passed, ""},
		"claims nothing": {mutants.Mutant{}.Harness(), conformance.Skipped, "does not declare that its locks survive a failover; here: B was refused"},
	} {
		r, _ := examine(t, want.h, only).Result("fault/failover")
		if r.Status != want.status || !strings.Contains(r.Reason, want.says) {
			t.Errorf("%s: %s, want %s: %s", name, r.Status, want.status, r.Text())
		}
	}
}

// halfIfShort keeps every second check, and for the next i the others.
func halfIfShort(i int) func(conformance.Check) bool {
	checks := conformance.Checks()
	return func(k conformance.Check) bool {
		at := slices.IndexFunc(checks, func(other conformance.Check) bool { return other.ID == k.ID })
		return !testing.Short() || (at+i)%2 == 0
	}
}

func mandatoryIfShort(k conformance.Check) bool { return k.Mandatory || !testing.Short() }
