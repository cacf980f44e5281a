package render

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// textWidth is how many columns the report takes where there is no terminal: six
// backends then stand in one table, as many as compare has without a URL. On a terminal
// it takes what is there, but not so much that long lines cannot be read.
const (
	textWidth = 120
	minWidth  = 60
	maxWidth  = 160
)

// minCell is the narrowest column that text is still readable in; more backends
// than fit at this width go into a second table. maxHead is where the head of a row
// is broken.
const (
	minCell = 13
	maxHead = 27
)

// gap is between two columns.
const gap = 2

// painter colours a text, or leaves it alone.
type painter func(style, text string) string

// The styles, as the numbers of SGR.
const (
	bold   = "1"
	faint  = "2"
	red    = "1;31"
	green  = "32"
	yellow = "33"
)

func asIs(_, text string) string { return text }

func colour(style, text string) string {
	if style == "" || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// style of a cell: bad is red, what is missing recedes.
func (c tableCell) style() string {
	switch {
	case c.Verdict == report.Good:
		return green
	case c.Verdict == report.Caution:
		return yellow
	case c.Verdict == report.Bad:
		return red
	case c.Verdict == report.Unmeasured || c.Text == "–":
		return faint
	case c.Best:
		return bold
	}
	return ""
}

// Text writes the report for people, without colours. columns is the width of the
// terminal that it is for, 0 if there is none.
func Text(w io.Writer, r *report.Report, columns int) error {
	return doc{r}.writeText(w, columns, asIs)
}

// Terminal writes the same with colours.
func Terminal(w io.Writer, r *report.Report, columns int) error {
	return doc{r}.writeText(w, columns, colour)
}

// sheet is a text as it is written, and how wide it may be.
type sheet struct {
	bytes.Buffer
	columns int
}

func newSheet(columns int) *sheet {
	if columns <= 0 {
		columns = textWidth
	}
	return &sheet{columns: min(max(columns, minWidth), maxWidth)}
}

func (r doc) writeText(w io.Writer, columns int, paint painter) error {
	b := newSheet(columns)
	for _, warning := range r.warnings() {
		writeItem(b, paint(red, "!!")+" ", 3, warning, func(s string) string { return paint(red, s) })
	}
	for _, t := range r.tables() {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(paint(bold, strings.ToUpper(t.Title)) + "\n")
		if t.Numeric {
			writeItem(b, "", 0, t.Lead, func(s string) string { return paint(faint, s) })
		}
		if t.List {
			t.writeList(b, paint)
			continue
		}
		t.write(b, paint)
		t.writeDetails(b, paint)
	}
	r.writeSummaries(b, paint)
	fmt.Fprintf(b, "\n%s\n", paint(bold, "HOW IT WAS MEASURED"))
	for _, n := range r.notes() {
		lead := fmt.Sprintf("%-12s ", n.Head)
		if width(n.Head) > 12 {
			writeItem(b, "", 0, n.Head, func(s string) string { return s })
			lead = strings.Repeat(" ", 13)
		}
		writeItem(b, lead, 13, n.Text, func(s string) string { return s })
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (r doc) writeSummaries(b *sheet, paint painter) {
	fmt.Fprintf(b, "\n%s\n", paint(bold, "SUMMARY"))
	if text := r.compared(); text != "" {
		writeItem(b, "", 0, text, func(s string) string { return paint(faint, s) })
	}
	for _, s := range r.summaries() {
		b.WriteString(paint(bold, s.Name) + "\n")
		writeItem(b, "    ", 4, s.Lead, func(s string) string { return s })
		for _, st := range s.Best {
			writeItem(b, "  "+paint(green, "+")+" ", 4, st.line(), func(s string) string { return s })
		}
		for _, st := range s.Watch {
			style := tableCell{Verdict: st.Verdict}.style()
			text := st.line()
			if st.Verdict == report.Unmeasured {
				text = st.sentence() // the tables do not say why
			}
			writeItem(b, "  "+paint(style, st.Mark())+" ", 4, text, func(s string) string { return paint(style, s) })
		}
	}
}

// writeItem writes a text in lines behind a lead. The lead takes indent columns.
func writeItem(b *sheet, lead string, indent int, text string, paint func(string) string) {
	for i, line := range wrap(text, b.columns-indent) {
		if i > 0 {
			lead = strings.Repeat(" ", indent)
		}
		b.WriteString(lead + paint(line) + "\n")
	}
}

// write lays the table out in as many parts as it takes to stay within the width.
func (t table) write(b *sheet, paint painter) {
	head := 0
	for _, row := range t.Rows {
		for _, line := range wrap(row.title(), maxHead) {
			head = max(head, width(line))
		}
	}
	cell := minCell
	if t.Numeric {
		cell = t.widest(b.columns)
	}
	at := max(1, (b.columns-head)/(cell+gap))
	for from := 0; from < len(t.Columns); from += at {
		to := min(from+at, len(t.Columns))
		if !t.Numeric {
			cell = min(max(minCell, (b.columns-head)/(to-from)-gap), 40)
		}
		if from > 0 {
			b.WriteByte('\n')
		}
		heads := tableRow{}
		for _, name := range t.Columns[from:to] {
			heads.Cells = append(heads.Cells, tableCell{Text: name, Best: true})
		}
		t.writeRow(b, heads, head, cell, paint)
		for _, row := range t.Rows {
			row.Cells = row.Cells[from:to]
			t.writeRow(b, row, head, cell, paint)
		}
	}
}

// writeList writes a line for each cell, below the head of its row.
func (t table) writeList(b *sheet, paint painter) {
	name := 0
	for _, c := range t.Columns {
		name = max(name, min(width(c), maxHead))
	}
	for _, row := range t.Rows {
		writeItem(b, "", 0, row.title(), func(s string) string { return paint(bold, s) })
		for i, c := range row.Cells {
			lead := "  " + clip(t.Columns[i], name)
			lead += strings.Repeat(" ", name+2*gap-width(lead))
			writeItem(b, lead, name+2*gap, c.whole(), func(s string) string { return paint(c.style(), s) })
		}
	}
}

// widest returns how wide a column must be for every number to stay in one line.
func (t table) widest(columns int) int {
	cell := 8
	for _, row := range t.Rows {
		for _, c := range row.Cells {
			cell = max(cell, width(c.whole()))
		}
	}
	for _, name := range t.Columns {
		cell = max(cell, min(width(name), 2*minCell))
	}
	return min(cell, columns-maxHead-gap)
}

// title is the head of a row with its unit.
func (r tableRow) title() string {
	if r.Unit == "" {
		return r.Head
	}
	return r.Head + ", " + r.Unit
}

// writeRow writes one row, in as many lines as its longest cell takes.
func (t table) writeRow(b *sheet, row tableRow, head, cell int, paint painter) {
	title := wrap(row.title(), maxHead)
	var cells [][]string
	lines := len(title)
	for _, c := range row.Cells {
		text := c.whole()
		if m := c.Mark(); m != "" {
			text = m + " " + text
		}
		wrapped := wrap(text, cell)
		cells, lines = append(cells, wrapped), max(lines, len(wrapped))
	}
	line := func(of []string, i int) string {
		if i < len(of) {
			return of[i]
		}
		return ""
	}
	for i := range lines {
		out := line(title, i)
		out += strings.Repeat(" ", head-width(out))
		for k, c := range row.Cells {
			text := line(cells[k], i)
			blank := strings.Repeat(" ", max(0, cell-width(text)))
			if out += strings.Repeat(" ", gap); t.Numeric {
				out += blank + paint(c.style(), text)
			} else {
				out += paint(c.style(), text) + blank
			}
		}
		b.WriteString(strings.TrimRight(out, " ") + "\n")
	}
}

// writeDetails tells how the outcomes came about that one has to build around.
func (t table) writeDetails(b *sheet, paint painter) {
	for _, d := range t.details() {
		writeItem(b, paint(d.cell.style(), d.cell.Mark())+" ", 2, d.text(), func(s string) string { return s })
	}
}

// detail is a footnote, with all the backends that it is true of.
type detail struct {
	cell  tableCell
	head  string
	names []string
}

func (d detail) text() string {
	return fmt.Sprintf("%s (%s): %s", d.head, strings.Join(d.names, ", "), d.cell.Detail)
}

// details returns the footnotes of what is bad or needs caution, each text once.
func (t table) details() []detail {
	var all []detail
	for _, row := range t.Rows {
		for i, c := range row.Cells {
			if c.Detail == "" || c.Verdict != report.Bad && c.Verdict != report.Caution {
				continue
			}
			same := slices.IndexFunc(all, func(d detail) bool {
				return d.head == row.Head && d.cell.Verdict == c.Verdict && d.cell.Detail == c.Detail
			})
			if same < 0 {
				all, same = append(all, detail{cell: c, head: row.Head}), len(all)
			}
			all[same].names = append(all[same].names, t.Columns[i])
		}
	}
	return all
}

func width(s string) int { return utf8.RuneCountInString(s) }

// wrap breaks a text at spaces into lines of at most n columns. It breaks a longer word
// as well.
func wrap(text string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		for width(word) > n {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			runes := []rune(word)
			lines, word = append(lines, string(runes[:n])), string(runes[n:])
		}
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) <= n:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" || len(lines) == 0 {
		lines = append(lines, line)
	}
	return lines
}
