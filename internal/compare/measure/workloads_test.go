package measure

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestDurations(t *testing.T) {
	var d durations
	for i := 1; i <= 1000; i++ {
		d.add(time.Duration(i) * time.Millisecond)
	}
	for pct, want := range map[float64]float64{1: 10, 50: 500, 99: 990, 99.9: 999, 100: 1000} {
		if got := ms(d.percentile(pct)); math.Abs(got-want) > want/100 {
			t.Errorf("percentile %v: %v ms, want %v", pct, got, want)
		}
	}
	if got := d.percentile(100); got != time.Second {
		t.Errorf("the longest is %v, want exactly 1s", got)
	}
	var one durations
	one.add(0)
	one.add(2 * time.Hour)
	if one.percentile(1) > time.Nanosecond || one.percentile(100) != 2*time.Hour {
		t.Errorf("out of range: %v, %v", one.percentile(1), one.percentile(100))
	}
	if out := d.distribution(); len(out.MS) != len(out.Percentiles) || out.Count != 1000 {
		t.Errorf("distribution: %+v", out)
	}
}

func TestDisorder(t *testing.T) {
	for _, c := range []struct {
		order []int
		want  float64
	}{{[]int{0, 1, 2, 3}, 0}, {[]int{1, 0, 2, 3}, 0.25}, {[]int{3, 0, 1, 2}, 0.25}, {[]int{3, 2, 1, 0}, 0.75}} {
		if got := (&grantOrder{order: c.order}).disorder(); got != c.want {
			t.Errorf("%v: %v, want %v", c.order, got, c.want)
		}
	}
}

// TestTogetherCountsWhatHasEnded: many that take turns have no more of them a second than one.
func TestTogetherCountsWhatHasEnded(t *testing.T) {
	for _, n := range []int{1, 16, 64} {
		synctest.Test(t, func(t *testing.T) {
			name := make(chan struct{}, 1)
			rates, err := new(bench).together(t.Context(), n, time.Second, func(int) error {
				name <- struct{}{}
				time.Sleep(100 * time.Millisecond)
				<-name
				return nil
			})
			if got := sum(rates); err != nil || len(rates) != n || math.Abs(got-10) > .001 {
				t.Errorf("%d at a time: %v turns a second, %v; want 10", n, got, err)
			}
		})
	}
}
