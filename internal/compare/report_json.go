package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// WriteJSON writes the report with all its rounds, in the form that docs/compare-json.md
// describes.
func (r *Report) WriteJSON(w io.Writer) error {
	full := *r
	full.Problems = r.Warnings()
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(full)
}

// ReadReport reads what WriteJSON has written. A report of another schema is refused:
// its fields may mean something else.
func ReadReport(rd io.Reader) (*Report, error) {
	text, err := io.ReadAll(rd)
	if err != nil {
		return nil, err
	}
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("not a report of distlock compare --json: %w", err)
	}
	if head.Schema != Schema {
		return nil, fmt.Errorf("the report has schema %d, this version reads %d: measure it again", head.Schema, Schema)
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("not a report of distlock compare --json: %w", err)
	}
	r.Backends = slices.DeleteFunc(r.Backends, func(b *Backend) bool { return b == nil })
	return r, nil
}
