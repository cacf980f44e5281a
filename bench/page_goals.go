package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// goalTables show what ours is to reach, and for each goal that is missed where the time goes, beside that with which
// it is compared.
func (r *results) goalTables(b *strings.Builder) {
	all := &table{head: []string{"", "wanted", "measured", "reached"}}
	missed := &table{head: append([]string{"µs of a pair, and its share", "server", "client"}, parts...)}
	var samples []int64
	for _, g := range goals {
		for _, m := range r.Stores {
			ratio, yes, known := g.reached(m)
			if m.ID != g.store || !known {
				continue
			}
			sign := "≥"
			if g.lower() {
				sign = "≤"
			}
			all.add(m.Title+", "+titleOf[g.workload], fmt.Sprintf("%s %s × %s", sign, number(g.want), g.rival), number(ratio), yesNo(yes))
			if yes {
				continue
			}
			for _, who := range [][2]string{{ours, g.workload}, {g.rival, g.theirs}} {
				missed.add(m.costs(who[0], who[1])...)
				if p := m.profile(who[0], who[1]); p != nil {
					samples = append(samples, p.Samples)
				}
			}
		}
	}
	for _, g := range crowdGoals {
		for _, m := range r.Stores {
			if ratio, known := g.ratio(m); m.ID == g.store && known {
				wanted := "≥ " + number(g.want)
				if g.against != "" {
					wanted += " × " + g.against
				}
				all.add(m.Title+", "+g.what, wanted, number(ratio), yesNo(ratio >= g.want))
			}
		}
	}
	if len(all.rows) == 0 {
		return
	}
	b.WriteString("## Goals\n\n")
	all.write(b)
	if len(missed.rows) == 0 {
		return
	}
	b.WriteString("Where a goal is missed, the time of the processors goes here, by profiles of rounds of their own")
	if len(samples) > 0 {
		fmt.Fprintf(b, ", with %d samples or more", slices.Min(samples))
	}
	b.WriteString(". The\nscheduler has goroutines and threads wait, and wakes them up; the driver of a peer is the peer.\n\n")
	missed.write(b)
	b.WriteString("### What a pair costs more than bare commands, and what was tried\n\n" + strings.TrimSpace(tried) + "\n\n")
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "**no**"
}

// costs says where the time of a contender goes, part by part.
func (m *measured) costs(contender, workload string) []string {
	b := m.contender(contender)
	row := []string{m.Title + ", " + titleOf[workload] + ": " + contender, cell(b, report.ServerCPU(workload)), cell(b, report.ClientCPU(workload))}
	for _, part := range parts {
		row = append(row, m.share(contender, workload, part))
	}
	return row
}

// titleOf is what the columns of the page call a workload.
var titleOf = map[string]string{"solo": "one client", "parallel": "64 names", "hot": "16 clients, one name", "handoff": "hand-off p50", "bare": "one client", "bare_parallel": "64 names"}

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
	return fmt.Sprintf("%s, %.0f%%", number(all*p.Shares[part]), 100*p.Shares[part])
}
