package main

import (
	"bytes"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// The colours are Okabe and Ito's, which colour-blind readers can tell apart.
var (
	inks = []color.Color{color.NRGBA{213, 94, 0, 255}, color.NRGBA{0, 114, 178, 255}, color.NRGBA{0, 158, 115, 255}, color.NRGBA{204, 121, 167, 255}, color.NRGBA{86, 180, 233, 255}}
	grey = color.Gray{150}
)

// room is what a label leaves for fonts that are wider than the one it was measured with. A drawing keeps spaces that do not break.
const room = "\u00a0\u00a0\u00a0\u00a0\u00a0\u00a0"

// newPlot is what both figures have in common.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	for _, s := range []*text.Style{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		s.Font = sans
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Legend.Top = true
	return p
}

// svg returns the drawing.
func svg(p *plot.Plot, width, height vg.Length) ([]byte, error) {
	w, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = w.WriteTo(&b)
	return b.Bytes(), err
}

// drawHandOff shows for each library how long a hand-off takes: its median, and how long one in a hundred takes or
// longer. Ours are in colour.
func (r *results) drawHandOff() ([]byte, error) {
	p := newPlot("milliseconds from Unlock to the grant: filled half of them, hollow 99 of 100", "")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	var names []string
	r.each(func(st *measured, b *report.Backend) {
		half, ok := median(b, report.HandOff50)
		most, both := median(b, report.HandOff99)
		if !ok || !both || st.ID == noFlushID {
			return
		}
		names = append(names, st.Title+": "+b.Name)
		var ink color.Color = grey
		if b.Name == ours {
			ink = inks[0]
		}
		y := -float64(len(names)) // the first is on top
		line := &plotter.Line{XYs: plotter.XYs{{X: half, Y: y}, {X: most, Y: y}}, LineStyle: draw.LineStyle{Color: ink, Width: vg.Points(1.5)}}
		filled := &plotter.Scatter{XYs: plotter.XYs{{X: half, Y: y}}, GlyphStyle: draw.GlyphStyle{Color: ink, Radius: vg.Points(4), Shape: draw.CircleGlyph{}}}
		hollow := &plotter.Scatter{XYs: plotter.XYs{{X: most, Y: y}}, GlyphStyle: draw.GlyphStyle{Color: ink, Radius: vg.Points(4), Shape: draw.RingGlyph{}}}
		p.Add(line, filled, hollow)
	})
	slices.Reverse(names)
	ticks := make([]plot.Tick, len(names))
	for i, name := range names {
		ticks[i] = plot.Tick{Value: float64(i - len(names)), Label: name + room}
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Min, p.Y.Max = -float64(len(names))-.5, -.5
	p.Add(plotter.NewGrid())
	return svg(p, 720, vg.Length(60+20*len(names)))
}

// drawClients shows how many pairs a second clients on one name do, by their number.
func (r *results) drawClients() ([]byte, error) {
	p := newPlot("clients on one name", "pairs a second (dashed: least round)")
	p.X.Scale, p.X.Min, p.X.Max = plot.LogScale{}, 2, 64
	var ticks []plot.Tick
	for _, n := range crowds {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: number(float64(n))})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	for i, st := range r.Stores {
		var middle, least plotter.XYs
		for _, n := range crowds {
			if c := st.crowdOf(ours, n); len(c.Rate) > 0 {
				m, _ := c.Rate.Median()
				middle = append(middle, plotter.XY{X: float64(n), Y: m})
				least = append(least, plotter.XY{X: float64(n), Y: slices.Min(c.Rate)})
			}
		}
		if len(middle) == 0 {
			continue
		}
		style := draw.LineStyle{Color: inks[i%len(inks)], Width: vg.Points(2)}
		solid := &plotter.Line{XYs: middle, LineStyle: style}
		style.Dashes, style.Width = []vg.Length{vg.Points(4), vg.Points(3)}, vg.Points(1)
		p.Add(solid, &plotter.Line{XYs: least, LineStyle: style})
		p.Legend.Add(st.Title, solid)
	}
	return svg(p, 720, 360)
}
