package conformance_test

import (
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/memlock"
)

// TestReadmeRuns: what is right by the README's harness passes, at least what every first run begins with.
func TestReadmeRuns(t *testing.T) {
	t.Parallel()
	r := conformance.Collect(t, harness{memlock.NewStore(nil)}, &conformance.Options{
		Filter: func(k conformance.Check) bool { return k.Group() == "meta" || k.Group() == "core" }})
	for _, found := range r.Results {
		if found.Status == conformance.Failed {
			t.Errorf("%s", found.Text())
		}
	}
}
