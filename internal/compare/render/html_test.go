package render

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// The library is the file that npm has, and its licence is beside it.
func TestLibrary(t *testing.T) {
	const want = "61f13280aba3161f77fc801bf5f9c786f55f10432153a0683fc5cc0700b013d5"
	if sum := sha256.Sum256([]byte(chartLibrary)); hex.EncodeToString(sum[:]) != want {
		t.Errorf("the library was changed: its SHA-256 is %x", sum)
	}
	if strings.Contains(strings.ToLower(chartLibrary), "</script") {
		t.Error("the library would end its script element")
	}
	for _, file := range []string{"LICENSE", "NOTICE", "LICENSE-d3", "README.md"} {
		text, err := os.ReadFile("html/echarts/" + file)
		if err != nil || len(text) == 0 {
			t.Errorf("%s: %v", file, err)
		}
		if file == "README.md" && !strings.Contains(string(text), want) {
			t.Error("the README tells of another file")
		}
	}
}

// The page says the same without colours, or without a script.
func TestHTMLWithoutScript(t *testing.T) {
	text := written(t, HTML, broken())
	for _, want := range []string{
		`<td data-backend="redis" class="bad">`, `<span class="hidden">bad: </span>3 overlaps in 120,000 holds`,
		`<td data-backend="memory" class="unmeasured">`, `not measured: there is no server`,
		`mysql: failed: server has gone away`, // below the chart that it is missing from
		`<summary>The figures as a table</summary>`, `<noscript>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

// No chart without data, no data without a chart.
func TestChartGroups(t *testing.T) {
	seen := make(map[string]bool)
	for _, g := range (doc{fixture()}).chartGroups() {
		for _, c := range g.Charts {
			if seen[c.ID] {
				t.Errorf("two charts are called %s", c.ID)
			}
			seen[c.ID] = true
			if len(c.Series) == 0 || c.Title == "" || len(c.Table.Rows) == 0 {
				t.Errorf("%s is empty: %+v", c.ID, c)
			}
			for _, s := range c.Series {
				if len(s.Values)+len(s.Points) == 0 {
					t.Errorf("%s has nothing of %s", c.ID, s.Name)
				}
			}
		}
	}
	if n := len((doc{&report.Report{}}).chartGroups()); n != 0 {
		t.Errorf("%d groups of nothing", n)
	}
	odd := &report.Report{Backends: []*report.Backend{{
		Distributions: map[string]report.Distribution{"a": {Percentiles: []float64{50, 99}, MS: []float64{1}}, "b": {Percentiles: []float64{50}}},
		Curves:        map[string]report.Curve{"c": {}},
	}}}
	if groups := (doc{odd}).chartGroups(); len(groups) != 1 || len(groups[0].Charts) != 1 {
		t.Errorf("of one distribution with one value: %+v", groups)
	}
}
