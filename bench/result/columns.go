package result

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// column is a figure as a table shows it.
type column struct {
	figure Figure
	title  string
}

// columns of the rows, by what their names begin with. The first one is what the
// contenders are compared by.
var columns = map[string][]column{
	"requests": {{Known, "requests, known name"}, {New, "new name"}},
	"solo":     {{Rate, "lock+unlock/s"}, {Work, clientCPU}, {Busy, serverCPU}},
	"parallel": {{Rate, "lock+unlock/s"}, {Work, clientCPU}, {Busy, serverCPU}},
	"hot":      {{Rate, "lock+unlock/s"}, {Jain, "Jain"}, {P50, "wait p50 ms"}, {P99, "p99 ms"}, {Worst, "longest ms"}, {Work, clientCPU}, {Busy, serverCPU}},
	"handoff":  {{P50, "p50 ms"}, {P99, "p99 ms"}, {Worst, "longest ms"}, {Work, clientCPU}, {Busy, serverCPU}},
	"waiting":  {{All, "requests/s"}, {Each, "per waiter"}, {Total, "requests to come"}},
	"waiters":  {{Took, "seconds for all"}, {Serve, "served"}, {Moved, "places late"}},
	"held":     heldColumns,
	"minute":   heldColumns,
}

const (
	clientCPU = "client CPU µs each"
	serverCPU = "server CPU µs each"
)

var heldColumns = []column{
	{All, "requests/s"}, {Bytes, "bytes each"}, {Gos, "goroutines each"}, {CPU, "CPUs of the client"},
	{Lost, "lost"}, {Count, "locks"}, {Held, "held for s"},
}

// columnsOf returns the columns of a row.
func columnsOf(row string) []column { return columns[strings.TrimRight(row, "0123456789")] }

// number writes v with three significant digits, and thousands with commas.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a == 0:
		return "0"
	case a < 0.0005:
		return "0.000"
	case a < 0.9995:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	text := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if v < 0 {
		return "-" + text
	}
	return text
}

// spread writes the median of a series and, of several rounds, its spread.
func spread(s Series) string {
	m := number(s.Median())
	if s.Rounds() < 2 || s.Median() == 0 {
		return m
	}
	if s.Spread() >= 10 {
		return m + " ±>999%" // of a longest wait, say: how much more says nothing
	}
	return fmt.Sprintf("%s ±%.0f%%", m, 100*s.Spread())
}

// ratio writes the median of a series of ratios and its range.
func ratio(s Series) string {
	if s.Rounds() == 0 {
		return "–"
	}
	if s.Rounds() == 1 {
		return number(s.Median())
	}
	low, high := s.Range()
	return fmt.Sprintf("%s (%s–%s)", number(s.Median()), number(low), number(high))
}
