package render

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// doc is a report to be shown.
type doc struct{ *report.Report }

// figureInfo says how a figure is read.
type figureInfo struct {
	id    report.Figure
	title string // of a row, without the unit
	unit  string // "/s", "ms", "" for a bare number
	lower bool   // less is better
	// claim completes "best at" and names what it is good for. A figure without one
	// explains others, and is no reason to choose a store by itself.
	claim string
}

// figureInfos in the order of the reports.
var figureInfos = []figureInfo{
	{report.BareRate, "bare commands", "/s", false, ""},
	{report.BareParallelRate, "bare commands, many keys", "/s", false, ""},
	{report.SoloRate, "one after the other", "/s", false, "locks that nobody else wants"},
	{report.ParallelRate, "many names at once", "/s", false, "many names at once"},
	{report.HotRate, "many clients, one name", "/s", false, "throughput on one contended name"},
	{report.HotJain, "… Jain's index", "", false, ""},
	{report.HotWorst, "… longest wait", "ms", true, "the longest wait for a contended name"},
	{report.HandOff50, "hand-off, median", "ms", true, "passing a lock on"},
	{report.HandOff99, "hand-off, 99 %", "ms", true, ""}, // of some fifty in a round, which is the longest
	{"waiting_requests_per_s", "many waiting: requests", "/s", true, "cheap waiting"},
	{"waiting_drain_ms", "… until all had a turn", "ms", true, "serving a long queue"},
	{"waiting_out_of_order", "… share out of order", "", true, ""},
	{"try_won_p50_ms", "TryLock: got it", "ms", true, "TryLock of a free name"},
	{"try_busy_p50_ms", "TryLock: was held", "ms", true, "TryLock of a held name"},
	{"try_nobody", "… share that nobody got", "", true, ""},
	{"arrivals_per_s", "calls at a rate: served", "/s", false, ""},
	{"arrivals_p50_ms", "… to the grant, median", "ms", true, "calls that arrive at a rate"},
	{"arrivals_p99_ms", "… to the grant, 99 %", "ms", true, "calls that arrive at a rate, 99th percentile"},
	{"failover_ms", "holder cut off: next holds", "ms", true, "taking over from a holder that is cut off"},
	{"failover_after_ttl", "… in TTLs", "", true, ""},
	{report.ClientCPU("bare"), "client CPU each: bare", "µs", true, ""},
	{report.ClientCPU("bare_parallel"), "… bare, many keys", "µs", true, ""},
	{report.ClientCPU("solo"), "… one after the other", "µs", true, ""},
	{report.ClientCPU("parallel"), "… many names", "µs", true, ""},
	{report.ClientCPU("hot"), "… one name", "µs", true, ""},
	{report.ClientCPU("handoff"), "… hand-off", "µs", true, ""},
	{report.ServerCPU("bare"), "server CPU each: bare", "µs", true, ""},
	{report.ServerCPU("bare_parallel"), "… bare, many keys", "µs", true, ""},
	{report.ServerCPU("solo"), "… one after the other", "µs", true, ""},
	{report.ServerCPU("parallel"), "… many names", "µs", true, ""},
	{report.ServerCPU("hot"), "… one name", "µs", true, ""},
	{report.ServerCPU("handoff"), "… hand-off", "µs", true, ""},
	{"held_count", "locks held at once", "", false, ""},
	{"held_bytes", "memory of a held lock", "bytes", true, ""},
	{"held_goroutines", "goroutines of a held lock", "", true, ""},
	{"held_client_ms_per_s", "client CPU that keeps all", "ms/s", true, ""},
	{"held_server_ms_per_s", "server CPU that keeps all", "ms/s", true, ""},
	{"held_requests_per_s", "requests that renew", "/s", true, "keeping many locks"},
	{"held_lost", "locks lost while held", "", true, ""},
}

// infoOf returns how to read a figure. If a figure of a newer report is not in the
// list, it is shown by its name, with the unit at the end of the name.
func infoOf(f report.Figure) figureInfo {
	if i := slices.IndexFunc(figureInfos, func(in figureInfo) bool { return in.id == f }); i >= 0 {
		return figureInfos[i]
	}
	name, unit := string(f), ""
	for _, u := range []struct{ suffix, unit string }{{"_per_s", "/s"}, {"_ms", "ms"}, {"_bytes", "bytes"}} {
		if cut, ok := strings.CutSuffix(name, u.suffix); ok {
			name, unit = cut, u.unit
		}
	}
	return figureInfo{id: f, title: strings.ReplaceAll(name, "_", " "), unit: unit, lower: unit != "/s"}
}

