package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// table is what all formats show: a row for each thing measured, a column for each
// backend. Its texts are clean; each format escapes what it must.
type table struct {
	Title   string
	Lead    string // how to read it
	Columns []string
	Rows    []tableRow
	Numeric bool // aligned to the right
	List    bool // of texts too long for the columns of a terminal
}

type tableRow struct {
	Head  string
	Unit  string
	Cells []tableCell
}

type tableCell struct {
	Text    string
	Spread  string // "±4%"
	Detail  string // for a footnote
	Verdict report.Verdict
	Best    bool // beyond the noise
}

// whole is a cell as one text.
func (c tableCell) whole() string {
	if c.Spread == "" {
		return c.Text
	}
	return c.Text + " " + c.Spread
}

// Mark is a sign for a verdict, where there are no colours.
func (c tableCell) Mark() string {
	switch c.Verdict {
	case report.Good:
		return "✓"
	case report.Caution:
		return "!"
	case report.Bad:
		return "✗"
	}
	return ""
}

// tables returns what was measured and what is known, without empty ones.
func (r doc) tables() []table {
	var all []table
	for _, t := range []table{r.safetyTable(), r.performanceTable(), r.factsTable()} {
		if len(t.Rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

func (r doc) performanceTable() table {
	t := table{Title: "Performance", Columns: r.labels(), Numeric: true, Lead: r.performanceLead()}
	above := "" // what the last row said that does not continue another
	for _, f := range r.figures() {
		in := infoOf(f)
		if part, continues := in.continues(); !continues || part != above {
			in.title, above = in.full(), part // the row that it would continue is missing
		}
		series := perBackend(r, func(b *report.Backend) report.Series { return b.Figures[f] })
		t.Rows = append(t.Rows, r.seriesRow(in, series))
		if f == report.SoloRate {
			shares := perBackend(r, func(b *report.Backend) report.Series {
				return b.Figures[report.SoloRate].Ratio(b.Figures[report.BareRate])
			})
			if slices.ContainsFunc(shares, func(s report.Series) bool { return len(s) > 0 }) {
				t.Rows = append(t.Rows, r.seriesRow(figureInfo{title: "… part of bare commands"}, shares))
			}
		}
	}
	traffic := perBackend(r, func(b *report.Backend) map[string]report.Traffic { return b.Traffic })
	for _, id := range inOrder(report.WorkloadIDs(), traffic) {
		what := clean(strings.ReplaceAll(id, "_", " "))
		requests, bytes := tableRow{Head: "requests, " + what}, tableRow{Head: "bytes, " + what}
		for _, b := range r.Backends {
			c, d := tableCell{Text: "–"}, tableCell{Text: "–"}
			if w, ok := b.Traffic[id]; ok {
				c.Text, d.Text = number(w.Requests), number(w.Bytes)
			}
			requests.Cells, bytes.Cells = append(requests.Cells, c), append(bytes.Cells, d)
		}
		t.Rows = append(t.Rows, requests, bytes)
	}
	return t
}

func (r doc) performanceLead() string {
	rounds := Plural(r.Params.Rounds, "round")
	if r.Interrupted {
		rounds = "up to " + rounds
	}
	lead := fmt.Sprintf("Median of %s in which the backends took turns, and the greatest of what is the worst of a round, like the longest wait; "+
		"± is half the distance between the extremes. ", rounds) +
		"Rates count a lock and its unlock as one; Jain's index is 1 if all clients got the same share; hand-off is from Unlock to the waiter's return. " +
		"Requests and bytes are those of one lock and unlock."
	if slices.ContainsFunc(r.Backends, func(b *report.Backend) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(b.Figures)), noisy)
	}) {
		lead += " A figure with ±100% or more says little: " + noiseReason + "."
	}
	if r.Params.Rounds >= MinRounds {
		return lead + " The best store of a row is marked only where its rounds do not " +
			"overlap with those of any other, and the medians differ by more than the two ± together."
	}
	return lead + fmt.Sprintf(" Fewer than %d rounds do not show the noise, so nothing is marked as best.", MinRounds)
}

func (r doc) seriesRow(in figureInfo, series []report.Series) tableRow {
	row := tableRow{Head: clean(in.title), Unit: in.unit}
	best := r.winner(series, in.lower)
	for i, s := range series {
		c := tableCell{Text: "–"}
		if m, ok := in.id.Of(s); ok {
			c.Text, c.Spread, c.Best = number(m), spread(s), in.claim != "" && best == i
		}
		row.Cells = append(row.Cells, c)
	}
	return row
}

