package result

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/servers"
)

// Verdict is whether a goal was met.
type Verdict string

// The verdicts.
const (
	Met        Verdict = "met"
	Missed     Verdict = "missed"
	Unmeasured Verdict = "not measured"
)

// Goal is what the project has set itself for one row on one backend. All of its
// checks must hold.
type Goal struct {
	Row     string // in the words of the goal
	Backend servers.Kind
	checks  []check
}

// check is one condition on the figures of a backend.
type check struct {
	row    string
	figure Figure
	// versus are the contenders of which the best one is the measure; none for a
	// bound on our own figure.
	versus []string
	faster bool // the bound is on theirs divided by ours, not on ours divided by theirs
	least  bool // the bound is the least allowed, not the most
	bound  float64
	text   string // "≥ 0.9 × bare"
}

func atLeast(bound float64, row string, f Figure, versus ...string) check {
	return check{row: row, figure: f, versus: versus, least: true, bound: bound, text: "≥ " + plain(bound)}
}

func atMost(bound float64, row string, f Figure, versus ...string) check {
	return check{row: row, figure: f, versus: versus, bound: bound, text: "≤ " + plain(bound)}
}

// timesFaster is for what is the better the lower it is.
func timesFaster(bound float64, row string, f Figure, versus ...string) check {
	return check{row: row, figure: f, versus: versus, faster: true, least: true, bound: bound,
		text: plain(bound) + " times faster"}
}

func plain(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%g", v), ".0") }

// Outcome is what the figures say of a goal.
type Outcome struct {
	Verdict Verdict
	Parts   []Part
}

// Part is what they say of one check of it.
type Part struct {
	Verdict  Verdict
	Goal     string // "≥ 0.9 × bare put + delete"
	Measured string // "0.93 (0.88–0.97)"
	Row      string
	figure   Figure
}

// Judge looks at the figures of a backend.
func (g Goal) Judge(b *Backend) Outcome {
	o := Outcome{Verdict: Met}
	for _, c := range g.checks {
		p := c.judge(b)
		o.Parts = append(o.Parts, p)
		if p.Verdict == Missed || p.Verdict == Unmeasured && o.Verdict == Met {
			o.Verdict = p.Verdict
		}
	}
	return o
}

func (c check) judge(b *Backend) Part {
	row := b.Row(c.row)
	p := Part{Verdict: Unmeasured, Goal: c.text, Measured: "–", Row: c.row, figure: c.figure}
	s, against := c.series(row)
	if against == "" {
		against = strings.Join(c.versus, " or ") // nobody of them was measured
	}
	switch {
	case c.faster:
		p.Goal += " than " + against
	case against != "":
		p.Goal += " × " + against
	}
	if row != nil && row.Failed[peers.Distlock] != "" {
		p.Verdict, p.Measured = Missed, "failed: "+row.Failed[peers.Distlock]
		return p
	}
	m := s.Median()
	if math.IsNaN(m) {
		return p
	}
	p.Measured = ratio(s)
	p.Verdict = Missed
	if c.least && m >= c.bound || !c.least && m <= c.bound {
		p.Verdict = Met
	}
	return p
}

// series returns what the bound is on, round by round, and which contender was the
// best of those that it is measured by.
func (c check) series(row *Row) (Series, string) {
	ours := row.Series(peers.Distlock, c.figure)
	if len(c.versus) == 0 {
		return ours, ""
	}
	best := Best(row, c.figure, c.versus)
	if best == "" {
		return nil, ""
	}
	theirs := row.Series(best, c.figure)
	if c.faster {
		return theirs.By(ours), best
	}
	return ours.By(theirs), best
}

// Rival returns which of the contenders ours is to be looked at beside in a row: the one
// by which a goal is missed, or the best one, or "" if there are no figures of any.
func (b *Backend) Rival(backend servers.Kind, row *Row, names []string) string {
	for _, g := range Goals {
		for _, c := range g.checks {
			if g.Backend != backend || c.row != row.ID || c.judge(b).Verdict != Missed {
				continue
			}
			if best := Best(row, c.figure, c.versus); slices.Contains(names, best) {
				return best
			}
		}
	}
	return Best(row, columnsOf(row.ID)[0].figure, names)
}

// HeapMissed reports whether the locks that were held need more memory than is the
// goal.
func (r *Row) HeapMissed() bool {
	return r.ID == heldRow && r.Series(peers.Distlock, Bytes).Median() > kib
}

// Best returns which of the contenders has the best median, or "" if none has any.
func Best(row *Row, f Figure, names []string) string {
	best, top := "", math.NaN()
	for _, name := range names {
		m := row.Series(name, f).Median()
		if math.IsNaN(m) {
			continue
		}
		if best == "" || f.LessIsMore() && m < top || !f.LessIsMore() && m > top {
			best, top = name, m
		}
	}
	return best
}
