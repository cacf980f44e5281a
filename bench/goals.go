package main

import (
	"slices"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// goal is what ours is to reach on a store: want times what another does in the same
// run, at the least; for hand-offs, which are times, at the most.
type goal struct {
	store, workload string
	rival, theirs   string // a contender and its workload
	want            float64
}

// goals has none for MySQL's hand-off and for many clients on one name of it: see tried.md.
var goals = []goal{
	{"redis", "solo", bare, "bare", .85},
	{"mysql", "solo", bare, "bare", .95},
	{"pg", "solo", bare, "bare", .9},
	{"zk", "solo", bare, "bare", .95},
	{"etcd", "solo", bare, "bare", .9},
	{"redis", "parallel", bare, "bare_parallel", 1.4},
	{"mysql", "parallel", bare, "bare_parallel", .9},
	{"pg", "parallel", bare, "bare_parallel", .9},
	{"zk", "parallel", bare, "bare_parallel", 1},
	{"etcd", "parallel", bare, "bare_parallel", 1.2},
	{"redis", "handoff", "rueidislock", "handoff", .8},
	{"zk", "handoff", "go-zookeeper Lock", "handoff", .8},
	{"zk", "hot", "go-zookeeper Lock", "hot", 1},
}

// figureOf is what a workload is judged by.
var figureOf = map[string]report.Figure{
	"bare": report.BareRate, "bare_parallel": report.BareParallelRate, "solo": report.SoloRate,
	"parallel": report.ParallelRate, "hot": report.HotRate, "handoff": report.HandOff50,
}

func (g goal) lower() bool { return g.workload == "handoff" }

// reached returns the ratio of ours to the rival's, and whether it is as good as wanted.
// known is false if one of them has no figures.
func (g goal) reached(m *measured) (ratio float64, yes, known bool) {
	own, rival := m.contender(ours), m.contender(g.rival)
	if own == nil || rival == nil {
		return 0, false, false
	}
	ratio, known = rounds(own.Figures[figureOf[g.workload]], rival.Figures[figureOf[g.theirs]]).Median()
	return ratio, g.lower() == (ratio <= g.want) || ratio == g.want, known
}

// crowdGoal is what clients on one name are to get: want times what against says, at the least. ratio
// reports false where that was not measured.
type crowdGoal struct {
	store, what, against string
	want                 float64
	ratio                func(m *measured) (float64, bool)
}

var crowdGoals = append(few("redis", "mysql", "zk", "etcd"),
	crowdGoal{"redis", "2 clients on one name", "rueidislock", .8, func(m *measured) (float64, bool) {
		return m.crowdOf(ours, 2).to(m.crowdOf("rueidislock", 2)).Median()
	}},
	crowdGoal{"redis", "2 clients on one name, Jain's index", "", .95, func(m *measured) (float64, bool) {
		return m.crowdOf(ours, 2).Jain.Median()
	}},
	crowdGoal{"zk", "64 clients on one name", "go-zookeeper Lock", 1, func(m *measured) (float64, bool) {
		return m.crowdOf(ours, 64).to(m.crowdOf("go-zookeeper Lock", 64)).Median()
	}},
)

// few clients are not to be slower than many, in any round.
func few(stores ...string) (gs []crowdGoal) {
	for _, st := range stores {
		gs = append(gs, crowdGoal{st, "2, 3, 4 clients on one name, the least of the rounds", "16 clients", .8, func(m *measured) (float64, bool) {
			var all report.Series
			for _, n := range []int{2, 3, 4} {
				all = append(all, m.crowdOf(ours, n).to(m.crowdOf(ours, 16))...)
			}
			if len(all) == 0 {
				return 0, false
			}
			return slices.Min(all), true
		}})
	}
	return gs
}
