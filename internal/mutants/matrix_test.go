package mutants_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/mutants"
)

// seed makes a matrix the same from run to run, as far as goroutines allow, unless
// the suite's environment variable names another.
const seed = 1

// examine runs the checks that keep returns true for against a harness.
func examine(t *testing.T, h conformance.Harness, keep func(conformance.Check) bool) conformance.Report {
	t.Helper()
	return examineBy(t, h, conformance.Options{Filter: keep, Seed: seed})
}

// examineBy is examine with more options than the filter.
func examineBy(t *testing.T, h conformance.Harness, o conformance.Options) conformance.Report {
	t.Helper()
	o.VirtualTime, o.Artifacts = true, t.TempDir()
	if os.Getenv("DISTLOCK_CONFORMANCE_SEED") != "" {
		o.Seed = 0
	}
	return conformance.Collect(t, h, &o)
}

// relevant returns the filter for a mutant: the whole table, or, in a short run,
// its killers and what is mandatory of the core.
func relevant(m mutants.Mutant) func(conformance.Check) bool {
	return func(k conformance.Check) bool {
		return !testing.Short() || k.Mandatory && k.Group() == "core" ||
			mustFail(m, k.ID)
	}
}

// killers collects the checks that have failed, with the mutants.
type killers struct {
	trips    *trips
	mu       sync.Mutex
	examined int
	killed   map[string][]string
}

// note counts a check that has failed, but not for a mutant that may fail them all,
// unless it must fail this one: with what it gets wrong nothing can be right.
func (k *killers) note(m mutants.Mutant, report conformance.Report) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.examined++
	for _, r := range report.Results {
		if r.Status == conformance.Failed && (mustFail(m, r.ID) || !k.trips.all(m.Name)) {
			k.killed[r.ID] = append(k.killed[r.ID], m.Name)
		}
	}
}

func mustFail(m mutants.Mutant, check string) bool {
	return slices.ContainsFunc(m.KilledBy, func(k mutants.Kill) bool { return k.Check == check })
}

// TestMatrix: every mutant is caught by the checks that must catch it, with a message
// that tells what is wrong, and by no other mandatory one but those that rest on its
// flaw.
func TestMatrix(t *testing.T) {
	found := killers{trips: readTrips(t), killed: make(map[string][]string)}
	t.Run("mutants", func(t *testing.T) {
		for _, m := range mutants.All() {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				judge(t, m, examine(t, m.Harness(), relevant(m)), &found)
			})
		}
	})
	if *update {
		found.trips.write(t)
	}
	if testing.Short() || found.examined < len(mutants.All()) {
		return // what was not run has caught nothing
	}
	for _, k := range conformance.Checks() {
		if k.Mandatory && len(found.killed[k.ID]) == 0 && !onServersKills(k.ID) {
			t.Errorf("%s catches no mutant: it cannot be told whether it works; add one", k.ID)
		}
	}
}

// judge compares what a mutant has failed with what it must and may fail.
func judge(t *testing.T, m mutants.Mutant, report conformance.Report, found *killers) {
	t.Helper()
	for _, kill := range m.KilledBy {
		r, ok := report.Result(kill.Check)
		switch {
		case !ok:
			t.Errorf("there is no check %s", kill.Check)
		case r.Status != conformance.Failed:
			t.Errorf("SURVIVED %s, which ended as %s: %s", kill.Check, r.Status, r.Reason)
		case !strings.Contains(r.Reason, kill.Says):
			t.Errorf("%s does not say %q, but: %s", kill.Check, kill.Says, r.Reason)
		}
	}
	found.note(m, report)
	var tripped []string
	for _, r := range report.Results {
		if r.Status != conformance.Failed {
			continue
		}
		if r.Mandatory && !mustFail(m, r.ID) && !found.trips.allows(m.Name, r.ID) {
			tripped = append(tripped, fmt.Sprintf("%s: %s", r.ID, r.Reason))
		}
	}
	if len(tripped) > 0 {
		t.Errorf("it fails checks that %s does not have for it; see there:\n%s", tripsFile, strings.Join(tripped, "\n"))
	}
}