// full is the title where no row stands above it that it continues.
func (in figureInfo) full() string {
	rest, ok := strings.CutPrefix(in.title, "… ")
	if !ok {
		return in.title
	}
	above, _ := in.continues()
	return above + ": " + rest
}

// continues reports whether the title begins with "…". Such a title continues the first
// one above that does not, from its colon. above is that one, or else the title itself,
// up to its colon.
func (in figureInfo) continues() (above string, continues bool) {
	if !strings.HasPrefix(in.title, "… ") {
		above, _, _ = strings.Cut(in.title, ": ")
		return above, false
	}
	for _, other := range figureInfos {
		if other.id == in.id {
			break
		}
		if !strings.HasPrefix(other.title, "… ") {
			above, _, _ = strings.Cut(other.title, ": ")
		}
	}
	return above, true
}

// hazardInfo says how a hazard is named.
type hazardInfo struct {
	id    report.Hazard
	title string
	fact  string // the Fact that explains its outcome
	axis  string // what its values are
	// claim as of figureInfo, where the values can be compared: fewer are better.
	claim string
}

var hazardInfos = []hazardInfo{
	{report.DoubleGrants, "two holders at once", "exclusion", "", ""},
	{report.KilledHolder, "holder killed", "crashed_holder", "From the death of the holder to the return of the next Lock. Less is better.", "recovering from a killed holder"},
	{report.StalledHolder, "holder stalled", "clock", "From when the holder no longer believed to hold to the next one's Lock: above zero is safe.", ""},
	{report.CutOffHolder, "holder cut off", "clock", "From when the holder no longer believed to hold to the next one's Lock: above zero is safe.", ""},
	{report.ServerRestart, "server restarted", "durability", "Of locks that were lost: from when the holder knew to the next one's Lock. Above zero is safe.", ""},
	{report.CancelledWaiter, "waiter cancelled", "crashed_holder", "", ""},
	{report.Herd, "herd at a release", "fairness", "", ""},
	{report.Fairness, "fairness", "fairness", "Longest waits. Less is better.", ""},
}

func hazardOf(h report.Hazard) hazardInfo {
	if i := slices.IndexFunc(hazardInfos, func(in hazardInfo) bool { return in.id == h }); i >= 0 {
		return hazardInfos[i]
	}
	return hazardInfo{id: h, title: strings.ReplaceAll(string(h), "_", " ")}
}

// inOrder returns the keys of all maps: the known ones in their order, then the
// others by name.
func inOrder[K cmp.Ordered, V any](known []K, of []map[K]V) []K {
	var found []K
	for _, m := range of {
		found = slices.AppendSeq(found, maps.Keys(m))
	}
	slices.Sort(found)
	found = slices.Compact(found)
	var ordered []K
	for _, k := range known {
		if slices.Contains(found, k) {
			ordered = append(ordered, k)
		}
	}
	for _, k := range found {
		if !slices.Contains(known, k) {
			ordered = append(ordered, k)
		}
	}
	return ordered
}

// perBackend collects one field of all backends.
func perBackend[T any](r doc, field func(*report.Backend) T) []T {
	var all []T
	for _, b := range r.Backends {
		all = append(all, field(b))
	}
	return all
}

// figures returns the figures that any backend has.
func (r doc) figures() []report.Figure {
	var known []report.Figure
	for _, in := range figureInfos {
		known = append(known, in.id)
	}
	return inOrder(known, perBackend(r, func(b *report.Backend) map[report.Figure]report.Series { return b.Figures }))
}

// hazards returns the hazards that any backend met.
func (r doc) hazards() []report.Hazard {
	var known []report.Hazard
	for _, in := range hazardInfos {
		known = append(known, in.id)
	}
	return inOrder(known, perBackend(r, func(b *report.Backend) map[report.Hazard]report.Outcome { return b.Safety }))
}

func workloadTitle(id string) string { return clean(report.WorkloadTitle(id)) }

// maxLabel keeps an oversized name from taking the whole page.
const maxLabel = 32

// clip shortens a text to n characters.
func clip(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}

// labels returns a name for each backend that no other one has: two URLs of one
// scheme are numbered.
func (r doc) labels() []string {
	count := make(map[string]int)
	for _, b := range r.Backends {
		count[b.Name]++
	}
	seen := make(map[string]int)
	var labels []string
	for _, b := range r.Backends {
		label := clip(clean(b.Name), maxLabel)
		if count[b.Name] > 1 {
			seen[b.Name]++
			label += " " + strconv.Itoa(seen[b.Name])
		}
		labels = append(labels, label)
	}
	return labels
}

