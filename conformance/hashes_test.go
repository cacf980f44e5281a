package conformance

import "testing"

// A name that stands twice is locked twice, and a right driver is accused.
func TestCollisionsAreDifferentNames(t *testing.T) {
	hash := hashes["Adler-32"] // has three names of one hash far more often than the others, and the more pairs, the more
	for range 100 {
		seen := make(map[string]bool)
		for _, name := range pairsOf(hash, "p-", "", 32) {
			if seen[name] {
				t.Fatalf("%q stands in two pairs", name)
			}
			seen[name] = true
		}
	}
}
