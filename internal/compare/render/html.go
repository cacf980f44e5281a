package render

import (
	"bytes"
	"cmp"
	_ "embed" // the page and what it draws with
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/distlock-go/distlock/internal/compare/report"
)

//go:embed html/report.html
var pageText string

//go:embed html/report.css
var pageStyle string

//go:embed html/report.js
var pageScript string

//go:embed html/echarts/echarts.common.min.js
var chartLibrary string

// pageTemplate escapes the words of servers and URLs by where they stand: in a text, an
// attribute, or the JSON for the charts. It is made when it is asked for: no other command has to wait for it.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{"colour": colourOf}).Parse(pageText))
})

// colours is how many the style sheet has. More backends than that share them; marks
// and names tell them apart.
const colours = 8

func colourOf(i int) string { return "s" + strconv.Itoa(i%colours) }

// page is what the template shows.
type page struct {
	Style   template.CSS
	Library template.JS
	Script  template.JS

	Schema    int
	Labels    []string
	When      string
	Machine   string
	Rounds    string
	Warnings  []string
	Calm      string
	Compared  string
	Nav       []pageLink
	Summaries []pageSummary
	Tables    []pageTable
	Groups    []chartGroup
	Notes     []note
	Data      []chart
}

type pageLink struct{ ID, Title string }

type pageTable struct {
	table
	ID string
}

type pageSummary struct {
	summary
	Origin string
	Colour string
}

// Sign is the mark of a cell, and never empty.
func (c tableCell) Sign() string { return cmp.Or(c.Mark(), "?") }

// Mark is the sign before a statement.
func (s statement) Mark() string { return tableCell{Verdict: s.Verdict}.Sign() }

// HTML writes one page that loads nothing: tables that need no script, and
// charts that do.
func HTML(w io.Writer, rep *report.Report) error {
	r := doc{rep}
	p := page{
		Style: template.CSS(pageStyle), Library: template.JS(chartLibrary), Script: template.JS(pageScript), // ours, not a server's
		Schema: r.Schema, Labels: r.labels(),
		When:    r.Started.UTC().Format("2 January 2006, 15:04 UTC") + ", " + r.took(),
		Machine: r.machine(), Rounds: Plural(r.Params.Rounds, "round"),
		Warnings: r.warnings(), Calm: r.calm(), Compared: r.compared(), Notes: r.notes(),
		Groups: r.chartGroups(),
	}
	for _, s := range r.summaries() {
		b := r.Backends[s.Index]
		origin := strings.Join(slices.DeleteFunc([]string{clean(b.Version), clean(b.Origin)}, func(s string) bool { return s == "" }), ", ")
		p.Summaries = append(p.Summaries, pageSummary{s.once(), origin, colourOf(s.Index)})
	}
	p.Nav = append(p.Nav, pageLink{"summary", "In short"})
	for i, t := range r.tables() {
		p.Tables = append(p.Tables, pageTable{t, fmt.Sprintf("table-%d", i)})
		p.Nav = append(p.Nav, pageLink{fmt.Sprintf("table-%d", i), t.Title})
	}
	for _, g := range p.Groups {
		p.Nav = append(p.Nav, pageLink{g.ID, g.Title})
		p.Data = append(p.Data, g.Charts...)
	}
	p.Nav = append(p.Nav, pageLink{"method", "How it was measured"})
	var b bytes.Buffer
	if err := pageTemplate().Execute(&b, p); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// once leaves out a reason that the statement before has given already.
func (s summary) once() summary {
	for _, list := range []*[]statement{&s.Best, &s.Watch} {
		*list = slices.Clone(*list)
		for i := len(*list) - 1; i > 0; i-- {
			if (*list)[i].Why == (*list)[i-1].Why {
				(*list)[i].Why = ""
			}
		}
	}
	return s
}

// calm says that the worst has not happened, if that was looked for on every backend.
func (r doc) calm() string {
	for _, b := range r.Backends {
		if b.Safety[report.DoubleGrants].Verdict != report.Good {
			return ""
		}
	}
	if len(r.Backends) == 0 || len(r.warnings()) > 0 {
		return ""
	}
	return "No backend let two hold a name at once, and nothing failed."
}

// Plural is a count with what is counted.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
