package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// written returns what a format makes of a report.
func written(t *testing.T, write func(io.Writer, *report.Report) error, r *report.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// formats of a report that people read.
func formats() map[string]func(io.Writer, *report.Report) error {
	return map[string]func(io.Writer, *report.Report) error{"text": plainText, "terminal": terminal, "markdown": Markdown, "html": HTML, "json": JSON}
}

func plainText(w io.Writer, r *report.Report) error { return Text(w, r, 0) }

func terminal(w io.Writer, r *report.Report) error { return Terminal(w, r, 0) }

// Every format shows every part of a report, and is the same each time.
func TestFormatsAreWhole(t *testing.T) {
	for name, write := range formats() {
		text := written(t, write, fixture())
		for range 3 { // maps have no order
			if again := written(t, write, fixture()); again != text {
				t.Errorf("%s differs from one time to the next", name)
			}
		}
		want := []string{"redis", "told 6.3", "one Lua", "local process mariadbd", "1.2.3"}
		switch name {
		case "json":
			want = append(want, `"cpu": "Fixture 3000"`, `"schema": 1`)
		default:
			want = append(want, "11,200", "Fixture 3000", "4m12s", "ttl 20s", "distlock compare", "there is no", "redis, mysql, zk, etcd", "does not wait for the disk")
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: %q is missing", name, w)
			}
		}
	}
}

// A report with nothing in it but names is one, too.
func TestFormatsOfNothing(t *testing.T) {
	for _, r := range []*report.Report{{}, {Backends: []*report.Backend{{Name: "a"}, {}}}, bareReport()} {
		for name, write := range formats() {
			if written(t, write, r) == "" {
				t.Errorf("%s: nothing was written", name)
			}
		}
	}
}

// What went wrong stands before anything else, in every format.
func TestWarningsComeFirst(t *testing.T) {
	r := broken()
	// In all formats alike, and what each of them begins with.
	begins := map[string]string{"text": "SAFETY", "terminal": "SAFETY", "markdown": "**Safety.**", "html": "<h2", "json": `"backends"`}
	for name, write := range formats() {
		head, _, found := strings.Cut(written(t, write, r), begins[name])
		if !found {
			t.Fatalf("%s has no %q", name, begins[name])
		}
		for _, want := range []string{"redis broke the contract: two holders at once", "interrupted", "mysql: hot FAILED", "etcd2 was not measured"} {
			if !strings.Contains(head, want) {
				t.Errorf("%s does not begin with %q", name, want)
			}
		}
	}
	if w := (doc{fixture()}.warnings()); len(w) > 0 {
		t.Errorf("warnings about nothing: %q", w)
	}
	if err := Err(r); err == nil || !strings.Contains(err.Error(), "two holders") || !strings.Contains(err.Error(), "failed on mysql") {
		t.Errorf("the error is %v", err)
	}
}

// What could not be removed is told first, and in the exit status, but is no workload.
func TestLeftBehindIsTold(t *testing.T) {
	r := fixture()
	r.Backends[3].Left = "could not remove the node /x: delete it by hand: no answer"
	if w := (doc{r}.warnings()); len(w) != 1 || w[0] != "zk: could not remove the node /x: delete it by hand: no answer" {
		t.Errorf("warnings: %q", w)
	}
	if err := Err(r); err == nil || err.Error() != "something is left on zk" {
		t.Errorf("the error is %v", err)
	}
}

// A hazard that could not be tried for want of a server is no failure. A failed trial is
// one.
func TestFailedHazardIsTold(t *testing.T) {
	r := fixture()
	r.Backends[3].Safety[report.Herd] = report.Outcome{Verdict: report.Unmeasured, Text: "not measured: failed", Detail: "no proxy"}
	if w := (doc{r}.warnings()); len(w) != 1 || !strings.Contains(w[0], "zk: herd at a release: not measured: failed: no proxy") {
		t.Errorf("warnings: %q", w)
	}
}

