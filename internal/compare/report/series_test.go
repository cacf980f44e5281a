package report

import (
	"math"
	"testing"
)

func TestSeries(t *testing.T) {
	if m, ok := (Series{3, 1, 2}).Median(); !ok || m != 2 {
		t.Errorf("median of three: %v", m)
	}
	if m, _ := (Series{4, 1, 2, 3}).Median(); m != 2.5 {
		t.Errorf("median of four: %v", m)
	}
	if _, ok := (Series{}).Median(); ok {
		t.Error("nothing has a median")
	}
	if s := (Series{8, 10, 12}).Spread(); math.Abs(s-0.2) > 1e-9 {
		t.Errorf("spread: %v", s)
	}
	if r := (Series{2, 9}).Ratio(Series{4, 0, 1}); len(r) != 1 || r[0] != 0.5 {
		t.Errorf("ratio: %v", r)
	}
}