func (r doc) safetyTable() table {
	t := table{Title: "Safety", Columns: r.labels(),
		Lead: "Measured by doing it: the holder's process was killed, stopped and cut off, the server restarted, waiters " +
			"cancelled. The TTL of the holders is 2 s, and at the restart 10 s, whatever that of the rates is. “Told” is when the holder's lock " +
			"ended, at its deadline or when it learned of the loss; a stopped process sees that when it goes on. It must be before the next one holds."}
	for _, h := range r.hazards() {
		row := tableRow{Head: hazardOf(h).title}
		for _, b := range r.Backends {
			o, ok := b.Safety[h]
			if !ok {
				o = report.Outcome{Verdict: report.Unmeasured, Text: "not measured"}
			}
			row.Cells = append(row.Cells, tableCell{Text: clean(o.Text), Detail: clean(o.Detail), Verdict: o.Verdict})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (r doc) factsTable() table {
	t := table{Title: "Known, not measured", Columns: r.labels(), List: true,
		Lead: "From the drivers' capabilities and the stores' documentation."}
	var ids []string
	for _, b := range r.Backends {
		for _, f := range b.Facts {
			if !slices.Contains(ids, f.ID) {
				ids = append(ids, f.ID)
				t.Rows = append(t.Rows, tableRow{Head: clean(f.Title)})
			}
		}
	}
	for i, id := range ids {
		for _, b := range r.Backends {
			text := fact(b, id)
			if text == "" {
				text = "–"
			}
			t.Rows[i].Cells = append(t.Rows[i].Cells, tableCell{Text: text})
		}
	}
	return t
}

// fact returns the text of a fact, or "".
func fact(b *report.Backend, id string) string {
	for _, f := range b.Facts {
		if f.ID == id {
			return clean(f.Text)
		}
	}
	return ""
}

// note is a line of what the tables cannot say.
type note struct{ Head, Text string }

// notes say how and where the run took place, so that it can be repeated.
func (r doc) notes() []note {
	notes := []note{
		{"command", clean(shellLine(r.Command))},
		{"run", fmt.Sprintf("%s, %s", r.Started.UTC().Format("2006-01-02 15:04:05 UTC"), r.took())},
		{"machine", r.machine()},
		{"parameters", r.parameters()},
	}
	labels := r.labels()
	for i, b := range r.Backends {
		var parts []string
		for _, part := range []string{b.Version, b.Origin, b.URL} {
			if part != "" {
				parts = append(parts, clean(part))
			}
		}
		if b.BareCommands != "" {
			parts = append(parts, "bare commands: "+clean(b.BareCommands))
		}
		if b.Touched != "" {
			parts = append(parts, "touched: "+clean(b.Touched))
		}
		notes = append(notes, note{labels[i], strings.Join(parts, "; ")})
	}
	return append(notes, r.serverNotes()...)
}

// serverNotes are what a reader must know of the servers, each text once.
func (r doc) serverNotes() []note {
	var texts []string
	names := make(map[string][]string)
	labels := r.labels()
	for i, b := range r.Backends {
		for _, text := range b.Notes {
			text = clean(text)
			if names[text] == nil {
				texts = append(texts, text)
			}
			names[text] = append(names[text], labels[i])
		}
	}
	var notes []note
	for _, text := range texts {
		notes = append(notes, note{strings.Join(names[text], ", "), text})
	}
	return notes
}

// took is how long the run lasted.
func (r doc) took() string {
	if r.Finished.Before(r.Started) {
		return "not finished"
	}
	return fmt.Sprintf("took %v", r.Finished.Sub(r.Started).Round(time.Second))
}

func (r doc) machine() string {
	m := r.Machine
	text := fmt.Sprintf("%s/%s, %d CPUs", m.OS, m.Arch, m.CPUs)
	if m.CPU != "" {
		text += " (" + m.CPU + ")"
	}
	return clean(fmt.Sprintf("%s, %s, distlock %s", text, m.Go, m.Version))
}

// shellLine quotes a command line as a shell takes it.
func shellLine(args []string) string {
	var words []string
	for _, arg := range args {
		if arg == "" || strings.ContainsFunc(arg, needsQuotes) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

func needsQuotes(r rune) bool {
	return !strings.ContainsRune("-_=+.,:/@%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}
