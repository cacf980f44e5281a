package backends_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/testkit"
)

// table returns the rows of the table in docs/config.md whose first cell of the
// heading is heading, with the marks of code removed.
func table(t *testing.T, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/config.md")
	testkit.Must(t, err)
	_, rest, ok := strings.Cut(string(text), "\n| "+heading+" |")
	if !ok {
		t.Fatalf("docs/config.md has no table that begins with %q", heading)
	}
	var rows [][]string
	for i, line := range strings.Split("| "+heading+" |"+rest, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(strings.ReplaceAll(cells[j], "`", ""))
		}
		if i != 1 { // the line below the heading
			rows = append(rows, cells)
		}
	}
	return rows
}

// params returns the parameters that a scheme understands, as its driver declares
// them in answer to one that no driver understands.
func params(t *testing.T, scheme string) []openurl.Param {
	t.Helper()
	_, err := backends.Open(t.Context(), scheme+"://localhost?no_such_parameter=x")
	var unknown *openurl.UnknownParamError
	if !errors.As(err, &unknown) {
		t.Fatalf("%s: the error is %v, want an UnknownParamError", scheme, err)
	}
	return unknown.Known
}

// Every parameter of every scheme is in docs/config.md as the code has it, and
// nothing else is.
func TestDocumentedParameters(t *testing.T) {
	schemes := make(map[openurl.Param][]string)
	for _, s := range backends.Default.Schemes() {
		for _, p := range params(t, s) {
			schemes[p] = append(schemes[p], s)
		}
	}
	want := make(map[string]bool)
	for p, list := range schemes {
		cells := []string{p.Name, strings.Join(list, ", "), p.Type, p.Default, p.Allowed}
		switch all := len(backends.Default.Schemes()); {
		case len(list) == all:
			cells[1] = "all"
		case len(list) == all-1 && !slices.Contains(list, "mem"):
			cells[1] = "all but mem"
		}
		want[strings.Join(cells, " | ")] = true
	}
	for _, row := range table(t, "Parameter")[1:] {
		if len(row) != 6 || row[5] == "" {
			t.Errorf("the row %q has no meaning, or too many cells", row)
			continue
		}
		text := strings.Join(row[:5], " | ")
		if !want[text] {
			t.Errorf("docs/config.md has a row that is not so: %s", text)
		}
		delete(want, text)
	}
	for text := range want {
		t.Errorf("docs/config.md lacks the row: %s", text)
	}
}

func TestDocumentedSchemes(t *testing.T) {
	var got []string
	for _, row := range table(t, "Scheme")[1:] {
		got = append(got, strings.Split(row[0], ", ")...)
	}
	slices.Sort(got)
	if want := backends.Default.Schemes(); !slices.Equal(got, want) {
		t.Errorf("docs/config.md has the schemes %q, want %q", got, want)
	}
}

func TestDocumentedFields(t *testing.T) {
	var got, want []string
	for _, row := range table(t, "Field")[1:] {
		got = append(got, row[0])
	}
	config := reflect.TypeFor[backends.Config]()
	for i := range config.NumField() {
		yaml, _, _ := strings.Cut(config.Field(i).Tag.Get("yaml"), ",")
		json, _, _ := strings.Cut(config.Field(i).Tag.Get("json"), ",")
		if yaml != json {
			t.Errorf("%s is %q in YAML and %q in JSON", config.Field(i).Name, yaml, json)
		}
		want = append(want, yaml)
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/config.md has the fields %q, want %q", got, want)
	}
}

// checkPromises compares what docs/config.md says that a backend promises with what
// opening it with that requirement says.
func checkPromises(t *testing.T, backend, url string) {
	t.Helper()
	rows := table(t, "Requirement")
	column := slices.Index(rows[0], backend)
	if column < 0 {
		t.Fatalf("docs/config.md has no column %q", backend)
	}
	if len(rows) != 5 {
		t.Errorf("docs/config.md has %d requirements, want 4", len(rows)-1)
	}
	for _, row := range rows[1:] {
		l, err := backends.Config{URL: url, Require: []backends.Requirement{backends.Requirement(row[0])}}.Open(t.Context())
		if err == nil {
			l.Close()
		} else if !errors.Is(err, distlock.ErrUnsupported) {
			t.Fatal(err)
		}
		if got := map[bool]string{true: "yes", false: "no"}[err == nil]; got != row[column] {
			t.Errorf("%s %s: docs/config.md says %q, Open says %q: %v", backend, row[0], row[column], got, err)
		}
	}
}

// paramURL finds a URL with parameters in a text.
var paramURL = regexp.MustCompile("([a-z+]+)://[^\\s\"`'<>)?]*\\?([a-z_]+=[^\\s\"`'<>)|\\]]*)")

// No URL in a page, or in an example, has a parameter that its scheme does not know: nothing else opens them.
func TestURLsInPages(t *testing.T) {
	known, seen := make(map[string][]openurl.Param), 0
	testkit.Must(t, filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".md" && entry.Name() != "example_test.go" && entry.Name() != "open.go" {
			return err
		}
		for _, found := range paramURL.FindAllStringSubmatch(read(t, file), -1) {
			scheme := found[1]
			if !slices.Contains(backends.Default.Schemes(), scheme) {
				continue
			}
			if known[scheme] == nil {
				known[scheme] = params(t, scheme)
			}
			for pair := range strings.SplitSeq(found[2], "&") {
				name, _, _ := strings.Cut(pair, "=")
				seen++
				if name != "parameter" && name != "..." && !slices.ContainsFunc(known[scheme], func(p openurl.Param) bool { return p.Name == name }) {
					t.Errorf("%s: the URL %s has a parameter %q, which %s does not know", file, found[0], name, scheme)
				}
			}
		}
		return nil
	}))
	if seen < 15 {
		t.Errorf("%d parameters were found", seen)
	}
}
