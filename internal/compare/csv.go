package compare

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// csvHead names the columns. Every row is one value, or one text.
var csvHead = []string{"backend", "kind", "name", "round", "x", "value", "unit", "verdict", "text"}

// csvRow is one row; what does not apply stays empty.
type csvRow struct {
	backend, kind, name string
	round               int // from 1
	x, value            *float64
	unit                string
	verdict             Verdict
	text                string
}

// WriteCSV writes every value in a row of its own, for a spreadsheet or a script. The
// first rows are the problems, if there are any (kind "problem").
func (r *Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{csvHead}
	for _, warning := range r.Warnings() {
		rows = append(rows, csvRow{kind: "problem", text: warning}.fields())
	}
	for i, label := range r.labels() {
		for _, row := range r.csvRows(i) {
			row.backend = label
			rows = append(rows, row.fields())
		}
	}
	if err := out.WriteAll(rows); err != nil {
		return err
	}
	return out.Error()
}

// csvRows returns what there is of one backend.
func (r *Report) csvRows(i int) []csvRow {
	b := r.Backends[i]
	rows := []csvRow{
		{kind: "backend", name: "version", text: b.Version},
		{kind: "backend", name: "origin", text: b.Origin},
		{kind: "backend", name: "url", text: b.URL},
	}
	for _, f := range r.figures() {
		rows = append(rows, csvSeries(csvRow{kind: "figure", name: string(f), unit: infoOf(f).unit}, b.Figures[f])...)
	}
	for _, id := range slices.Sorted(maps.Keys(b.Traffic)) {
		t := b.Traffic[id]
		rows = append(rows, csvRow{kind: "traffic", name: id, value: &t.Requests, unit: "requests"},
			csvRow{kind: "traffic", name: id, value: &t.Bytes, unit: "bytes"})
	}
	for _, h := range r.hazards() {
		if o, ok := b.Safety[h]; ok {
			rows = append(rows, csvRow{kind: "safety", name: string(h), verdict: o.Verdict, text: o.Text})
			rows = append(rows, csvSeries(csvRow{kind: "safety", name: string(h), unit: o.Unit, verdict: o.Verdict}, o.Values)...)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.Distributions)) {
		d := b.Distributions[id]
		for k := range min(len(d.Percentiles), len(d.MS)) {
			rows = append(rows, csvRow{kind: "percentile", name: id, x: &d.Percentiles[k], value: &d.MS[k], unit: "ms"})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.Curves)) {
		c := b.Curves[id]
		for _, p := range c.Points {
			rows = append(rows, csvRow{kind: "curve", name: id, x: &p.X, value: &p.Y, unit: c.Y})
		}
	}
	for _, f := range b.Facts {
		rows = append(rows, csvRow{kind: "fact", name: f.ID, text: f.Text})
	}
	for _, id := range slices.Sorted(maps.Keys(b.Failed)) {
		rows = append(rows, csvRow{kind: "failed", name: id, verdict: Bad, text: b.Failed[id]})
	}
	return rows
}

func csvSeries(row csvRow, s Series) []csvRow {
	var rows []csvRow
	for i := range s {
		row.round, row.value = i+1, &s[i]
		rows = append(rows, row)
	}
	return rows
}

func (r csvRow) fields() []string {
	round := ""
	if r.round > 0 {
		round = strconv.Itoa(r.round)
	}
	return []string{csvText(r.backend), r.kind, csvText(r.name), round, csvNumber(r.x), csvNumber(r.value),
		csvText(r.unit), csvText(string(r.verdict)), csvText(r.text)}
}

func csvNumber(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'g', -1, 64)
}

// csvText keeps a spreadsheet from taking a text for a formula and running it.
func csvText(s string) string {
	s = clean(s)
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}
