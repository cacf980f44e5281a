package mutants_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/distlock-go/distlock/internal/mutants"
)

// tripsFile has the mandatory checks that mutants fail besides those that they must, as patterns of path.Match: what rests on
// the wrong decision goes wrong with it. "make matrix ARGS=-update" adds what it meets, or makes the file anew if it is gone.
const tripsFile = "testdata/trips.txt"

// composite are the groups of checks that follow locks over their whole life, from a
// wait to the end of a lease: whatever is wrong goes wrong in them, too.
var composite = []string{
	"time/*", "handover/*", "leak/pile", "isolate/stuck-holder", "names/waited-apart", "names/left-apart",
	"wait/for-days",
	"elect/*", "once/*", "maxhold/*", "wanted/*", "sem/*", "rw/*", "pair/*", "after/*",
}

// trips are the patterns of each mutant that has some.
type trips struct {
	mu     sync.Mutex
	byName map[string][]string
}

func readTrips(t *testing.T) *trips {
	t.Helper()
	text, err := os.ReadFile(tripsFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	p := &trips{byName: make(map[string][]string)}
	for line := range strings.Lines(string(text)) {
		name, patterns, _ := strings.Cut(line, ":")
		p.byName[name] = strings.Fields(patterns)
	}
	return p
}

// allows reports whether the check may fail on the mutant. With -update it may from now on.
func (p *trips) allows(mutant, check string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if match(check, composite) || match(check, p.byName[mutant]) {
		return true
	}
	if *update {
		p.byName[mutant] = brief(append(p.byName[mutant], check))
	}
	return *update
}

// all reports whether nothing can be right on the mutant.
func (p *trips) all(mutant string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.byName[mutant], "*/*")
}

func match(check string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { ok, err := path.Match(pattern, check); return ok && err == nil })
}

// brief has a group stand for three checks of it, and all groups for ten: which of them fail is a matter of chance then.
func brief(patterns []string) []string {
	groups := make(map[string]int)
	for _, s := range patterns {
		groups[path.Dir(s)]++
	}
	if len(groups) > 10 {
		return []string{"*/*"}
	}
	var short []string
	for _, s := range patterns {
		if groups[path.Dir(s)] >= 3 {
			s = path.Dir(s) + "/*"
		}
		if !slices.Contains(short, s) {
			short = append(short, s)
		}
	}
	slices.Sort(short)
	return short
}

// write keeps what -update has added.
func (p *trips) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for _, m := range mutants.All() {
		if patterns := p.byName[m.Name]; len(patterns) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", m.Name, strings.Join(patterns, " "))
		}
	}
	if err := os.WriteFile(tripsFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
