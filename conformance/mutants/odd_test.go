package mutants_test

import (
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/mutants"
)

// TestOdd: drivers that are unusual but right are not accused of anything, nor left
// in doubt, by any check.
func TestOdd(t *testing.T) {
	for _, o := range mutants.Odd() {
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			for _, r := range examine(t, o.Harness(), mandatoryIfShort, o.Options()...).Results {
				if r.Status == conformance.Failed || r.Status == conformance.Inconclusive {
					t.Errorf("a driver that %s is accused: %s", o.Odd, r.Text())
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

func mandatoryIfShort(k conformance.Check) bool { return k.Mandatory || !testing.Short() }
