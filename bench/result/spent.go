package result

import (
	"fmt"
	"strings"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/servers"
)

// writeProfiles writes where the processor time of the clients went.
func writeProfiles(b *strings.Builder, backend servers.Kind, on *Backend) {
	var lines []string
	for _, row := range on.Rows {
		for _, c := range peers.On(backend) {
			if p := row.Profiles[c.Name]; p != nil {
				lines = append(lines, p.line(row, c.Name))
			}
		}
	}
	if len(lines) == 0 {
		return
	}
	b.WriteString("### Where the client's process spends its time\n\n| | samples | " + clientCPU)
	for _, bucket := range Buckets {
		fmt.Fprintf(b, " | %s", bucket)
	}
	b.WriteString(" |\n|---|--:|--:|" + strings.Repeat("--:|", len(Buckets)) + "\n")
	for _, line := range lines {
		b.WriteString(line)
	}
	b.WriteString("\n")
}

// line writes a profile: the buckets as shares, and in µs for each pair if it is
// known what that took in the timed rounds.
func (p *Profile) line(row *Row, contender string) string {
	var b strings.Builder
	each := row.Series(contender, Work).Median()
	fmt.Fprintf(&b, "| %s: %s | %d | %s", row.Title, contender, p.Samples, number(each))
	for _, bucket := range Buckets {
		share := p.Share(bucket)
		switch {
		case share == 0:
			b.WriteString(" | 0")
		case each > 0: // not NaN
			fmt.Fprintf(&b, " | %s (%.0f%%)", number(share*each), 100*share)
		default:
			fmt.Fprintf(&b, " | %.0f%%", 100*share)
		}
	}
	b.WriteString(" |\n")
	return b.String()
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
