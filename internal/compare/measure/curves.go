package measure

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// curve collects the values of each point, one a round.
type curve struct {
	x, y   string
	points map[float64]report.Series
}

func (c *curve) medians() report.Curve {
	out := report.Curve{X: c.x, Y: c.y}
	for _, x := range slices.Sorted(maps.Keys(c.points)) {
		y, _ := c.points[x].Median() // a point has values
		out.Points = append(out.Points, report.Point{X: x, Y: y})
	}
	return out
}

// point adds a value to a curve, unless this is the warm-up.
func (b *bench) point(id, xTitle, yTitle string, x int, y float64) {
	if !b.recording {
		return
	}
	c := b.curves[id]
	if c == nil {
		c = &curve{xTitle, yTitle, make(map[float64]report.Series)}
		b.curves[id] = c
	}
	c.points[float64(x)] = append(c.points[float64(x)], y)
}

func (b *bench) hotPoint(clients int, rate float64) {
	b.point("hot_by_clients", "clients on one name", "lock+unlock per second", clients, rate)
}

func (b *bench) parallelPoint(names int, rate float64) {
	b.point("parallel_by_names", "names in parallel", "lock+unlock per second", names, rate)
}

// scale returns first, first·factor and so on, below limit.
func scale(first, factor, limit int) []int {
	var xs []int
	for x := first; x < limit; x *= factor {
		xs = append(xs, x)
	}
	return xs
}

// curvePart is how long a point takes: it is one of several, and the shape counts,
// not the last per cent.
func curvePart(p report.Params) report.Params {
	p.Duration = max(p.Duration/4, 50*time.Millisecond)
	return p
}

// The workloads hot and parallel add the last points.
func clientScale(p report.Params) []int { return scale(1, 2, p.Clients) }
func nameScale(p report.Params) []int   { return scale(1, 8, p.Names) }

func hotByClientsTakes(p report.Params) time.Duration {
	var sum time.Duration
	for _, n := range clientScale(p) {
		part := curvePart(p)
		part.Clients = n
		sum += queued(part)
	}
	return sum
}

// hotByClients shows what more contenders for a name cost.
func hotByClients(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	for _, n := range clientScale(p) {
		rates, _, err := fight(ctx, b, curvePart(p), n, func(time.Duration) {})
		if err != nil {
			return nil, err
		}
		b.hotPoint(n, sum(rates))
	}
	return nil, nil
}

func parallelByNamesTakes(p report.Params) time.Duration {
	return time.Duration(len(nameScale(p))) * plain(curvePart(p))
}

// parallelByNames shows how far the work of one Locker goes on at the same time.
func parallelByNames(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	for _, n := range nameScale(p) {
		rate, err := parallelRate(ctx, b, curvePart(p), n)
		if err != nil {
			return nil, err
		}
		b.parallelPoint(n, rate)
	}
	return nil, nil
}
