package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// goalTable shows for each goal that is missed where the time goes, beside that with which
// it is compared.
func (r *results) goalTable(b *strings.Builder) {
	t := &table{head: append([]string{"µs of a pair, distlock / the other", "server", "client"}, parts...)}
	met, all := 0, 0
	var samples []int64
	for _, g := range goals {
		for _, m := range r.Stores {
			ratio, yes, known := g.reached(m)
			switch {
			case m.ID != g.store || !known:
				continue
			case yes:
				met++
			default:
				t.add(g.row(m, ratio)...)
				for _, p := range []*profiled{m.profile(ours, g.workload), m.profile(g.rival, g.theirs)} {
					if p != nil {
						samples = append(samples, p.Samples)
					}
				}
			}
			all++
		}
	}
	if all == 0 {
		return
	}
	fmt.Fprintf(b, "## Goals\n\nOf %d goals, distlock reaches %d.", all, met)
	if len(samples) > 0 {
		fmt.Fprintf(b, " In the others, the time of the processors goes here, by profiles of rounds of their own, with %d samples or more. The\n"+
			"scheduler has goroutines and threads wait, and wakes them up; the driver of a peer is the peer.", slices.Min(samples))
	}
	b.WriteString("\n\n")
	if len(t.rows) > 0 {
		t.write(b)
	}
}

// row compares two contenders, part by part.
func (g goal) row(m *measured, ratio float64) []string {
	sign, own, rival := "≥", m.contender(ours), m.contender(g.rival)
	if g.lower() {
		sign = "≤"
	}
	row := []string{fmt.Sprintf("%s, %s: **%s** of %s %s × %s", m.Title, titleOf[g.workload], number(ratio), sign, number(g.want), g.against())}
	row = append(row, cell(own, report.ServerCPU(g.workload))+" / "+cell(rival, report.ServerCPU(g.theirs)),
		cell(own, report.ClientCPU(g.workload))+" / "+cell(rival, report.ClientCPU(g.theirs)))
	for _, part := range parts {
		row = append(row, m.share(ours, g.workload, part)+" / "+m.share(g.rival, g.theirs, part))
	}
	return row
}

// titleOf is what the columns of the page call a workload.
var titleOf = map[string]string{"solo": "solo", "parallel": "64 names", "hot": "16 clients, one name", "handoff": "hand-off p50"}

func (g goal) against() string {
	if g.rival == ours {
		return titleOf[g.theirs]
	}
	return g.rival
}

// share is what a part of a client takes of a pair, in µs and as a share of the whole.
func (m *measured) share(contender, workload, part string) string {
	p := m.profile(contender, workload)
	all, ok := median(m.contender(contender), report.ClientCPU(workload))
	if p == nil || !ok {
		return "–"
	}
	if p.Shares[part] == 0 {
		return "0"
	}
	return fmt.Sprintf("%s (%.0f%%)", number(all*p.Shares[part]), 100*p.Shares[part])
}
