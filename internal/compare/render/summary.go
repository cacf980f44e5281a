package render

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// MinRounds is how many rounds it takes to tell a difference from noise.
const MinRounds = 3

// clearGap is by how much the medians of two series must differ, as a part, to be
// called different. Three rounds each are apart by chance alone in one case of ten;
// few of these are apart by so much.
const clearGap = 0.1

// levelGap bounds how far the median of a store may be behind the best, as a part, to
// be called level with it. Widely scattered rounds overlap with everything.
const levelGap = 0.25

// apart reports whether two series differ beyond the noise. No value of one lies
// between the values of the other. The medians differ by more than gap, and by more
// than the two spreads together.
func apart(a, b report.Series, gap float64) bool {
	if len(a) < MinRounds || len(b) < MinRounds {
		return false
	}
	if slices.Max(a) >= slices.Min(b) && slices.Max(b) >= slices.Min(a) {
		return false
	}
	m, _ := a.Median()
	n, _ := b.Median()
	low, high := min(m, n), max(m, n)
	return high > 0 && low >= 0 && (low == 0 || high/low-1 > max(gap, a.Spread()+b.Spread()))
}

// leaders returns the series at the top: first the one with the best median, then all
// that are not apart from it. of is the number of competitors. A series that is too
// noisy is none: its median says nothing, neither of its store nor of the others.
func (r doc) leaders(series []report.Series, lower bool) (top []int, of int) {
	var best float64
	bestAt := -1
	for i, s := range series {
		m, ok := s.Median()
		if !ok || !r.ranks(i, s) {
			continue
		}
		of++
		if bestAt < 0 || lower && m < best || !lower && m > best {
			best, bestAt = m, i
		}
	}
	if bestAt < 0 {
		return nil, 0
	}
	top = []int{bestAt}
	for i, s := range series {
		if i != bestAt && r.ranks(i, s) && !apart(series[bestAt], s, clearGap) {
			top = append(top, i)
		}
	}
	return top, of
}

// ranks reports whether a series of a backend can be compared with others.
func (r doc) ranks(i int, s report.Series) bool {
	return len(s) > 0 && !noisy(s) && !inProcess(r.Backends[i])
}

// winner returns the series that is ahead of all others, or -1. It is ahead of a noisy
// one if no round of that one is as good as its own worst.
func (r doc) winner(series []report.Series, lower bool) int {
	top, _ := r.leaders(series, lower)
	if len(top) != 1 {
		return -1
	}
	best := series[top[0]]
	for i, s := range series {
		if len(s) == 0 || inProcess(r.Backends[i]) || !noisy(s) {
			continue
		}
		if lower && slices.Min(s) <= slices.Max(best) || !lower && slices.Max(s) >= slices.Min(best) {
			return -1
		}
	}
	return top[0]
}

// summary says of one backend what to know first, in plain words.
type summary struct {
	Name  string
	Index int
	Lead  string // how often it is ahead
	Best  []statement
	Watch []statement
}

// statement is one thing to know, and its reason, as far as known.
type statement struct {
	Head    string
	Text    string
	Why     string
	Verdict report.Verdict
}

// line is a statement in one line, without its reason.
func (s statement) line() string { return s.Head + ": " + s.Text }

// summaries derives from the figures, outcomes and facts what each backend is best at
// here and what to watch, the stores first. A backend is not named best if its rounds
// overlap with another's.
func (r doc) summaries() []summary {
	var stores, others []summary
	labels := r.labels()
	for i, b := range r.Backends {
		s := summary{Name: labels[i], Index: i, Watch: r.watch(i)}
		if inProcess(b) {
			s.Lead = "No store, and not ranked: it shows what the library itself costs, and locks within one process only."
			others = append(others, s)
			continue
		}
		s.Best, s.Lead = r.bestAt(i)
		stores = append(stores, s)
	}
	return append(stores, others...)
}

// contest is one thing that backends can be compared by.
type contest struct {
	info   figureInfo
	series []report.Series
	why    func(b *report.Backend) string
	ranked bool // backends far behind are told as well
}

// of returns what stands for all rounds of a backend, as in the tables.
func (c contest) of(i int) float64 {
	v, _ := c.info.id.Of(c.series[i])
	return v
}

// contests lists what can make a backend the best at something.
func (r doc) contests() []contest {
	var all []contest
	for _, f := range r.figures() {
		in := infoOf(f)
		if in.claim == "" {
			continue
		}
		series := perBackend(r, func(b *report.Backend) report.Series {
			if f == report.HotRate && unfair(b) {
				return nil // a client that retakes its own lock is fast, and starves the others
			}
			return b.Figures[f]
		})
		all = append(all, contest{info: in, series: series, ranked: true, why: func(b *report.Backend) string { return why(b, f) }})
	}
	for _, h := range r.hazards() {
		in := hazardOf(h)
		if in.claim == "" {
			continue
		}
		unit := ""
		series := perBackend(r, func(b *report.Backend) report.Series {
			o := b.Safety[h]
			if o.Verdict != report.Good && o.Verdict != report.Caution {
				return nil // a broken lock recovers fast
			}
			unit = o.Unit
			return o.Values
		})
		all = append(all, contest{info: figureInfo{title: in.title, unit: unit, lower: true, claim: in.claim}, series: series,
			why: func(b *report.Backend) string { return fact(b, in.fact) }})
	}
	return all
}

