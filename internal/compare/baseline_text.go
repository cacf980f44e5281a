package compare

import (
	"bytes"
	"fmt"
	"io"
)

// WriteText writes what has changed for people, at most 100 columns wide.
func (d *Diff) WriteText(w io.Writer) error { return d.writeText(w, asIs) }

// WriteTerminal writes the same with colours.
func (d *Diff) WriteTerminal(w io.Writer) error { return d.writeText(w, colour) }

func (d *Diff) writeText(w io.Writer, paint painter) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\n%s\n", paint(bold, "SINCE THE BASELINE"))
	for _, c := range d.Changes {
		style, mark := green, "+"
		if c.Worse {
			style, mark = red, "✗"
		}
		writeItem(&b, paint(style, mark)+" ", 2, c.sentence(), func(s string) string { return paint(style, s) })
	}
	writeItem(&b, "", 0, d.verdict(), func(s string) string { return s })
	for _, n := range d.Notes {
		writeItem(&b, "? ", 2, n, func(s string) string { return paint(faint, s) })
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteMarkdown writes the same as Markdown.
func (d *Diff) WriteMarkdown(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("\n**Since the baseline**\n\n")
	for _, c := range d.Changes {
		mark := "better"
		if c.Worse {
			mark = "**worse**"
		}
		fmt.Fprintf(&b, "- %s: %s\n", mark, markdown(c.sentence()))
	}
	fmt.Fprintf(&b, "- %s\n", markdown(d.verdict()))
	for _, n := range d.Notes {
		fmt.Fprintf(&b, "- note: %s\n", markdown(n))
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (c Change) sentence() string {
	text := fmt.Sprintf("%s, %s: %s -> %s", c.Backend, c.What, c.Before, c.Now)
	if c.Ratio > 0 {
		text += fmt.Sprintf(" (%.2f times)", c.Ratio)
	}
	return text
}

// verdict says how much was compared, and how.
func (d *Diff) verdict() string {
	better := len(d.Changes) - d.Regressions()
	text := fmt.Sprintf("%d worse, %d better, of %d figures and the safety outcomes. A figure counts as changed if no round of one run lies "+
		"between the rounds of the other, and the medians differ by more than %.0f%% and by more than the two ± together.", d.Regressions(), better, d.Judged, 100*d.tolerance)
	if d.Unjudged > 0 {
		text += fmt.Sprintf(" %d figures have fewer than %d rounds and were not judged.", d.Unjudged, MinRounds)
	}
	return text
}
