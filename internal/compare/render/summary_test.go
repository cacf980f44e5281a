package render

import (
	"slices"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/internal/compare/report"
)

func TestApart(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b report.Series
		gap  float64
		want bool
	}{
		{"far apart", report.Series{1, 2, 3}, report.Series{10, 11, 12}, 0.1, true},
		{"the other way round", report.Series{10, 11, 12}, report.Series{1, 2, 3}, 0.1, true},
		{"one round reaches into the others", report.Series{1, 2, 10.5}, report.Series{10, 11, 12}, 0.1, false},
		{"they touch", report.Series{8, 9, 10}, report.Series{10, 20, 30}, 0.1, false},
		{"apart, by less than matters", report.Series{100, 101, 102}, report.Series{103, 104, 105}, 0.1, false},
		{"apart, with no gap asked for", report.Series{100, 101, 102}, report.Series{103, 104, 105}, 0, true},
		{"apart, by less than they spread", report.Series{100, 180, 200}, report.Series{201, 220, 300}, 0.1, false},
		{"apart, by more than they spread", report.Series{100, 110, 120}, report.Series{201, 210, 300}, 0.1, true},
		{"two rounds", report.Series{1, 2}, report.Series{10, 11}, 0.1, false},
		{"two rounds of one", report.Series{1, 2, 3}, report.Series{10, 11}, 0.1, false},
		{"nothing", nil, report.Series{1, 2, 3}, 0.1, false},
		{"from nought", report.Series{0, 0, 0}, report.Series{1, 1, 1}, 0.1, true},
		{"both nought", report.Series{0, 0, 0}, report.Series{0, 0, 0}, 0, false},
	} {
		if got := apart(tc.a, tc.b, tc.gap); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// of returns a report of two stores and a reference in this process, with one figure.
func of(f report.Figure, redis, etcd report.Series) *report.Report {
	return &report.Report{Schema: report.Schema, Params: report.Params{Rounds: 3}, Backends: []*report.Backend{
		{Name: "memory", URL: "mem://x", Figures: map[report.Figure]report.Series{}},
		{Name: "redis", URL: "redis://h", Figures: map[report.Figure]report.Series{f: redis}},
		{Name: "etcd", URL: "etcd://h", Figures: map[report.Figure]report.Series{f: etcd}},
	}}
}

// said returns what is said of a backend, in one line each.
func said(r *report.Report, name string) (best, watch []string, lead string) {
	for _, s := range (doc{r}).summaries() {
		if s.Name != name {
			continue
		}
		for _, st := range s.Best {
			best = append(best, st.line())
		}
		for _, st := range s.Watch {
			watch = append(watch, st.line())
		}
		lead = s.Lead
	}
	return best, watch, lead
}

// A winner is named only where the rounds do not overlap.
func TestSummaryNamesWinners(t *testing.T) {
	r := of(report.SoloRate, report.Series{900, 1000, 1100}, report.Series{300, 310, 320})
	best, watch, lead := said(r, "redis")
	if !slices.Equal(best, []string{"Locks that nobody else wants: 1,000/s, 3.2 times etcd"}) || len(watch) != 0 || lead != "Ahead of all others in 1 of 1 comparison." {
		t.Errorf("redis: %q, %q, %q", best, watch, lead)
	}
	best, watch, lead = said(r, "etcd")
	if len(best) != 0 || !slices.Equal(watch, []string{"Far behind redis: locks that nobody else wants (3.2 times)"}) ||
		lead != "Ahead of all others in none of 1 comparison." {
		t.Errorf("etcd: %q, %q, %q", best, watch, lead)
	}

	for name, r := range map[string]*report.Report{
		"they overlap":       of(report.SoloRate, report.Series{900, 1000, 1100}, report.Series{400, 410, 950}),
		"too close":          of(report.SoloRate, report.Series{1000, 1001, 1002}, report.Series{990, 991, 992}),
		"two rounds":         of(report.SoloRate, report.Series{1000, 1001}, report.Series{1, 1}),
		"nothing to compare": of(report.SoloRate, report.Series{1000, 1001, 1002}, nil),
		"no claim":           of(report.BareRate, report.Series{1000, 1001, 1002}, report.Series{1, 1, 1}),
	} {
		for _, b := range []string{"redis", "etcd", "memory"} {
			if best, watch, _ := said(r, b); len(best)+len(watch) != 0 {
				t.Errorf("%s: %s: %q, %q", name, b, best, watch)
			}
		}
	}
}

// Where less is better, less wins; what is in this process never does.
func TestSummaryKnowsDirections(t *testing.T) {
	r := of(report.HandOff50, report.Series{2, 2, 2}, report.Series{1, 1, 1})
	r.Backends[0].Figures[report.HandOff50] = report.Series{0.01, 0.01, 0.01}
	best, _, _ := said(r, "etcd")
	if !slices.Equal(best, []string{"Passing a lock on: 1 ms, 2.0 times less than redis"}) {
		t.Errorf("etcd: %q", best)
	}
	_, watch, _ := said(r, "redis")
	if !slices.Equal(watch, []string{"Far behind etcd: passing a lock on (2.0 times)"}) {
		t.Errorf("redis: %q", watch)
	}
	best, watch, lead := said(r, "memory")
	if len(best)+len(watch) != 0 || !strings.Contains(lead, "not ranked") {
		t.Errorf("memory: %q, %q, %q", best, watch, lead)
	}
	if row := (doc{r}).performanceTable().Rows[0]; row.Cells[0].Best || row.Cells[1].Best || !row.Cells[2].Best {
		t.Errorf("marked in the table: %+v", row.Cells)
	}
}

// With three stores, those that share the top are level, and the third is not.
func TestSummaryLevel(t *testing.T) {
	r := of(report.SoloRate, report.Series{900, 1000, 1100}, report.Series{950, 1050, 1150})
	r.Backends = append(r.Backends, &report.Backend{Name: "zk", URL: "zk://h", Figures: map[report.Figure]report.Series{report.SoloRate: {600, 610, 620}}})
	for name, other := range map[string]string{"redis": "etcd", "etcd": "redis"} {
		best, _, lead := said(r, name)
		if len(best) != 1 || !strings.HasSuffix(best[0], ", within the noise of "+other) || !strings.Contains(lead, "Ahead of all others in none of 1 comparison, level with the best in 1.") {
			t.Errorf("%s: %q, %q", name, best, lead)
		}
	}
	if best, watch, _ := said(r, "zk"); len(best)+len(watch) != 0 { // 1.7 times is not far
		t.Errorf("zk: %q, %q", best, watch)
	}
	// Rounds that reach up to the best, with a median far below, are neither.
	r.Backends[1].Figures[report.SoloRate] = report.Series{500, 510, 1150}
	if best, watch, _ := said(r, "redis"); len(best)+len(watch) != 0 {
		t.Errorf("redis: %q, %q", best, watch)
	}
	if best, _, _ := said(r, "etcd"); !slices.Equal(best, []string{"Locks that nobody else wants: 1,050/s, within the noise of redis"}) {
		t.Errorf("etcd: %q", best)
	}
}

// Rounds that differ by more than their median are told.
func TestSummaryOfNoise(t *testing.T) {
	wild := report.Series{100, 1000, 9000}
	for _, etcd := range []report.Series{{900, 1000, 1100}, nil} { // with a rival, and alone
		r := of(report.SoloRate, wild, etcd)
		_, watch, _ := said(r, "redis")
		if !slices.Equal(watch, []string{"Too noisy to rank: locks that nobody else wants (±445%)"}) {
			t.Errorf("redis: %q", watch)
		}
		if lead := (doc{r}).performanceTable().Lead; !strings.Contains(lead, "±100% or more says little: the machine was busy") {
			t.Errorf("the table says %q", lead)
		}
		if _, watch, _ := said(r, "etcd"); len(watch) != 0 {
			t.Errorf("etcd: %q", watch)
		}
	}
	if lead := (doc{of(report.SoloRate, report.Series{900, 1000, 1100}, nil)}).performanceTable().Lead; strings.Contains(lead, "says little") {
		t.Errorf("the table says %q", lead)
	}
}

// A figure that is too noisy ranks neither its store nor the others, in no format.
func TestNoiseRanksNobody(t *testing.T) {
	r := of(report.HotWorst, report.Series{6.1, 17.1, 48.9}, report.Series{20, 21, 22})
	r.Backends = append(r.Backends, &report.Backend{Name: "pg", URL: "postgres://h", Figures: map[report.Figure]report.Series{report.HotWorst: {133, 135, 137}}})
	for name, want := range map[string]string{"redis": "Too noisy to rank: the longest wait for a contended name (±125%)",
		"etcd": "", "pg": "Far behind etcd: the longest wait for a contended name (6.2 times)"} {
		best, watch, lead := said(r, name)
		if len(best) > 0 || strings.Join(watch, "") != want || strings.Contains(lead, "others in 1") {
			t.Errorf("%s: %q, %q, %q", name, best, watch, lead)
		}
	}
	for name, write := range formats() {
		if text := written(t, write, r); strings.Contains(text, "within the noise of") || strings.Contains(text, "behind redis") {
			t.Errorf("%s ranks by a noisy figure: %s", name, text)
		}
	}
	// A noisy store that is behind in each of its rounds leaves the winner its place.
	r.Backends[1].Figures[report.HotWorst] = report.Series{300, 1000, 4000}
	best, _, lead := said(r, "etcd")
	if !slices.Equal(best, []string{"The longest wait for a contended name: 22 ms, 6.2 times less than pg"}) || lead != "Ahead of all others in 1 of 1 comparison." {
		t.Errorf("etcd: %q, %q", best, lead)
	}
	if row := (doc{r}).performanceTable().Rows[0]; !row.Cells[2].Best {
		t.Errorf("marked in the table: %+v", row.Cells)
	}
}

// What is counted is named, in each format for people.
func TestComparedIsNamed(t *testing.T) {
	r := of(report.SoloRate, report.Series{900, 1000, 1100}, report.Series{300, 310, 320})
	r.Backends[1].Figures[report.HandOff50] = report.Series{1, 1, 1} // nobody to compare it with
	if got := (doc{r}).compared(); !strings.HasPrefix(got, "Compared are locks that nobody else wants. ") {
		t.Errorf("compared: %q", got)
	}
	for name, write := range formats() {
		if name != "json" && !strings.Contains(written(t, write, r), "Compared are locks that nobody else wants.") {
			t.Errorf("%s does not name what is compared", name)
		}
	}
	if got := (doc{of(report.SoloRate, nil, nil)}).compared(); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

// A throughput that starves others wins nothing.
func TestSummaryUnfair(t *testing.T) {
	r := of(report.HotRate, report.Series{9000, 9000, 9000}, report.Series{1000, 1000, 1000})
	r.Backends[1].Figures[report.HotJain] = report.Series{0.3, 0.3, 0.3}
	r.Backends[1].Figures[report.HotWorst] = report.Series{900, 900, 900}
	best, watch, _ := said(r, "redis")
	if len(best) != 0 || len(watch) != 1 || !strings.HasPrefix(watch[0], "Unfair on a contended name: Jain's index 0.3, longest wait 900 ms") {
		t.Errorf("redis: %q, %q", best, watch)
	}
	if best, watch, _ := said(r, "etcd"); len(best)+len(watch) != 0 {
		t.Errorf("etcd: %q, %q", best, watch)
	}
}

// Locks that were lost while they were renewed are told.
func TestSummaryOfLostLocks(t *testing.T) {
	r := of(report.HeldLost, report.Series{7}, report.Series{0})
	r.Params.Held = 1000
	if _, watch, _ := said(r, "redis"); !slices.Equal(watch, []string{"Lost while held: 7 of 1000 locks that should have been renewed in time"}) {
		t.Errorf("redis: %q", watch)
	}
	if _, watch, _ := said(r, "etcd"); len(watch) != 0 {
		t.Errorf("etcd: %q", watch)
	}
}

// Outcomes are told worst first, with the fact that explains them; what was not
// measured comes last, gathered by its reason; a lock that is broken recovers from
// nothing.
func TestSummaryOfSafety(t *testing.T) {
	r := of(report.BareRate, nil, nil)
	none := report.Outcome{Verdict: report.Unmeasured, Text: "not measured: no control of the server"}
	r.Backends[1].Facts = []report.Fact{{ID: "durability", Title: "", Text: "volatile"}}
	r.Backends[1].Failed = map[string]string{"hot": "gone away"}
	r.Backends[1].Unmeasured = map[string]string{"traffic": "no control of the server"}
	r.Backends[1].Safety = map[report.Hazard]report.Outcome{
		report.KilledHolder:  {Verdict: report.Bad, Text: "free after 1 s", Values: report.Series{1, 1, 1}, Unit: "ms"},
		report.ServerRestart: {Verdict: report.Caution, Text: "lost, told"}, report.Herd: none, report.CutOffHolder: none,
	}
	r.Backends[2].Safety = map[report.Hazard]report.Outcome{report.KilledHolder: {Verdict: report.Good, Values: report.Series{2000, 2000, 2000}, Unit: "ms"}}
	best, watch, _ := said(r, "redis")
	if want := []string{"Holder killed: free after 1 s", "Failed: many clients, one name", "Server restarted: lost, told",
		"Not measured: holder cut off, herd at a release, traffic"}; !slices.Equal(watch, want) || len(best) != 0 {
		t.Errorf("redis: %q, %q", best, watch)
	}
	if why := (doc{r}).watch(1)[2].Why; why != "volatile" {
		t.Errorf("why: %q", why)
	}
}

// What a store forgets is told with its summary.
func TestSummaryTellsOfVolatileStores(t *testing.T) {
	r := of(report.BareRate, nil, nil)
	for i, text := range []string{"volatile: a crash of the server may lose locks", "quorum: they survive"} {
		r.Backends[i+1].Facts = []report.Fact{{ID: "durability", Text: text}}
	}
	if _, watch, _ := said(r, "redis"); !slices.Equal(watch, []string{"What survives: a crash of the server may lose locks"}) {
		t.Errorf("redis: %q", watch)
	}
	if _, watch, _ := said(r, "etcd"); len(watch) != 0 {
		t.Errorf("etcd: %q", watch)
	}
}

// The reason is a fact that bears on the figure, or a measured one.
func TestSummaryGivesReasons(t *testing.T) {
	r := fixture()
	for f, want := range map[report.Figure]string{
		report.SoloRate:  "the store's own two commands alone reach 11,900/s, so the store sets the pace, not the library",
		report.HandOff50: "first come, first served", report.FailOver: "key expiry", report.HeldRequests: "",
	} {
		if got := why(r.Backends[1], f); got != want {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
	}
	r.Backends[1].Figures[report.SoloRate] = rounds(3000)
	if got := why(r.Backends[1], report.SoloRate); got != "the store's own two commands alone reach 11,900/s: a lock does more than they do" {
		t.Errorf("of a slow lock: %q", got)
	}
	delete(r.Backends[1].Figures, report.BareRate)
	if got := why(r.Backends[1], report.SoloRate); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
