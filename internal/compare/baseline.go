package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Comparable returns an error that names what makes figures taken with two sets of
// parameters no measure of each other. The name of the profile is no such thing.
func Comparable(old, now Params) error {
	old.Profile, now.Profile = "", ""
	a, b := old.values(), now.values()
	var differ []string
	for _, key := range inOrder(nil, []map[string]string{a, b}) {
		if was, is := a[key], b[key]; was != is {
			differ = append(differ, fmt.Sprintf("%s was %s and is %s", key, orNone(was), orNone(is)))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return fmt.Errorf("measured with other parameters: %s", strings.Join(differ, ", "))
}

func orNone(s string) string {
	if s == "" {
		return "not given"
	}
	return s
}

// Diff is what has changed between two runs.
type Diff struct {
	Changes []Change
	// Notes say what else differs between the runs and may be the reason.
	Notes []string
	// Judged is how many figures could be compared, Unjudged how many had too few rounds.
	Judged, Unjudged int
	tolerance        float64
}

// Change is one difference beyond the noise.
type Change struct {
	Backend, What string
	Before, Now   string
	Ratio         float64 // of the medians, now by before; 0 where there are none
	Worse         bool
}

// Since compares two reports of one schema. A figure has changed if no value of one
// run lies between the values of the other, and the medians differ by more than the
// tolerance, as a part, and by more than the two spreads together; an outcome, if its
// verdict has. Both runs need [MinRounds].
func Since(old, now *Report, tolerance float64) (*Diff, error) {
	if old.Schema != now.Schema {
		return nil, fmt.Errorf("the baseline has schema %d, the report %d", old.Schema, now.Schema)
	}
	if err := Comparable(old.Params, now.Params); err != nil {
		return nil, err
	}
	d := &Diff{tolerance: tolerance, Notes: surroundings(old, now)}
	before := make(map[string]*Backend)
	for i, label := range old.labels() {
		before[label] = old.Backends[i]
	}
	for i, label := range now.labels() {
		was, ok := before[label]
		if !ok {
			d.Notes = append(d.Notes, label+" is not in the baseline")
			continue
		}
		delete(before, label)
		is := now.Backends[i]
		d.Notes = append(d.Notes, versions(label, was, is)...)
		d.figures(label, was, is)
		d.outcomes(label, was, is)
	}
	for _, label := range slices.Sorted(maps.Keys(before)) {
		d.Changes = append(d.Changes, Change{Backend: label, What: "all", Before: "measured", Now: "not measured", Worse: true})
	}
	return d, nil
}

// Regressions returns how many changes are for the worse.
func (d *Diff) Regressions() int {
	n := 0
	for _, c := range d.Changes {
		if c.Worse {
			n++
		}
	}
	return n
}

// figures compares the series of one backend. Figures of the new run alone are no
// change: there is nothing to compare them with.
func (d *Diff) figures(label string, was, is *Backend) {
	both := &Report{Backends: []*Backend{was, is}}
	for _, f := range both.figures() {
		a, b := was.Figures[f], is.Figures[f]
		in := infoOf(f)
		switch {
		case len(a) == 0:
			continue
		case len(b) == 0:
			d.Changes = append(d.Changes, Change{Backend: label, What: clean(in.full()), Before: figureText(a, in), Now: "not measured", Worse: true})
			continue
		case len(a) < MinRounds || len(b) < MinRounds:
			d.Unjudged++
			continue
		}
		d.Judged++
		if !apart(a, b, d.tolerance) {
			continue
		}
		m, _ := a.Median()
		n, _ := b.Median()
		c := Change{Backend: label, What: clean(in.full()), Before: figureText(a, in), Now: figureText(b, in), Worse: (n > m) == in.lower}
		if m > 0 {
			c.Ratio = n / m
		}
		if f == BareRate { // there is no lock in them
			d.Notes = append(d.Notes, "the machine or the server is not as it was: "+c.sentence())
			continue
		}
		d.Changes = append(d.Changes, c)
	}
}

// figureText is a median with the spread that it is judged by.
func figureText(s Series, in figureInfo) string {
	m, _ := s.Median()
	return strings.TrimSpace(quantity(m, in.unit) + " " + spread(s))
}

// outcomes compares verdicts, and what failed. Not to be measured any more is worse
// than any verdict but "bad": a hazard that nobody looks at proves nothing.
func (d *Diff) outcomes(label string, was, is *Backend) {
	both := &Report{Backends: []*Backend{was, is}}
	for _, h := range both.hazards() {
		a, ok := was.Safety[h]
		b, still := is.Safety[h]
		if !still {
			b = Outcome{Verdict: Unmeasured, Text: "not measured"}
		}
		if !ok || a.Verdict == b.Verdict || a.Verdict == Unmeasured && b.Verdict != Bad {
			continue
		}
		d.Changes = append(d.Changes, Change{Backend: label, What: hazardOf(h).title, Before: clean(a.Text), Now: clean(b.Text),
			Worse: rank(b.Verdict) > rank(a.Verdict)})
	}
	for _, id := range slices.Sorted(maps.Keys(is.Failed)) {
		if was.Failed[id] == "" {
			d.Changes = append(d.Changes, Change{Backend: label, What: workloadTitle(id), Before: "worked", Now: "failed: " + clean(is.Failed[id]), Worse: true})
		}
	}
}

// rank orders verdicts, best first.
func rank(v Verdict) int { return slices.Index([]Verdict{Good, Caution, Unmeasured, Bad}, v) }

// surroundings says what differs around the two runs.
func surroundings(old, now *Report) []string {
	var notes []string
	a, b := old.Machine, now.Machine
	for _, pair := range [][3]string{
		{"system", a.OS + "/" + a.Arch, b.OS + "/" + b.Arch},
		{"CPUs", fmt.Sprint(a.CPUs), fmt.Sprint(b.CPUs)},
		{"processor", a.CPU, b.CPU},
		{"Go", a.Go, b.Go},
		{"distlock", a.Version, b.Version},
	} {
		if pair[1] != pair[2] {
			notes = append(notes, clean(fmt.Sprintf("%s: %s in the baseline, %s now", pair[0], orNone(pair[1]), orNone(pair[2]))))
		}
	}
	if old.Interrupted {
		notes = append(notes, "the baseline was interrupted")
	}
	if now.Interrupted {
		notes = append(notes, "this run was interrupted")
	}
	return notes
}

func versions(label string, was, is *Backend) []string {
	var notes []string
	if was.Version != is.Version {
		notes = append(notes, clean(fmt.Sprintf("%s: version %s in the baseline, %s now", label, orNone(was.Version), orNone(is.Version))))
	}
	if was.Origin != is.Origin {
		notes = append(notes, clean(fmt.Sprintf("%s: %s in the baseline, %s now", label, orNone(was.Origin), orNone(is.Origin))))
	}
	return notes
}
