package report

import "slices"

// Series is one value for each round.
type Series []float64

// Median returns the middle value, and false if nothing was measured.
func (s Series) Median() (float64, bool) {
	if len(s) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid], true
	}
	return (sorted[mid-1] + sorted[mid]) / 2, true
}

// Spread returns half of the distance between the extremes, as a part of the
// median: 0.1 reads "give or take ten per cent".
func (s Series) Spread() float64 {
	m, ok := s.Median()
	if !ok || m == 0 {
		return 0
	}
	return (slices.Max(s) - slices.Min(s)) / 2 / m
}

// Ratio returns s by t, round by round: what two series taken in alternation say about
// each other, less what the machine did in between.
func (s Series) Ratio(t Series) Series {
	var r Series
	for i := range min(len(s), len(t)) {
		if t[i] != 0 {
			r = append(r, s[i]/t[i])
		}
	}
	return r
}