// No line of the text is wider than a terminal, however many backends there are and
// whatever they are called, and no control character gets through.
func TestTextWidth(t *testing.T) {
	many := broken()
	for range 3 {
		many.Backends = append(many.Backends, broken().Backends...)
	}
	for columns, limit := range map[int]int{0: textWidth, 10: minWidth, 80: 80, 132: 132, 500: maxWidth} {
		for _, r := range []*report.Report{fixture(), broken(), many, bareReport()} {
			var text, coloured bytes.Buffer
			if err := errors.Join(Text(&text, r, columns), Terminal(&coloured, r, columns)); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(text.String()) {
				line = strings.TrimSuffix(line, "\n")
				if n := width(line); n > limit {
					t.Errorf("%d columns where %d are allowed: %s", n, limit, line)
				}
				if i := strings.IndexFunc(line, unicode.IsControl); i >= 0 {
					t.Errorf("control character %q in: %s", line[i], line)
				}
			}
			if !strings.Contains(coloured.String(), "\x1b[") {
				t.Error("no colours on a terminal")
			}
			if regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(coloured.String(), "") != text.String() {
				t.Error("with colours the report says something else")
			}
		}
	}
	if red := "\x1b[1;31m✗ 3 overlaps"; !strings.Contains(written(t, terminal, broken()), red) {
		t.Errorf("a broken contract is not red")
	}
}

// Where there is no terminal, memory and five stores stand in one table, also with figures that are as long as they get.
func TestTextIsOneTable(t *testing.T) {
	r := fixture()
	r.Backends = append(r.Backends, &report.Backend{Name: "pg", URL: "postgres://h", Safety: r.Backends[1].Safety,
		Figures: map[report.Figure]report.Series{report.ParallelRate: {1000, 12345, 28900}}})
	for line := range strings.Lines(written(t, plainText, r)) {
		if strings.HasPrefix(line, "     ") && strings.Contains(line, " memory ") && !strings.Contains(line, " pg") { // the head of a table
			t.Errorf("a table without pg: %s", line)
		}
	}
}

// A row that continues one which is missing names it itself.
func TestRowsWithoutParent(t *testing.T) {
	r := of(report.HotJain, report.Series{1, 1, 1}, nil)
	for _, f := range []report.Figure{report.WaitDisorder, report.ClientCPU("solo"), report.ClientCPU("hot")} {
		r.Backends[0].Figures[f] = report.Series{1, 1, 1}
	}
	var heads []string
	for _, row := range (doc{r}).performanceTable().Rows {
		heads = append(heads, row.Head)
	}
	want := []string{"many clients, one name: Jain's index", "many waiting: share out of order", "client CPU each: one after the other", "… one name"}
	if !slices.Equal(heads, want) {
		t.Errorf("the rows are %q, want %q", heads, want)
	}
}

func TestMarkdownEscapes(t *testing.T) {
	text := written(t, Markdown, broken())
	for _, not := range []string{"<script", "<img", "\x1b"} {
		if strings.Contains(text, not) {
			t.Errorf("%q gets through", not)
		}
	}
	var columns []int
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			columns = nil
			continue
		}
		columns = append(columns, strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"))
		if columns[0] != columns[len(columns)-1] {
			t.Errorf("a row of a table has other columns: %s", line)
		}
	}
}

// JSON comes back as it was, and nothing but a report of this schema is read.
func TestJSON(t *testing.T) {
	r := broken()
	text := written(t, JSON, r)
	back, err := report.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := written(t, JSON, back); got != text {
		t.Errorf("it came back as %s", got)
	}
	for text, want := range map[string]string{
		"":                            "not a report",
		"[]":                          "not a report",
		"{}":                          "schema 0",
		`{"schema": 99}`:              "schema 99, this version reads 1",
		`{"schema": 1, "params": []}`: "not a report",
	} {
		if _, err := report.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if r, err := report.Read(strings.NewReader(`{"schema": 1, "backends": [null]}`)); err != nil || len(r.Backends) != 0 {
		t.Errorf("a null for a backend: %v, %v", r, err)
	}
}

// docs/reports/README.md names every field of the JSON form.
func TestSchemaIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reports/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "`schema`, now 1,") || report.Schema != 1 {
		t.Errorf("the page is about another schema than %d", report.Schema)
	}
	for _, name := range fieldNames(t, reflect.TypeFor[report.Report](), nil) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page does not name the field %s", name)
		}
	}
	for _, in := range figureInfos {
		if !strings.Contains(string(page), "`"+string(in.id)+"`") {
			t.Errorf("the page does not name the figure %s", in.id)
		}
	}
	for _, in := range hazardInfos {
		if !strings.Contains(string(page), "`"+string(in.id)+"`") {
			t.Errorf("the page does not name the hazard %s", in.id)
		}
	}
}

