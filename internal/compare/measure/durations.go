package measure

import (
	"math"
	"sync"
	"time"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// durations collects how long the operations of one workload took, over all rounds. It
// keeps counts by size, in steps of one per cent: a million operations take no more
// memory than ten. It is safe for concurrent use.
type durations struct {
	mu       sync.Mutex
	buckets  [3000]int // 1 ns to an hour
	count    int
	min, max time.Duration
}

// perBucket is the logarithm of the ratio between neighbouring buckets.
var perBucket = math.Log(1.01)

func (d *durations) add(t time.Duration) {
	t = max(t, 1)
	i := min(int(math.Log(float64(t))/perBucket), len(d.buckets)-1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == 0 || t < d.min {
		d.min = t
	}
	d.max = max(d.max, t)
	d.buckets[i]++
	d.count++
}

// percentile returns the duration that pct per cent do not exceed, give or take half
// a per cent. The extremes are exact.
func (d *durations) percentile(pct float64) time.Duration {
	rank := int(math.Ceil(pct / 100 * float64(d.count)))
	if rank >= d.count {
		return d.max
	}
	seen := 0
	for i, n := range d.buckets {
		if seen += n; seen >= max(rank, 1) {
			mid := time.Duration(math.Exp((float64(i) + 0.5) * perBucket))
			return min(max(mid, d.min), d.max)
		}
	}
	return d.max
}

// percents are those that a Distribution has.
var percents = []float64{1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100}

func (d *durations) distribution() report.Distribution {
	out := report.Distribution{Percentiles: percents, Count: d.count}
	for _, p := range percents {
		out.MS = append(out.MS, ms(d.percentile(p)))
	}
	return out
}

// record returns where the durations of a workload go: in the warm-up nowhere.
func (b *bench) record(workload string) func(time.Duration) {
	if !b.recording {
		return func(time.Duration) {}
	}
	if b.durations[workload] == nil {
		b.durations[workload] = new(durations)
	}
	return b.durations[workload].add
}
