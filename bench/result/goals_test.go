package result

import (
	"slices"
	"testing"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/servers"
)

// one makes a backend with one row, of one figure, in some rounds.
func one(id string, f Figure, values map[string][]float64) *Backend {
	row := &Row{ID: id, InTurn: true, Failed: make(map[string]string)}
	for name, vs := range values {
		for i, v := range vs {
			for len(row.Rounds) <= i {
				row.Rounds = append(row.Rounds, make(Round))
			}
			row.Rounds[i][name] = map[Figure]float64{f: v}
		}
	}
	return &Backend{Rows: []*Row{row}}
}

func TestJudge(t *testing.T) {
	rates := one("solo", Rate, map[string][]float64{peers.Distlock: {80, 100, 90}, "a": {100, 100, 100}, "b": {50, 500, 60}})
	times := one("handoff", P50, map[string][]float64{peers.Distlock: {2, 1}, "slow": {60, 50}, "slower": {90, 80}})
	failed := one("solo", Rate, map[string][]float64{"a": {1}})
	failed.Rows[0].Failed[peers.Distlock] = "no answer"
	for _, tc := range []struct {
		name     string
		check    check
		on       *Backend
		verdict  Verdict
		measured string
		goal     string
	}{
		{"met by the median", atLeast(0.9, "solo", Rate, "a"), rates, Met, "0.900 (0.800–1.00)", "≥ 0.9 × a"},
		{"missed by the median", atLeast(0.91, "solo", Rate, "a"), rates, Missed, "0.900 (0.800–1.00)", "≥ 0.91 × a"},
		{"the best has the best median, not the best round", atLeast(1, "solo", Rate, "b", "a"), rates, Missed, "0.900 (0.800–1.00)", "≥ 1 × a"},
		{"of times, the best is the lowest", atMost(0.8, "handoff", P50, "slower", "slow"), times, Met, "0.027 (0.020–0.033)", "≤ 0.8 × slow"},
		{"times faster", timesFaster(40, "handoff", P50, "slow"), times, Met, "40.0 (30.0–50.0)", "40 times faster than slow"},
		{"not as many times", timesFaster(41, "handoff", P50, "slow"), times, Missed, "40.0 (30.0–50.0)", "41 times faster than slow"},
		{"a bound of ours alone", atMost(1.5, "handoff", P50), times, Met, "1.50 (1.00–2.00)", "≤ 1.5"},
		{"nobody to compare with", atLeast(1, "solo", Rate, "c", "d"), rates, Unmeasured, "–", "≥ 1 × c or d"},
		{"another row", atLeast(1, "parallel", Rate, "a"), rates, Unmeasured, "–", "≥ 1 × a"},
		{"no backend", atLeast(1, "solo", Rate, "a"), nil, Unmeasured, "–", "≥ 1 × a"},
		{"what failed is missed", atLeast(1, "solo", Rate, "a"), failed, Missed, "failed: no answer", "≥ 1 × a"},
	} {
		p := Goal{checks: []check{tc.check}}.Judge(tc.on).Parts[0]
		if p.Verdict != tc.verdict || p.Measured != tc.measured || p.Goal != tc.goal {
			t.Errorf("%s: %s, %q of %q; want %s, %q of %q", tc.name, p.Verdict, p.Measured, p.Goal, tc.verdict, tc.measured, tc.goal)
		}
	}
}

// A goal is met only if all of it is, and missed if any of it is.
func TestJudgeTogether(t *testing.T) {
	on := one("solo", Rate, map[string][]float64{peers.Distlock: {1}})
	met, missed, unknown := atLeast(1, "solo", Rate), atLeast(2, "solo", Rate), atLeast(1, "hot2", Rate)
	for _, tc := range []struct {
		checks []check
		want   Verdict
	}{
		{[]check{met, met}, Met},
		{[]check{met, missed}, Missed},
		{[]check{met, unknown}, Unmeasured},
		{[]check{unknown, missed}, Missed},
		{[]check{missed, unknown}, Missed},
	} {
		if got := (Goal{checks: tc.checks}).Judge(on).Verdict; got != tc.want {
			t.Errorf("%v: %s, want %s", tc.checks, got, tc.want)
		}
	}
}

// A goal that names a contender which is not there would never be judged.
func TestGoalsNameContenders(t *testing.T) {
	for _, g := range Goals {
		for _, c := range g.checks {
			for _, name := range c.versus {
				if !slices.ContainsFunc(peers.On(g.Backend), func(p peers.Contender) bool { return p.Name == name }) {
					t.Errorf("%s on %s is measured by %q, which is no contender there", g.Row, g.Backend, name)
				}
			}
			if !slices.ContainsFunc(columnsOf(c.row), func(col column) bool { return col.figure == c.figure }) {
				t.Errorf("%s: the row %s shows no %s", g.Row, c.row, c.figure)
			}
		}
	}
	for _, backend := range servers.Kinds {
		if titles[backend] == "" {
			t.Errorf("%s has no title", backend)
		}
	}
}

// Ours is profiled beside the peer by which it missed a goal, even if another is
// better at something of which there is no goal.
func TestRival(t *testing.T) {
	names := []string{getLock, table}
	for _, tc := range []struct {
		ours, getLock, table float64
		names                []string
		want                 string
	}{
		{100, 900, 200, names, table},       // the goal is by the table alone
		{300, 900, 200, names, getLock},     // and met
		{100, 900, 200, names[:1], getLock}, // the table was not to be measured
		{100, 900, 200, nil, ""},
	} {
		b := one("solo", Rate, map[string][]float64{peers.Distlock: {tc.ours}, getLock: {tc.getLock}, table: {tc.table}})
		if got := b.Rival(servers.MySQL, b.Rows[0], tc.names); got != tc.want {
			t.Errorf("ours %v, GET_LOCK %v, table %v, of %q: beside %q, want %q", tc.ours, tc.getLock, tc.table, tc.names, got, tc.want)
		}
	}
}

func TestAddProfiles(t *testing.T) {
	p := &Profile{Samples: 3, Spent: map[Bucket]int64{Driver: 1, Rest: 2}}
	p.Add(&Profile{Samples: 5, Spent: map[Bucket]int64{Driver: 1, Memory: 4}})
	if p.Samples != 8 || p.Share(Driver) != 0.25 || p.Share(Memory) != 0.5 || p.Share(Rest) != 0.25 {
		t.Errorf("together they are %+v", p)
	}
}
