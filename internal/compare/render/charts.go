package render

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// chartGroup is a section of charts.
type chartGroup struct {
	ID, Title, Lead string
	Charts          []chart
}

// chart is what the script draws one chart from. What JSON leaves out is written by
// the template.
type chart struct {
	ID     string        `json:"id"`
	Kind   string        `json:"kind"` // "strip": a line for each backend; "percentiles"; "curve"
	Unit   string        `json:"unit"`
	X      string        `json:"x"`
	Y      string        `json:"y"`
	LogX   bool          `json:"logX"`
	LogY   bool          `json:"logY"`
	From0  bool          `json:"from0"`
	Max    float64       `json:"max,omitempty"`   // of the values' axis, 0 for as it comes
	Span   []float64     `json:"span,omitempty"`  // the least and the most that the axis has to show, if more than its own
	Ticks  []string      `json:"ticks,omitempty"` // of the x axis, for "percentiles"
	Series []chartSeries `json:"series"`

	Title string   `json:"-"`
	Note  string   `json:"-"`
	Gaps  []string `json:"-"` // the missing backends, and why
	Table table    `json:"-"`

	workload string // of a distribution
}

// Legend reports whether lines need names; a strip has them on its axis.
func (c chart) Legend() bool { return c.Kind != "strip" }

type chartSeries struct {
	Backend int          `json:"backend"` // picks colour and mark
	Name    string       `json:"name"`
	Points  [][2]float64 `json:"points,omitempty"`
	Values  []float64    `json:"values,omitempty"`
	Median  float64      `json:"median,omitempty"`
	Text    string       `json:"text,omitempty"` // the median in words
	Bad     bool         `json:"bad,omitempty"`  // the contract was broken
}

// chartGroups returns the charts that there are data for, by what they are about.
func (r doc) chartGroups() []chartGroup {
	all := []chartGroup{
		{ID: "throughput", Title: "Throughput", Lead: "Lock and unlock, counted as one. A dot is a round, the bar the median."},
		{ID: "latency", Title: "Latency", Lead: "How long it took in how many per cent of the cases, over all rounds. The right end is what the unlucky ones wait."},
		{ID: "handoff", Title: "Hand-off", Lead: "From the call to Unlock to the return of the Lock that waits for it in another client."},
		{ID: "fairness", Title: "Fairness", Lead: "How the clients that fight for one name share it."},
		{ID: "recovery", Title: "When things go wrong", Lead: "A dot is one repetition, the bar the median.", Charts: r.hazardCharts()},
		{ID: "scaling", Title: "Scaling", Lead: "Medians over the rounds.", Charts: r.curveCharts()},
		{ID: "load", Title: "Many locks, many waiters", Lead: "A dot is a round, the bar the median."},
		{ID: "cost", Title: "Processors", Lead: "What one lock and unlock costs. A dot is a round, the bar the median."},
		{ID: "more", Title: "More figures", Lead: "A dot is a round, the bar the median."},
	}
	at := func(id string) *chartGroup {
		return &all[slices.IndexFunc(all, func(g chartGroup) bool { return g.ID == id })]
	}
	for _, c := range r.distributionCharts() {
		group := at("latency")
		if c.workload == "handoff" {
			group = at("handoff")
		}
		group.Charts = append(group.Charts, c)
	}
	for _, f := range r.figures() {
		if c, ok := r.figureChart(f); ok {
			group := at(groupOf(f))
			group.Charts = append(group.Charts, c)
		}
	}
	for i, g := range all {
		if slices.Contains([]string{"throughput", "latency", "handoff", "cost"}, g.ID) {
			level(all[i].Charts)
		}
		for k := range g.Charts {
			if c := &all[i].Charts[k]; c.Kind == "strip" && c.LogX {
				c.Note = strings.TrimSpace(c.Note + " Logarithmic.")
			}
		}
	}
	return slices.DeleteFunc(all, func(g chartGroup) bool { return len(g.Charts) == 0 })
}

// level gives charts that have a unit in common one scale, so that they can be read side by side.
func level(charts []chart) {
	byUnit := make(map[string][]float64)
	for _, c := range charts {
		byUnit[c.Unit] = append(byUnit[c.Unit], c.values()...)
	}
	for i := range charts {
		c, values := &charts[i], byUnit[charts[i].Unit]
		if c.Max > 0 || len(values) == 0 {
			continue
		}
		c.Span = []float64{slices.Min(values), slices.Max(values)}
		c.LogX = c.Kind == "strip" && wide(values)
	}
}

