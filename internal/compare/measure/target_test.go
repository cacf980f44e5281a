package measure

import (
	"testing"
	"time"
)

// A store that cannot be reached has not been touched, and the run does not wait for
// it again to clean up.
func TestCleanUnreached(t *testing.T) {
	var targets []Target
	for _, scheme := range []string{"redis", "mysql", "zk", "etcd"} {
		target, err := NewTarget(scheme, scheme+"://127.0.0.1:1/0", "for a test", "", time.Minute)
		must(t, err)
		targets = append(targets, target)
	}
	r, err := Run(t.Context(), targets, small(), func(Step) {})
	must(t, err)
	Clean(targets, r)
	for _, b := range r.Backends {
		if b.Touched != "nothing: it could not be opened" || b.Failed["open"] == "" || b.Failed["clean"] != "" {
			t.Errorf("%s: touched %s; failed: %v", b.Name, b.Touched, b.Failed)
		}
	}
}
