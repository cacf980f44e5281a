package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// report is one line for a program, and its output where there is a reader for it.
func report(w io.Writer, o options, p *part) {
	word := "ok  "
	if p.failed {
		word = "FAIL"
	}
	if len(p.output) > 0 {
		fmt.Fprintf(w, "=== output of %s\n%s=== end of %s\n", p.name, p.output, p.name)
	}
	fmt.Fprintf(w, "%s %-42s %6.1f s\n", word, p.name, p.took.Seconds())
}

// summary tells of all, the longest first and what failed last. It returns whether nothing failed.
func summary(w io.Writer, parts []*part, built, took time.Duration) bool {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b *part) int { return cmp.Compare(b.took, a.took) })
	var busy time.Duration
	skipped := 0
	fmt.Fprintf(w, "\n%-42s %8s %8s\n", "package", "seconds", "CPU")
	for _, p := range parts {
		busy, skipped = busy+p.cpu, skipped+p.skipped
		fmt.Fprintf(w, "%-42s %8.1f %8.1f", p.name, p.took.Seconds(), p.cpu.Seconds())
		if p.skipped > 0 {
			fmt.Fprintf(w, "  %d skipped", p.skipped)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%d packages in %.0f s, all built after %.0f s; the tests and their servers used %.0f s of CPU; %d tests skipped\n",
		len(parts), took.Seconds(), built.Seconds(), busy.Seconds(), skipped)
	ok := true
	for _, p := range parts {
		if len(p.unsure) > 0 {
			fmt.Fprintf(w, "inconclusive %s: %s\n", p.name, strings.Join(p.unsure, ", "))
		}
		if !p.failed {
			continue
		}
		ok = false
		fmt.Fprintf(w, "FAIL %s: %s\n", p.name, cmp.Or(strings.Join(p.tests, ", "), "no test is named: see its output"))
	}
	if ok {
		fmt.Fprintln(w, "PASS")
	}
	return ok
}

// excerpt is what the tests that failed said, and those around and in them. Of a panic or a data race it is all, since they
// do not name their test.
func excerpt(text []byte, failed []string) []byte {
	if crashed(text) {
		return text
	}
	var out []byte
	shown := true // what comes before the first test
	for line := range bytes.Lines(text) {
		if _, name, ok := mark(string(line)); ok {
			shown = slices.ContainsFunc(failed, func(f string) bool { return f == name || strings.HasPrefix(f, name+"/") })
		}
		if shown {
			out = append(out, line...)
		}
	}
	return out
}

// crashed reports whether the program has ended, or failed, by something else than a test that failed.
func crashed(text []byte) bool {
	return slices.ContainsFunc([]string{"DATA RACE", "panic: ", "fatal error: "}, func(sign string) bool {
		return bytes.Contains(text, []byte(sign))
	})
}
