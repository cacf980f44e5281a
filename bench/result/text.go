package result

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/servers"
)

// titles are how backends are called.
var titles = map[servers.Kind]string{
	servers.Redis: "Redis", servers.MySQL: "MySQL", servers.ZooKeeper: "ZooKeeper", servers.Etcd: "etcd",
}

// present returns the contenders that the row has figures or failures of.
func (r *Row) present(backend servers.Kind) []peers.Contender {
	var in []peers.Contender
	for _, c := range peers.On(backend) {
		if r.Failed[c.Name] != "" || r.Series(c.Name, columnsOf(r.ID)[0].figure).Rounds() > 0 {
			in = append(in, c)
		}
	}
	return in
}

// cells returns the header and the lines of a row's table.
func (r *Row) cells(backend servers.Kind) (header []string, lines [][]string) {
	shown := columnsOf(r.ID)
	header = []string{r.Title}
	for _, c := range shown {
		header = append(header, c.title)
	}
	if r.InTurn {
		header = append(header, "distlock ÷ this")
	}
	ours := r.Series(peers.Distlock, shown[0].figure)
	for _, c := range r.present(backend) {
		line := []string{c.Name}
		for _, col := range shown {
			line = append(line, spread(r.Series(c.Name, col.figure)))
		}
		if r.InTurn {
			versus := ""
			if c.Role != peers.Ours {
				versus = ratio(ours.By(r.Series(c.Name, shown[0].figure)))
			}
			line = append(line, versus)
		}
		lines = append(lines, line)
	}
	return header, lines
}

// Summary returns a row as text for a terminal.
func Summary(backend servers.Kind, r *Row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	header, lines := r.cells(backend)
	fmt.Fprintf(w, "  %s\n", strings.Join(header, "\t"))
	for _, line := range lines {
		fmt.Fprintf(w, "  %s\n", strings.Join(line, "\t"))
	}
	if spent := r.spent(backend); len(spent) > 0 {
		fmt.Fprintf(w, "\n  where the client's time goes\t%s\n", strings.Join(spentHeader(), "\t"))
		for _, line := range spent {
			fmt.Fprintf(w, "  %s\n", strings.Join(line, "\t"))
		}
	}
	_ = w.Flush()
	for _, c := range peers.On(backend) {
		if why := r.Failed[c.Name]; why != "" {
			fmt.Fprintf(&b, "  %s failed: %s\n", c.Name, why)
		}
	}
	return b.String()
}

// Table writes what there is of the backends as text: the rows, then the goals.
func Table(w io.Writer, r *Results, backends []servers.Kind) {
	for _, backend := range backends {
		b := r.Backends[backend]
		if b == nil {
			continue
		}
		fmt.Fprintf(w, "\n%s (%s)\n", titles[backend], b.Server)
		for _, row := range b.Rows {
			fmt.Fprintf(w, "\n%s", Summary(backend, row))
		}
	}
	fmt.Fprintf(w, "\nGoals\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, g := range Goals {
		b := r.Backends[g.Backend]
		if b == nil || !slices.Contains(backends, g.Backend) {
			continue
		}
		for _, p := range g.Judge(b).Parts {
			if p.Verdict == Unmeasured {
				continue // in a piece of a run, most are
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", titles[g.Backend], g.Row, p.Row, p.Goal, p.Measured, p.Verdict)
		}
	}
	_ = t.Flush()
}
