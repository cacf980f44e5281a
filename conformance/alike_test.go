package conformance

import (
	"slices"
	"strings"
	"testing"
)

// TestAlike: where many checks fail for one reason, the first says so.
func TestAlike(t *testing.T) {
	refuse := func(c *C) {
		c.Failf("A was refused %q, which is fresh: distlock: trylock %q: table is missing", c.Name("x"), c.Name("x"))
	}
	got := collect(t,
		check("one", refuse),
		check("two", func(c *C) {
			c.Failf("B asked for %q at 7ms and was told: distlock: lock %q: table is missing", c.Name("y"), c.Name("y"))
		}),
		check("other", func(c *C) { c.Failf("seen 1") }),
		check("three", refuse),
	)
	if want := []string{"own/two", "own/three"}; !slices.Equal(got["one"].Alike, want) {
		t.Errorf("alike to one are %q, want %q", got["one"].Alike, want)
	}
	if len(got["other"].Alike)+len(got["two"].Alike) > 0 || !strings.Contains(got["one"].Text(), "2 others failed in the same way") {
		t.Errorf("got %s", got["one"].Text())
	}
}
