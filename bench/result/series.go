package result

import (
	"math"
	"slices"
)

// Series is one value for each round, in the order of the rounds. NaN stands for
// a round in which nothing was measured, so that the rounds of two series match.
type Series []float64

// Median returns the middle of the values that are there, NaN if none is.
func (s Series) Median() float64 {
	v := s.sorted()
	switch n := len(v); {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}

// Range returns the extremes, NaN if there are no values.
func (s Series) Range() (low, high float64) {
	v := s.sorted()
	if len(v) == 0 {
		return math.NaN(), math.NaN()
	}
	return v[0], v[len(v)-1]
}

// Spread returns half of the distance between the extremes as a part of the
// median: 0.1 reads "give or take ten per cent".
func (s Series) Spread() float64 {
	low, high := s.Range()
	return (high - low) / 2 / s.Median()
}

// Rounds returns how many values there are.
func (s Series) Rounds() int { return len(s.sorted()) }

// By returns s divided by t, round by round: what two series that were taken in
// alternation say of each other, less what the machine did in between.
func (s Series) By(t Series) Series {
	ratio := make(Series, min(len(s), len(t)))
	for i := range ratio {
		ratio[i] = s[i] / t[i]
		if t[i] == 0 {
			ratio[i] = math.NaN()
		}
	}
	return ratio
}

func (s Series) sorted() []float64 {
	v := slices.DeleteFunc(slices.Clone(s), math.IsNaN)
	slices.Sort(v)
	return v
}

// Percentile returns the value that p per cent of the samples, which must be
// sorted, do not exceed (the nearest rank).
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// JainIndex is Jain's index of fairness: 1 if all have the same, 1/n if one has
// everything (Jain, Chiu, Hawe: DEC-TR-301, 1984).
func JainIndex(shares []float64) float64 {
	total, squares := 0.0, 0.0
	for _, s := range shares {
		total += s
		squares += s * s
	}
	if squares == 0 {
		return math.NaN()
	}
	return total * total / (float64(len(shares)) * squares)
}