// groupOf returns the group of a figure's chart.
func groupOf(f report.Figure) string {
	workload, _, _ := strings.Cut(string(f), "_")
	switch {
	case strings.HasSuffix(string(f), "_us"):
		return "cost"
	case f == report.HotJain || f == report.HotWorst:
		return "fairness"
	case slices.Contains([]string{"bare", "solo", "parallel", "hot"}, workload):
		return "throughput"
	case workload == "handoff":
		return "handoff"
	case workload == "failover":
		return "recovery"
	case slices.Contains([]string{"waiting", "try", "arrivals", "held"}, workload):
		return "load"
	}
	return "more"
}

// chartID makes an identifier of what may be any text.
func chartID(kind string, i int) string { return kind + "-" + strconv.Itoa(i) }

func (r doc) figureChart(f report.Figure) (chart, bool) {
	in := infoOf(f)
	c := chart{ID: chartID("figure", slices.Index(r.figures(), f)), Kind: "strip", Unit: in.unit,
		Title: upper(clean(in.full())), Note: better(in), From0: true}
	if f == report.HotJain {
		c.Max, c.Note = 1, "1 is an even share, 1/n means that one client got everything."
	}
	if f == report.BareRate {
		c.Note = "The store's own two commands: the least that a lock which is an entry in it sends."
	}
	r.strip(&c, in, func(b *report.Backend) (report.Series, string) { return b.Figures[f], whyNot(b, f) })
	c.LogX = c.Max == 0 && wide(c.values())
	return c, c.shown()
}