// inProcess reports whether a backend is no store: it shows what the library itself
// costs, and competes with nobody.
func inProcess(b *report.Backend) bool { return strings.HasPrefix(b.URL, "mem:") }

// number writes three significant digits: more would be noise.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case a < 1000 && v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 999_500:
		return strconv.FormatFloat(v/1e6, 'f', max(0, 2-int(math.Log10(a/1e6))), 64) + " M"
	case a >= 999.5:
		scale := math.Pow(10, math.Floor(math.Log10(a))-2)
		return thousands(math.Round(v/scale) * scale)
	case a >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func thousands(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 {
		s = "-" + s
	}
	return s
}

// factor writes how many times one value is another.
func factor(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return number(math.Round(v))
}

// quantity is a number with its unit, a time in the unit that suits it.
func quantity(v float64, unit string) string {
	a := math.Abs(v)
	switch {
	case unit == "":
		return number(v)
	case unit == "/s":
		return number(v) + "/s"
	case unit == "ms" && a >= 999.5:
		return number(v/1000) + " s"
	case unit == "ms" && a > 0 && a < 0.0995:
		return number(v*1000) + " µs"
	}
	if one, ok := strings.CutSuffix(unit, "s"); ok && v == 1 && unit != "ms" {
		unit = one
	}
	return number(v) + " " + unit
}

// clean makes one line of printable characters of the words of a server or a URL: an
// escape sequence in an error message must not reach the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return '?'
	}, s)
}

// spread is how far the rounds are apart, or "" if there was one.
func spread(s report.Series) string {
	if len(s) < 2 {
		return ""
	}
	return fmt.Sprintf("±%.0f%%", 100*s.Spread())
}

// noisy reports whether the rounds differ by twice their median or more. With such a spread a backend that is half as
// good is never told apart.
func noisy(s report.Series) bool { return len(s) > 1 && s.Spread() >= 1 }

const noiseReason = "the machine was busy, or the rounds too short or too few (--duration, --rounds)"

// warnings are what a reader must know before the rest, worst first: a broken contract,
// an interrupted run, what failed and what is missing.
func (r doc) warnings() []string {
	var all []string
	labels := r.labels()
	for i, b := range r.Backends {
		for _, h := range r.hazards() {
			if o := b.Safety[h]; o.Verdict == report.Bad {
				all = append(all, fmt.Sprintf("%s broke the contract: %s: %s", labels[i], hazardOf(h).title, clean(o.Text)))
			}
		}
	}
	for i, b := range r.Backends {
		for _, h := range r.hazards() {
			if o := b.Safety[h]; o.Verdict == report.Unmeasured && strings.HasSuffix(o.Text, "failed") {
				all = append(all, fmt.Sprintf("%s: %s: %s: %s", labels[i], hazardOf(h).title, clean(o.Text), clean(o.Detail)))
			}
		}
	}
	if r.Interrupted {
		all = append(all, "the run was interrupted: the figures are those of the rounds that were finished")
	}
	for i, b := range r.Backends {
		for _, id := range slices.Sorted(maps.Keys(b.Failed)) {
			all = append(all, fmt.Sprintf("%s: %s FAILED: %s", labels[i], clean(id), clean(b.Failed[id])))
		}
		if b.Left != "" {
			all = append(all, labels[i]+": "+clean(b.Left))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Missing)) {
		all = append(all, fmt.Sprintf("%s was not measured: %s", clean(name), clean(r.Missing[name])))
	}
	return all
}

// Err returns an error if a backend could not be opened, a workload failed on a backend, something is left there, or the contract was broken.
func Err(rep *report.Report) error {
	r := doc{rep}
	labels := r.labels()
	var errs []error
	for i, b := range r.Backends {
		if _, unopened := b.Failed["open"]; unopened {
			errs = append(errs, fmt.Errorf("%s could not be opened", labels[i]))
		} else if len(b.Failed) > 0 {
			errs = append(errs, fmt.Errorf("%s failed on %s", Plural(len(b.Failed), "workload"), labels[i]))
		}
		if b.Left != "" {
			errs = append(errs, fmt.Errorf("something is left on %s", labels[i]))
		}
		for _, h := range r.hazards() {
			if b.Safety[h].Verdict == report.Bad {
				errs = append(errs, fmt.Errorf("%s broke the contract: %s", labels[i], hazardOf(h).title))
			}
		}
	}
	return errors.Join(errs...)
}