// fieldNames returns the JSON names of the fields of a type and of those below it.
func fieldNames(t *testing.T, of reflect.Type, names []string) []string {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return fieldNames(t, of.Elem(), names)
	case reflect.Struct:
		if of.PkgPath() == "time" {
			return names
		}
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				t.Errorf("%s.%s has no name for JSON", of.Name(), f.Name)
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			names = fieldNames(t, f.Type, names)
		}
	}
	return names
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.0624: "0.062", 0.996: "1.00", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 999.6: "1,000", 1234: "1,230",
		12345: "12,300", 999_499: "999,000", 999_500: "1.00 M", 1_234_567: "1.23 M", 45_600_000: "45.6 M", 2.5e9: "2500 M",
		-1200: "-1,200", -0.5: "-0.5", math.NaN(): "–", math.Inf(1): "–",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
	for _, tc := range []struct {
		v    float64
		unit string
		want string
	}{{20100, "ms", "20.1 s"}, {12.5, "ms", "12.5 ms"}, {0.006, "ms", "6 µs"}, {5200, "/s", "5,200/s"}, {1, "requests", "1 request"}, {1, "ms", "1 ms"}, {0.5, "", "0.5"}} {
		if got := quantity(tc.v, tc.unit); got != tc.want {
			t.Errorf("quantity(%v, %q) = %q, want %q", tc.v, tc.unit, got, tc.want)
		}
	}
}

func TestFullTitles(t *testing.T) {
	for f, want := range map[report.Figure]string{report.HotJain: "many clients, one name: Jain's index", report.WaitAll: "many waiting: until all had a turn",
		report.TryNobody: "TryLock: share that nobody got", report.HandOff50: "hand-off, median", "brand_new_ms": "brand new"} {
		if got := infoOf(f).full(); got != want {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
	}
}

// Every figure that is measured has words.
func TestFigureWords(t *testing.T) {
	text, err := os.ReadFile("../report/figures.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []report.Figure
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Figure = "(\w+)"`).FindAllSubmatch(text, -1) {
		all = append(all, report.Figure(m[1]))
	}
	if len(all) < 20 {
		t.Fatalf("found %d figures", len(all))
	}
	for _, workload := range report.Costed {
		all = append(all, report.ClientCPU(workload), report.ServerCPU(workload))
	}
	for _, f := range all {
		if !slices.ContainsFunc(figureInfos, func(in figureInfo) bool { return in.id == f }) {
			t.Errorf("%s has no words", f)
		}
	}
}

func TestLabels(t *testing.T) {
	r := &report.Report{Backends: []*report.Backend{{Name: "redis"}, {Name: "etcd"}, {Name: "redis"}, {Name: strings.Repeat("x", 99)}}}
	if got := (doc{r}).labels(); !slices.Equal(got[:3], []string{"redis 1", "etcd", "redis 2"}) || width(got[3]) != maxLabel {
		t.Errorf("labels: %q", got)
	}
}

// The page takes a hostile text for a text wherever it stands. A browser is asked in
// TestBrowser; this holds where there is none.
func TestHTMLEscapes(t *testing.T) {
	text := written(t, HTML, broken())
	if n := strings.Count(text, "</script>"); n != 3 {
		t.Errorf("%d scripts end, want 3", n)
	}
	for _, not := range []string{"<img", "alert(1)</script>", "\x1b", "ZgotmplZ", "src=\"http", "@import", "url(http"} {
		if strings.Contains(strings.ReplaceAll(text, chartLibrary, ""), not) {
			t.Errorf("%q gets through", not)
		}
	}
	_, rest, _ := strings.Cut(text, `<script type="application/json" id="charts">`)
	data, _, _ := strings.Cut(rest, "</script>")
	var charts []chart
	if err := json.Unmarshal([]byte(data), &charts); err != nil || len(charts) < 10 {
		t.Errorf("%d charts, error %v", len(charts), err)
	}
}