// unfairBelow is Jain's index under which a throughput says little. If n clients want
// the same, 0.8 means that a fifth of them might as well have got nothing.
const unfairBelow = 0.8

func unfair(b *report.Backend) bool {
	j, ok := b.Figures[report.HotJain].Median()
	return ok && j < unfairBelow
}

// why returns what is known of the backend that bears on a figure, or "".
func why(b *report.Backend, f report.Figure) string {
	workload, _, _ := strings.Cut(string(f), "_")
	switch workload {
	case "solo", "parallel", "try", "arrivals":
		return pace(b)
	case "hot", "handoff", "waiting":
		return fact(b, "fairness")
	case "failover":
		return fact(b, "crashed_holder")
	}
	return ""
}

// pace says what sets the pace of a lock on this store: its own commands, or the library.
func pace(b *report.Backend) string {
	share, ok := b.Figures[report.SoloRate].Ratio(b.Figures[report.BareRate]).Median()
	bare, _ := b.Figures[report.BareRate].Median()
	switch {
	case !ok:
		return ""
	case share >= 0.8:
		return fmt.Sprintf("the store's own two commands alone reach %s, so the store sets the pace, not the library", quantity(bare, "/s"))
	}
	return fmt.Sprintf("the store's own two commands alone reach %s: a lock does more than they do", quantity(bare, "/s"))
}

// bestAt says where a backend is at the top, and in how many of the contests.
func (r doc) bestAt(i int) (best []statement, lead string) {
	labels := r.labels()
	ahead, level, contests, compared := 0, 0, 0, false
	for _, c := range r.contests() {
		top, of := r.leaders(c.series, c.info.lower)
		compared = compared || of > 1
		if of < 2 || len(c.series[i]) < MinRounds || !r.ranks(i, c.series[i]) {
			continue
		}
		contests++
		if len(top) == of || !slices.Contains(top, i) {
			continue
		}
		m, n := c.of(i), c.of(top[0])
		others := joinNames(labels, slices.DeleteFunc(slices.Clone(top), func(k int) bool { return k == i }))
		st := statement{Head: upper(c.info.claim), Text: quantity(m, c.info.unit), Why: c.why(r.Backends[i]), Verdict: report.Good}
		switch {
		case len(top) == 1 && r.winner(c.series, c.info.lower) < 0:
			continue // a store that is too noisy to rank may be as good
		case len(top) == 1:
			ahead++
			next := r.second(c, i)
			st.Text += fmt.Sprintf(", %s %s", times(c, i, next), labels[next])
		case max(m, n) > (1+levelGap)*min(m, n):
			continue // its rounds overlap with the best ones, and are not as good
		default:
			level++
			st.Text += ", within the noise of " + others
		}
		best = append(best, st)
	}
	switch {
	case !compared:
		return best, "Nothing to compare it with in this run."
	case contests == 0 || r.Params.Rounds < MinRounds:
		return best, fmt.Sprintf("Too short to rank: it takes %d rounds to tell a difference from noise.", MinRounds)
	}
	lead = fmt.Sprintf("Ahead of all others in %d of %s", ahead, Plural(contests, "comparison"))
	if ahead == 0 {
		lead = fmt.Sprintf("Ahead of all others in none of %s", Plural(contests, "comparison"))
	}
	if level > 0 {
		lead += fmt.Sprintf(", level with the best in %d", level)
	}
	return best, lead + "."
}

// compared names what the summaries count, or returns "" if there is nothing to compare.
func (r doc) compared() string {
	var claims []string
	for _, c := range r.contests() {
		if _, of := r.leaders(c.series, c.info.lower); of > 1 && slices.ContainsFunc(c.series, func(s report.Series) bool { return len(s) >= MinRounds }) {
			claims = append(claims, c.info.claim)
		}
	}
	if claims == nil {
		return ""
	}
	return fmt.Sprintf("Compared are %s. A store is counted where it was measured, unless its rounds differ too much to rank it.",
		strings.Join(claims, "; "))
}

// second returns the backend that comes after the winner.
func (r doc) second(c contest, winner int) int {
	rest := slices.Clone(c.series)
	rest[winner] = nil
	next := -1
	var best float64
	for i, s := range rest {
		if m, ok := s.Median(); ok && r.ranks(i, s) && (next < 0 || c.info.lower == (m < best)) {
			next, best = i, m
		}
	}
	return next
}

// times says by how much a is ahead of b.
func times(c contest, a, b int) string {
	m, n := c.of(a), c.of(b)
	low, high := min(m, n), max(m, n)
	switch {
	case low <= 0:
		return "ahead of"
	case c.info.lower:
		return factor(high/low) + " times less than"
	}
	return factor(high/low) + " times"
}

// upper begins a text with a capital.
func upper(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + s[size:]
}

func joinNames(labels []string, which []int) string {
	var names []string
	for _, i := range which {
		names = append(names, labels[i])
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
