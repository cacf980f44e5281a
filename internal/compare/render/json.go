package render

import (
	"encoding/json"
	"io"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// JSON writes the report with all its rounds, in the form that docs/reports/README.md
// describes.
func JSON(w io.Writer, r *report.Report) error {
	full := *r
	full.Problems = doc{r}.warnings()
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(full)
}
