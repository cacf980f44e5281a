package main

import (
	_ "embed" // how it was measured
	"fmt"
	"slices"
	"strings"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/compare/report"
)

//go:embed method.md
var method string

//go:embed tried.md
var tried string

// details is what a developer asks: how it was measured, everybody's figures, and where the time goes.
func (r *results) details() []byte {
	b := new(strings.Builder)
	b.WriteString("# Performance: the details\n\n" + generatedTag +
		"For developers, and for those who doubt [the figures](" + pageFile + "). " + r.where() + "\n\n")
	b.WriteString("## Everybody's figures\n\nPairs of Lock and Unlock a second, and microseconds of the processors for a pair.\n\n")
	r.costTable().write(b)
	r.goalTables(b)
	b.WriteString(strings.TrimSpace(method) + "\n\n")
	r.notes(b)
	return []byte(strings.TrimRight(b.String(), "\n") + "\n")
}

func (r *results) costTable() *table {
	t := &table{head: []string{""}}
	workloads := []string{"solo", "parallel", "hot"}
	for _, w := range workloads {
		t.head = append(t.head, titleOf[w]+", pairs /s", "client µs", "server µs")
	}
	r.each(func(st *measured, b *report.Backend) {
		row := []string{label(st, b)}
		for _, w := range workloads {
			if b.Name == bare {
				w = bareOf[w]
			}
			row = append(row, cell(b, figureOf[w]), cell(b, report.ClientCPU(w)), cell(b, report.ServerCPU(w)))
		}
		t.add(row...)
	})
	return t
}

// bareOf is what the bare commands do beside a workload.
var bareOf = map[string]string{"solo": "bare", "parallel": "bare_parallel"}

// notes say what to know of the peers, and what failed.
func (r *results) notes(b *strings.Builder) {
	b.WriteString("## The others\n\n")
	for _, p := range peers.All {
		version := ""
		if v := r.Versions[p.Module]; v != "" {
			version = " " + v
		}
		fmt.Fprintf(b, "- **%s**%s: %s\n", p.Name, version, p.Note)
	}
	var failures []string
	r.each(func(st *measured, c *report.Backend) {
		for id, why := range c.Failed {
			failures = append(failures, fmt.Sprintf("- %s, %s, %s: %s\n", st.Title, c.Name, report.WorkloadTitle(id), oneLine(why)))
		}
	})
	for _, st := range r.Stores {
		for _, p := range st.Held {
			if p.Failed != "" {
				failures = append(failures, fmt.Sprintf("- %s, %s, %d locks held: %s\n", st.Title, ours, p.Locks, oneLine(p.Failed)))
			}
		}
		for _, c := range st.Crowds {
			if c.Failed != "" {
				failures = append(failures, fmt.Sprintf("- %s, %s, %d clients on one name, of which %d rounds count: %s\n",
					st.Title, c.Contender, c.Clients, len(c.Rate), oneLine(c.Failed)))
			}
		}
	}
	if len(failures) > 0 {
		slices.Sort(failures)
		b.WriteString("\n## What failed\n\n" + strings.Join(failures, ""))
	}
}
