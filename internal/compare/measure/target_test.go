package measure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/compare/report"
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

// What a server given by the user keeps of a run is told, with what to do about it, and is no workload that has failed.
// A server that the run has started is not asked: it ends with the run.
func TestCleanWhatCannotBeRemoved(t *testing.T) {
	given, err := NewTarget("zk", "zk://127.0.0.1:1", "given URL", "", time.Minute)
	must(t, err)
	given.Remove = func(context.Context) error { return errors.New("no answer") }
	own := given
	own.RunsOwn = true
	own.Remove = func(context.Context) error { t.Error("asked to remove"); return nil }
	r := &report.Report{Backends: []*report.Backend{{}, {}}}
	Clean([]Target{given, own}, r)
	if b := r.Backends[0]; b.Left != "could not remove "+given.Sandbox.What+": delete it by hand: no answer" ||
		!strings.HasSuffix(b.Touched, "(NOT removed)") || len(b.Failed) > 0 {
		t.Errorf("on a given server: left %q, touched %q, failed %v", b.Left, b.Touched, b.Failed)
	}
	if b := r.Backends[1]; b.Left != "" || b.Touched != "only "+own.Sandbox.What+" (ends with the server)" || len(b.Failed) > 0 {
		t.Errorf("on a server of the run: left %q, touched %q, failed %v", b.Left, b.Touched, b.Failed)
	}
}
