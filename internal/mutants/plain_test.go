package mutants_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/mutants"
)

// plain is the harness that most drivers begin with: it opens clients, and can do nothing else.
type plain struct{ conformance.Harness }

// ForCheck implements conformance.Scoped.
func (h plain) ForCheck(c *conformance.C) conformance.Harness {
	return plain{h.Harness.(conformance.Scoped).ForCheck(c)}
}

// Caps implements conformance.Harness.
func (h plain) Caps() conformance.Caps {
	caps := h.Harness.Caps()
	caps.Inspector, caps.Proxy, caps.ServerClock, caps.Failover = conformance.No, conformance.No, conformance.No, conformance.No
	return caps
}

// TestPlain: what a check can see without a link and without a look into the store, it sees by each seed, also where it
// takes a sample.
func TestPlain(t *testing.T) {
	all := mutants.All()
	for name, checks := range map[string][]string{
		"ExtendsByOwn": {"after/extends", "time/extend-fractions"},
		"SilentLoss":   {"after/expires", "after/inherits"},
		"HeldCut":      {"inspect/holder-text"},
		"LagTenth":     {"time/long-terms", "time/extend-fractions"},
		"NeverExpires": {"expiry/not-early", "expiry/odd-ttl"},
	} {
		m := all[slices.IndexFunc(all, func(m mutants.Mutant) bool { return m.Name == name })]
		for seed := range uint64(8) {
			t.Run(fmt.Sprint(name, "/", seed+1), func(t *testing.T) {
				t.Parallel()
				o := conformance.Options{Seed: seed + 1, Sample: true, Filter: func(k conformance.Check) bool { return slices.Contains(checks, k.ID) }}
				for _, r := range examineBy(t, plain{m.Harness()}, o).Results {
					if r.Status != conformance.Failed {
						t.Errorf("SURVIVED %s, which ended as %s: %s", r.ID, r.Status, r.Reason)
					}
				}
			})
		}
	}
}

// TestPlainReference: and it accuses nobody of what it cannot see.
func TestPlainReference(t *testing.T) {
	o := conformance.Options{Sample: true, Filter: func(k conformance.Check) bool {
		return k.Group() == "after" || k.Group() == "time" || k.Group() == "expiry" || k.ID == "inspect/holder-text"
	}}
	for _, r := range examineBy(t, plain{mutants.Mutant{}.Harness()}, o).Results {
		if r.Status == conformance.Failed || r.Status == conformance.Inconclusive {
			t.Errorf("memlock is accused: %s", r.Text())
		}
	}
}
