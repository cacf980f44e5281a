package harness

import (
	"strings"
	"testing"

	"github.com/distlock-go/distlock/conformance"
)

// TestShare: the parts together have every check, and none is in two of them but those of the groups that all have.
func TestShare(t *testing.T) {
	const n = 3
	all := conformance.Checks()
	least := len(all)
	seen := make(map[string]int)
	for left := range uint32(n) {
		selects := part(nth(n, left), func(k conformance.Check) bool { return k.ID != "pair/sweep" })
		count := 0
		for _, k := range all {
			if selects(k) {
				seen[k.ID]++
				count++
			}
		}
		least = min(least, count)
	}
	for _, k := range all {
		want := 1
		switch k.Group() {
		case "meta", "core", "expiry", "owner":
			want = n
		}
		if k.ID == "pair/sweep" {
			want = 0
		}
		if seen[k.ID] != want {
			t.Errorf("%s is in %d parts, want %d", k.ID, seen[k.ID], want)
		}
	}
	if least < len(all)/n {
		t.Errorf("one part has %d checks of %d, want a third of them at least", least, len(all))
	}
	for text, want := range map[string]uint32{"": 1, "1": 1, "3": 3} {
		if got, err := share(text); got != want || err != nil {
			t.Errorf("share(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "256", "all"} {
		if _, err := share(text); err == nil || !strings.Contains(err.Error(), shareVariable) {
			t.Errorf("share(%q): %v, want an error that names the variable", text, err)
		}
	}
}
