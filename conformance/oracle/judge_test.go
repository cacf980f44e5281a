package oracle

import (
	"strings"
	"testing"
)

// TestToyCorrect: whatever happens to the messages, the correct server is never
// accused, and the model always comes to a verdict.
func TestToyCorrect(t *testing.T) {
	for seed := range uint64(60) {
		loss := []float64{0, 0.02, 0.1}[seed%3]
		h := toyRun(t, seed, "", loss, seed%2 == 0)
		v := Judge(h)
		for _, f := range v.Findings {
			t.Fatalf("seed %d: %s accuses the correct server:\n%s", seed, f.Oracle, f.Text)
		}
		if v.Inconclusive != "" {
			t.Errorf("seed %d: %s", seed, v.Inconclusive)
		}
	}
}

// TestToyFlaws: each flaw is found. How often depends on whether the schedule aims
// at the end of the lease; the bounds are far below what was seen (40, 40, 40, 40,
// 17 and 34 of 40), since the order of goroutines is not in the seed's hand.
func TestToyFlaws(t *testing.T) {
	const runs = 40
	for _, c := range []struct {
		flaw   string
		aimed  bool
		least  int
		oracle string // one that must be among those that saw it
	}{
		{"unlock without owner check", false, 36, "interval"},
		{"token reset after expiry", false, 36, "token"},
		{"expiry 15 ms early", true, 36, "interval"},
		{"racy acquire", false, 36, "interval"},
		{"check, then delete", true, 5, "model"},
		{"resurrecting renewal", true, 20, "model"},
	} {
		t.Run(strings.ReplaceAll(c.flaw, " ", "-"), func(t *testing.T) {
			caught, by := 0, make(map[string]int)
			for seed := range uint64(runs) {
				v := Judge(toyRun(t, seed, c.flaw, 0, c.aimed))
				seen := make(map[string]bool)
				for _, f := range v.Findings {
					seen[f.Oracle] = true
				}
				for oracle := range seen {
					by[oracle]++
				}
				if len(seen) > 0 {
					caught++
				}
				if seed == 0 && len(v.Findings) > 0 {
					for _, f := range v.Findings {
						t.Logf("%s: %s", f.Oracle, f.Text)
					}
				}
			}
			t.Logf("caught in %d of %d runs: %v", caught, runs, by)
			if caught < c.least || by[c.oracle] == 0 {
				t.Errorf("caught in %d of %d runs, by %v; want %d, also by %s", caught, runs, by, c.least, c.oracle)
			}
		})
	}
}
