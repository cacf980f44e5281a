package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/memlock"
)

// TestSummaryNamesWhatWasNotExamined: a run of few checks, some skipped, says so.
func TestSummaryNamesWhatWasNotExamined(t *testing.T) {
	r := Verify(t.Context(), stub{}, &Options{Artifacts: t.TempDir(), Parallel: 1,
		Filter: func(k Check) bool {
			return k.ID == "core/exclusive" || k.Group() == "own" || k.ID == "fault/paused-server-long"
		},
		Checks: []Check{check("slow", func(c *C) { c.lacks(capProxy, "no proxy") })},
	})
	text := r.Summary()
	for _, want := range []string{
		"1 passed, 0 failed, 2 skipped",
		"H1 where requests or replies are lost, late or cut off: not examined (1 check), the harness has no proxy",
		"H4 where the server is stopped, killed or restarted: not examined (1 check), the harness has no process",
		"H4: not examined at all",
		"checks of the suite were not chosen to run",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary does not say %q:\n%s", want, text)
		}
	}
}

// TestInterrupted: what was to run and did not is told in every form of the report.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := Verify(ctx, stub{memlock.NewStore(nil)}, &Options{Filter: func(k Check) bool { return k.Group() == "core" }, Artifacts: t.TempDir()})
	if r.Interrupted < 5 || r.Left+r.Interrupted+len(r.Results) != len(Checks()) {
		t.Fatalf("%d interrupted, %d left, %d done", r.Interrupted, r.Left, len(r.Results))
	}
	var text, xml strings.Builder
	if err := errors.Join(r.WriteJSON(&text), r.WriteJUnit(&xml)); err != nil {
		t.Fatal(err)
	}
	for form, want := range map[string]string{r.Summary(): "interrupted: ", text.String(): `"interrupted": `, xml.String(): ` errors="1"`} {
		if !strings.Contains(form, want) {
			t.Errorf("no %q in %s", want, form)
		}
	}
}
