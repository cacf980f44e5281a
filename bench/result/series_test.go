package result

import (
	"math"
	"testing"
)

var nan = math.NaN()

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func TestSeries(t *testing.T) {
	for _, tc := range []struct {
		name                      string
		s                         Series
		median, low, high, spread float64
		rounds                    int
	}{
		{"none", nil, nan, nan, nan, nan, 0},
		{"nothing measured", Series{nan, nan}, nan, nan, nan, nan, 0},
		{"one", Series{4}, 4, 4, 4, 0, 1},
		{"odd, unsorted", Series{9, 1, 5}, 5, 1, 9, 0.8, 3},
		{"even", Series{4, 1, 2, 3}, 2.5, 1, 4, 0.6, 4},
		{"a round is missing", Series{nan, 3, 1}, 2, 1, 3, 0.5, 2},
	} {
		low, high := tc.s.Range()
		if !same(tc.s.Median(), tc.median) || !same(low, tc.low) || !same(high, tc.high) ||
			!same(tc.s.Spread(), tc.spread) || tc.s.Rounds() != tc.rounds {
			t.Errorf("%s: median %v, range %v to %v, spread %v, %d rounds", tc.name, tc.s.Median(), low, high, tc.s.Spread(), tc.s.Rounds())
		}
	}
}

// The ratio is one of rounds, not of medians: the machine was twice as fast in the
// second round, for both.
func TestRatioByRound(t *testing.T) {
	ours, theirs := Series{10, 40, nan, 7, 8}, Series{20, 80, 5, 0, nan}
	got := ours.By(theirs)
	want := Series{0.5, 0.5, nan, nan, nan}
	for i := range want {
		if !same(got[i], want[i]) {
			t.Errorf("round %d: %v, want %v", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d ratios, want %d", len(got), len(want))
	}
	if n := len(ours.By(Series{1, 2})); n != 2 {
		t.Errorf("%d ratios by two rounds, want 2", n)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, tc := range []struct {
		samples []float64
		p, want float64
	}{
		{nil, 50, nan},
		{[]float64{7}, 99, 7},
		{[]float64{1, 2, 3}, 50, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0, 1},
	} {
		if got := Percentile(tc.samples, tc.p); !same(got, tc.want) {
			t.Errorf("percentile %v of %d samples is %v, want %v", tc.p, len(tc.samples), got, tc.want)
		}
	}
}

func TestJainIndex(t *testing.T) {
	for _, tc := range []struct {
		shares []float64
		want   float64
	}{
		{nil, nan},
		{[]float64{0, 0}, nan},
		{[]float64{5, 5, 5, 5}, 1},
		{[]float64{8, 0, 0, 0}, 0.25},
		{[]float64{1, 3}, 0.8},
	} {
		if got := JainIndex(tc.shares); !same(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.shares, got, tc.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0001: "0.000", 0.25: "0.250", 0.9999: "1.00", 1.234: "1.23", 12.34: "12.3", 123.4: "123",
		1234.5: "1,234", 1234567: "1,234,567", -4321: "-4,321", -0.5: "-0.500",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	for want, s := range map[string]Series{"2.00 ±50%": {1, 2, 3}, "1.00 ±>999%": {1, 1, 900}, "5.00": {5}, "0": {0, 0}, "–": nil} {
		if got := spread(s); got != want {
			t.Errorf("%v is written %s, want %s", s, got, want)
		}
	}
	if got := number(nan); got != "–" {
		t.Errorf("nothing is written %s", got)
	}
}
