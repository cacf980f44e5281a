package result

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/servers"
)

// spentHeader is above the lines that spent returns, after the name of the row.
func spentHeader() []string {
	header := []string{"samples", clientCPU}
	for _, bucket := range Buckets {
		header = append(header, string(bucket))
	}
	return header
}

// spent returns a line for each profile of the row: the buckets in µs for each pair,
// if it is known what one took in the timed rounds, and as shares.
func (r *Row) spent(backend servers.Kind) [][]string {
	var lines [][]string
	for _, c := range peers.On(backend) {
		p := r.Profiles[c.Name]
		if p == nil {
			continue
		}
		each := r.Series(c.Name, Work).Median()
		line := []string{c.Name, strconv.FormatInt(p.Samples, 10), number(each)}
		for _, bucket := range Buckets {
			cell := fmt.Sprintf("%.0f%%", 100*p.Share(bucket))
			switch {
			case p.Spent[bucket] == 0:
				cell = "0"
			case each > 0: // and not NaN
				cell = fmt.Sprintf("%s (%s)", number(p.Share(bucket)*each), cell)
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	return lines
}

// writeProfiles writes where the processor time of the clients went.
func writeProfiles(b *strings.Builder, backend servers.Kind, on *Backend) {
	header := spentHeader()
	begun := false
	for _, row := range on.Rows {
		for _, line := range row.spent(backend) {
			if !begun {
				fmt.Fprintf(b, "### Where the client's process spends its time\n\n| | %s |\n|---|%s\n",
					strings.Join(header, " | "), strings.Repeat("--:|", len(header)))
				begun = true
			}
			fmt.Fprintf(b, "| %s: %s |\n", row.Title, strings.Join(line, " | "))
		}
	}
	if begun {
		b.WriteString("\n")
	}
}

// writeHeap writes where the memory of held locks goes.
func writeHeap(b *strings.Builder, on *Backend) {
	for _, row := range on.Rows {
		if len(row.Heap) == 0 {
			continue
		}
		fmt.Fprintf(b, "### Where the memory of distlock goes, %s\n\n| allocated by | bytes in use for each |\n|---|--:|\n", row.Title)
		sum := 0.0
		for _, s := range row.Heap {
			fmt.Fprintf(b, "| `%s` | %s |\n", s.Function, number(s.Bytes))
			sum += s.Bytes
		}
		fmt.Fprintf(b, "| together | %s |\n\n", number(sum))
	}
}
