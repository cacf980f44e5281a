package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes the report with all its rounds.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// columns of the tables: head, and the cell of a backend.
var columns = []struct {
	head string
	cell func(*Backend) string
}{
	{"backend", func(b *Backend) string { return b.Name }},
	{"solo/s", func(b *Backend) string { return b.rate(SoloRate) }},
	{"of bare", func(b *Backend) string { return b.share(SoloRate, BareRate) }},
	{"parallel/s", func(b *Backend) string { return b.rate(ParallelRate) }},
	{"hot/s", func(b *Backend) string { return b.rate(HotRate) }},
	{"Jain", func(b *Backend) string { return b.plain(HotJain, "%.2f") }},
	{"worst wait", func(b *Backend) string { return b.plain(HotWorst, "%.0f ms") }},
	{"hand-off p50", func(b *Backend) string { return b.plain(HandOff50, "%.2f ms") }},
	{"p99", func(b *Backend) string { return b.plain(HandOff99, "%.1f ms") }},
}

// rate is a figure with its spread.
func (b *Backend) rate(f Figure) string {
	m, ok := b.Figures[f].Median()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.0f ±%.0f%%", m, 100*b.Figures[f].Spread())
}

func (b *Backend) plain(f Figure, format string) string {
	m, ok := b.Figures[f].Median()
	if !ok {
		return "-"
	}
	return fmt.Sprintf(format, m)
}

// share is the ratio of two figures.
func (b *Backend) share(f, of Figure) string {
	m, ok := b.Figures[f].Ratio(b.Figures[of]).Median()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", m)
}

// WriteText writes the table for a terminal, at most 100 columns wide.
func (r *Report) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range columns {
		fmt.Fprint(tw, c.head, "\t")
	}
	fmt.Fprintln(tw)
	for _, b := range r.Backends {
		for _, c := range columns {
			fmt.Fprint(tw, c.cell(b), "\t")
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	_, err := fmt.Fprintln(w, strings.Join(r.notes(), "\n"))
	return err
}

// WriteMarkdown writes the same table as Markdown.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var head, rule []string
	for _, c := range columns {
		head, rule = append(head, c.head), append(rule, "---:")
	}
	fmt.Fprintf(w, "| %s |\n|%s|\n", strings.Join(head, " | "), strings.Join(rule, "|"))
	for _, b := range r.Backends {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.cell(b))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	_, err := fmt.Fprintf(w, "\n- %s\n", strings.Join(r.notes(), "\n- "))
	return err
}

// notes say what the table cannot: where the figures come from, and what is
// missing and why.
func (r *Report) notes() []string {
	p := r.Params
	notes := []string{
		fmt.Sprintf("medians of %d alternating rounds, ± half the spread; %v a workload, TTL %v; %s/%s, %d CPUs, %s, distlock %s",
			p.Rounds, p.Duration, p.TTL, r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Machine.Go, r.Machine.Version),
		fmt.Sprintf("solo, parallel, hot: lock+unlock a second; one after the other, on %d names at once, by %d clients on one name",
			p.Names, p.Clients),
		"of bare: solo by the store's own two commands; Jain: 1 is an even share; hand-off: from Unlock to the waiter's return",
	}
	for _, b := range r.Backends {
		note := fmt.Sprintf("%s: %s, %s, %s", b.Name, b.Version, b.Origin, b.URL)
		if b.BareCommands != "" {
			note += "; bare commands: " + b.BareCommands
		}
		notes = append(notes, note)
		for _, id := range slices.Sorted(maps.Keys(b.Failed)) {
			notes = append(notes, fmt.Sprintf("%s: %s FAILED: %s", b.Name, id, b.Failed[id]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Missing)) {
		notes = append(notes, fmt.Sprintf("%s: not measured: %s", name, r.Missing[name]))
	}
	if r.Interrupted {
		notes = append(notes, "interrupted: the figures are those of the rounds that were finished")
	}
	return notes
}
