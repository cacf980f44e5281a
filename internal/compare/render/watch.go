package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// farBehind is how many times worse than the best a store must be, beyond the
// noise, for that to be something to watch.
const farBehind = 2

// watch says what to know before choosing a backend, worst first.
func (r doc) watch(i int) []statement {
	b := r.Backends[i]
	var all []statement
	for _, v := range []report.Verdict{report.Bad, report.Caution} {
		for _, h := range r.hazards() {
			if o := b.Safety[h]; o.Verdict == v {
				in := hazardOf(h)
				all = append(all, statement{Head: upper(in.title), Text: clean(o.Text), Why: fact(b, in.fact), Verdict: v})
			}
		}
		if v == report.Bad {
			for _, id := range slices.Sorted(maps.Keys(b.Failed)) {
				all = append(all, statement{Head: "Failed", Text: workloadTitle(id), Why: clean(b.Failed[id]), Verdict: report.Bad})
			}
		}
	}
	// The fastest store is often the one that forgets: a reader of the summary alone
	// must not miss that.
	if survives, ok := strings.CutPrefix(fact(b, "durability"), "volatile: "); ok && !inProcess(b) {
		all = append(all, statement{Verdict: report.Caution, Head: "What survives", Text: survives, Why: fact(b, "replication")})
	}
	if unfair(b) {
		j, _ := b.Figures[report.HotJain].Median()
		worst, _ := report.HotWorst.Of(b.Figures[report.HotWorst])
		all = append(all, statement{Verdict: report.Caution, Why: fact(b, "fairness"), Head: "Unfair on a contended name",
			Text: fmt.Sprintf("Jain's index %s, longest wait %s; its throughput there is not ranked",
				number(j), quantity(worst, "ms"))})
	}
	if lost, _ := report.HeldLost.Of(b.Figures[report.HeldLost]); lost > 0 {
		all = append(all, statement{Verdict: report.Caution, Head: "Lost while held", Why: fact(b, "clock"),
			Text: fmt.Sprintf("%s of %d locks that should have been renewed in time", number(lost), r.Params.Held)})
	}
	all = append(all, r.behind(i)...)
	all = append(all, r.noise(i)...)
	return append(all, r.notMeasured(b)...)
}

// behind says where a store is far behind the best, in one statement for each that
// it is behind.
func (r doc) behind(i int) []statement {
	if inProcess(r.Backends[i]) {
		return nil
	}
	var leaders []int
	where := make(map[int][]string)
	for _, c := range r.contests() {
		top, _ := r.leaders(c.series, c.info.lower)
		if !c.ranked || len(top) == 0 || slices.Contains(top, i) || !r.ranks(i, c.series[i]) {
			continue
		}
		m, best := c.of(i), c.of(top[0])
		low, high := min(m, best), max(m, best)
		if low <= 0 || high/low < farBehind {
			continue
		}
		if where[top[0]] == nil {
			leaders = append(leaders, top[0])
		}
		where[top[0]] = append(where[top[0]], fmt.Sprintf("%s (%s times)", c.info.claim, factor(high/low)))
	}
	var all []statement
	labels := r.labels()
	for _, k := range leaders {
		all = append(all, statement{Verdict: report.Caution, Head: "Far behind " + labels[k], Text: strings.Join(where[k], ", ")})
	}
	return all
}

// noise says where a backend takes no part because its rounds differ too much.
func (r doc) noise(i int) []statement {
	var where []string
	for _, c := range r.contests() {
		if s := c.series[i]; noisy(s) {
			where = append(where, fmt.Sprintf("%s (%s)", c.info.claim, spread(s)))
		}
	}
	if where == nil || inProcess(r.Backends[i]) {
		return nil
	}
	return []statement{{Verdict: report.Caution, Head: "Too noisy to rank", Text: strings.Join(where, ", "), Why: noiseReason}}
}

// notMeasured gathers what was not tried by the reason.
func (r doc) notMeasured(b *report.Backend) []statement {
	var reasons []string
	byReason := make(map[string][]string)
	add := func(what, reason string) {
		if byReason[reason] == nil {
			reasons = append(reasons, reason)
		}
		byReason[reason] = append(byReason[reason], what)
	}
	for _, h := range r.hazards() {
		if o, ok := b.Safety[h]; !ok || o.Verdict == report.Unmeasured {
			add(hazardOf(h).title, strings.TrimPrefix(clean(o.Text), "not measured: "))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.Unmeasured)) {
		add(workloadTitle(id), clean(b.Unmeasured[id]))
	}
	var all []statement
	for _, reason := range reasons {
		all = append(all, statement{Verdict: report.Unmeasured, Why: reason, Head: "Not measured", Text: strings.Join(byReason[reason], ", ")})
	}
	return all
}