// whyNot says why a backend has no such figure.
func whyNot(b *report.Backend, f report.Figure) string {
	for _, id := range slices.Sorted(maps.Keys(b.Failed)) {
		if strings.HasPrefix(string(f), id) {
			return "failed: " + clean(b.Failed[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.Unmeasured)) {
		if strings.HasPrefix(string(f), id) {
			return "not measured: " + clean(b.Unmeasured[id])
		}
	}
	if inProcess(b) {
		return "no store, so nothing to measure"
	}
	return "not measured"
}

// values returns those of all series.
func (c chart) values() []float64 {
	var all []float64
	for _, s := range c.Series {
		all = append(all, s.Values...)
		for _, p := range s.Points {
			all = append(all, p[1])
		}
	}
	return all
}

// shown reports whether there is something to see: nothing but zeros is said in a
// table.
func (c chart) shown() bool {
	return slices.ContainsFunc(c.values(), func(v float64) bool { return v != 0 })
}

// better says whether a higher or a lower figure is good.
func better(in figureInfo) string {
	switch {
	case !slices.Contains(figureInfos, in):
		return "" // nobody here knows
	case in.lower:
		return "Less is better."
	}
	return "More is better."
}

// strip fills a chart with one line for each backend. A backend without values is named
// below the chart, with the reason.
func (r doc) strip(c *chart, in figureInfo, values func(*report.Backend) (report.Series, string)) {
	c.Table = table{Columns: []string{"median", "each"}}
	for i, label := range r.labels() {
		s, reason := values(r.Backends[i])
		s = slices.DeleteFunc(slices.Clone(s), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
		m, ok := s.Median()
		if !ok {
			c.Gaps = append(c.Gaps, label+": "+reason)
			continue
		}
		c.Series = append(c.Series, chartSeries{Backend: i, Name: label, Values: s, Median: m, Text: quantity(m, in.unit)})
		var each []string
		for _, v := range s {
			each = append(each, number(v))
		}
		c.Table.Rows = append(c.Table.Rows, tableRow{Head: label, Cells: []tableCell{{Text: quantity(m, in.unit)}, {Text: strings.Join(each, ", ")}}})
	}
}

func (r doc) hazardCharts() []chart {
	var charts []chart
	for k, h := range r.hazards() {
		in := figureInfo{title: hazardOf(h).title, lower: true}
		c := chart{ID: chartID("hazard", k), Kind: "strip", Title: upper(clean(in.title)), From0: true}
		for _, b := range r.Backends {
			if o := b.Safety[h]; len(o.Values) > 0 {
				in.unit = clean(o.Unit)
			}
		}
		c.Unit, c.Note = in.unit, hazardOf(h).axis
		r.strip(&c, in, func(b *report.Backend) (report.Series, string) {
			if o, ok := b.Safety[h]; ok {
				return o.Values, clean(o.Text)
			}
			return nil, "not measured"
		})
		for k := range c.Series {
			c.Series[k].Bad = r.Backends[c.Series[k].Backend].Safety[h].Verdict == report.Bad
		}
		if c.shown() {
			charts = append(charts, c)
		}
	}
	return charts
}

func (r doc) distributionCharts() []chart {
	var charts []chart
	all := perBackend(r, func(b *report.Backend) map[string]report.Distribution { return b.Distributions })
	for k, id := range inOrder(report.WorkloadIDs(), all) {
		c := chart{workload: id, ID: chartID("latency", k), Kind: "percentiles", Unit: "ms", X: "per cent of the cases", Y: "ms", LogY: true,
			Title: upper(workloadTitle(id)), Note: "Less is better. Logarithmic.", Table: table{Columns: r.labels()}}
		var percents []float64
		for _, d := range all {
			percents = append(percents, d[id].Percentiles...)
		}
		slices.Sort(percents)
		percents = slices.Compact(percents)
		for _, p := range percents {
			c.Ticks = append(c.Ticks, percentText(p))
			c.Table.Rows = append(c.Table.Rows, tableRow{Head: percentText(p)})
		}
		count := tableRow{Head: "cases"}
		for i, label := range r.labels() {
			d := all[i][id]
			s := chartSeries{Backend: i, Name: label}
			count.Cells = append(count.Cells, tableCell{Text: thousands(float64(d.Count))})
			for row, p := range percents {
				cell := tableCell{Text: "–"}
				if at := slices.Index(d.Percentiles, p); at >= 0 && at < len(d.MS) && d.MS[at] > 0 {
					s.Points = append(s.Points, [2]float64{float64(row), d.MS[at]})
					cell.Text = quantity(d.MS[at], "ms")
				}
				c.Table.Rows[row].Cells = append(c.Table.Rows[row].Cells, cell)
			}
			if len(s.Points) == 0 {
				c.Gaps = append(c.Gaps, label+": not measured")
				continue
			}
			c.Series = append(c.Series, s)
		}
		c.Table.Rows = append(c.Table.Rows, count)
		if len(c.Series) > 0 {
			charts = append(charts, c)
		}
	}
	return charts
}

func percentText(p float64) string {
	if p >= 100 {
		return "max"
	}
	return strconv.FormatFloat(p, 'g', -1, 64) + "%"
}

func (r doc) curveCharts() []chart {
	var charts []chart
	all := perBackend(r, func(b *report.Backend) map[string]report.Curve { return b.Curves })
	for k, id := range inOrder(nil, all) {
		c := chart{ID: chartID("curve", k), Kind: "curve", Table: table{Columns: r.labels()}}
		var xs, ys []float64
		for i, label := range r.labels() {
			curve, s := all[i][id], chartSeries{Backend: i, Name: label}
			for _, p := range curve.Points {
				if !math.IsNaN(p.Y) && !math.IsInf(p.Y, 0) {
					xs, ys, s.Points = append(xs, p.X), append(ys, p.Y), append(s.Points, [2]float64{p.X, p.Y})
				}
			}
			if len(s.Points) == 0 {
				c.Gaps = append(c.Gaps, label+": not measured")
				continue
			}
			c.X, c.Y = clean(curve.X), clean(curve.Y)
			c.Series = append(c.Series, s)
		}
		if len(c.Series) == 0 {
			continue
		}
		c.Title = upper(c.Y)
		c.LogX, c.LogY = wide(xs), wide(ys)
		c.Note = "By " + c.X + map[bool]string{true: ". Logarithmic.", false: "."}[c.LogY]
		slices.Sort(xs)
		for _, x := range slices.Compact(xs) {
			row := tableRow{Head: number(x)}
			for i := range r.Backends {
				row.Cells = append(row.Cells, tableCell{Text: at(all[i][id], x)})
			}
			c.Table.Rows = append(c.Table.Rows, row)
		}
		charts = append(charts, c)
	}
	return charts
}

// at returns the value at x in words.
func at(c report.Curve, x float64) string {
	for _, p := range c.Points {
		if p.X == x {
			return number(p.Y)
		}
	}
	return "–"
}

// wide reports whether values are all above zero and span more than a decade, so
// that a linear scale would hide the small ones.
func wide(values []float64) bool {
	return len(values) > 0 && slices.Min(values) > 0 && slices.Max(values)/slices.Min(values) > 10
}
