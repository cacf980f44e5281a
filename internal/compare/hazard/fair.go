package hazard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// fairness has the suite judge whether waiters are served in the order of their
// arrival. A driver may promise it or not. The workload of one contended name shows how
// evenly clients share it, if it was run.
func fairness(ctx context.Context, e *env) (report.Outcome, error) {
	o := report.Outcome{Verdict: report.Caution, Text: "no order promised"}
	if e.caps.Fair {
		var err error
		if o, err = e.checked(ctx, orderChecks, "in order"); err != nil {
			return o, err
		}
	}
	jain, ok := e.result.Figures[report.HotJain].Median()
	if waits := e.result.Figures[report.HotWorst]; ok && len(waits) > 0 && o.Verdict != report.Bad {
		o.Text += fmt.Sprintf("; Jain %.2f, worst wait %s", jain, span(time.Duration(slices.Max(waits)*float64(time.Millisecond))))
		o.Values, o.Unit = waits, "ms"
	}
	return o, nil
}
