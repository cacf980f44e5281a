package render

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// Markdown writes the report for a page or a comment, without the static facts'
// and details' full length that a page with charts has room for.
func Markdown(w io.Writer, rep *report.Report) error {
	r := doc{rep}
	var b bytes.Buffer
	for _, warning := range r.warnings() {
		fmt.Fprintf(&b, "> **%s**\n>\n", markdown(warning))
	}
	for i, t := range r.tables() {
		if i > 0 || b.Len() > 0 {
			b.WriteByte('\n')
		}
		t.writeMarkdown(&b)
	}
	b.WriteString("\n**Summary**\n\n")
	if text := r.compared(); text != "" {
		b.WriteString(markdown(text) + "\n\n")
	}
	for _, s := range r.summaries() {
		fmt.Fprintf(&b, "- **%s**: %s\n", markdown(s.Name), markdown(s.Lead))
		for _, st := range s.Best {
			fmt.Fprintf(&b, "  - %s\n", markdown(st.sentence()))
		}
		for _, st := range s.Watch {
			fmt.Fprintf(&b, "  - %s %s\n", watchMark(st.Verdict), markdown(st.sentence()))
		}
	}
	b.WriteString("\n**How it was measured**\n\n")
	for _, n := range r.notes() {
		fmt.Fprintf(&b, "- %s: %s\n", markdown(n.Head), markdown(n.Text))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// sentence is a statement with its reason.
func (s statement) sentence() string {
	if s.Why == "" {
		return s.line()
	}
	return s.line() + " (" + s.Why + ")"
}

// watchMark says in words how bad it is.
func watchMark(v report.Verdict) string {
	switch v {
	case report.Bad:
		return "**Bad:**"
	case report.Caution:
		return "Watch:"
	}
	return "Gap:"
}

func (t table) writeMarkdown(b *bytes.Buffer) {
	fmt.Fprintf(b, "**%s.** %s\n\n", t.Title, markdown(t.Lead))
	rule := "|:---"
	if t.Numeric {
		rule = "|---:"
	}
	b.WriteString("| |")
	for _, name := range t.Columns {
		fmt.Fprintf(b, " %s |", markdown(name))
	}
	fmt.Fprintf(b, "\n|:---%s|\n", strings.Repeat(rule, len(t.Columns)))
	for _, row := range t.Rows {
		fmt.Fprintf(b, "| %s |", markdown(row.title()))
		for _, c := range row.Cells {
			text := markdown(c.whole())
			switch {
			case c.Verdict == report.Bad:
				text = "**✗ " + text + "**"
			case c.Mark() != "":
				text = c.Mark() + " " + text
			case c.Best:
				text = "**" + text + "**"
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteByte('\n')
	}
	for i, d := range t.details() {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "- %s %s\n", d.cell.Mark(), markdown(d.text()))
	}
}

var markdownEscapes = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "|", `\|`)

// markdown escapes a clean text for a cell, a list item or a heading.
func markdown(s string) string { return markdownEscapes.Replace(s) }
