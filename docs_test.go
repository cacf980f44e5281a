package distlock_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// declared returns the names that a Go file declares: functions, types, variables,
// constants and fields by name, methods also as "Type.Method".
func declared(t *testing.T, file string) map[string]bool {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names[n.Name.Name] = true
			if n.Recv != nil {
				names[receiver(n.Recv.List[0].Type)+"."+n.Name.Name] = true
			}
			return false
		case *ast.TypeSpec:
			names[n.Name.Name] = true
		case *ast.ValueSpec:
			for _, name := range n.Names {
				names[name.Name] = true
			}
		case *ast.Field:
			for _, name := range n.Names {
				names[name.Name] = true
			}
		}
		return true
	})
	return names
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// The tour, which is the end of docs/design.md, names what there is: every code span is a file, a file with a name that it
// declares, a directory, or a name of the two packages that it leads through.
func TestTour(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "docs/design.md"), "\n## A lock's way through the code\n")
	common := make(map[string]bool)
	for _, pattern := range []string{"*.go", "driver/*.go"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			for name := range declared(t, file) {
				common[name] = true
			}
		}
	}
	spans := regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1)
	if len(spans) < 30 {
		t.Fatalf("the tour has %d code spans only", len(spans))
	}
	for _, span := range spans {
		file, name, both := strings.Cut(span[1], ":")
		switch {
		case span[1] == "file:function": // as it explains itself
		case !both && common[file]:
		case !exists(file):
			t.Errorf("`%s`: there is no file %s, nor is it a name of package distlock or driver", span[1], file)
		case both && !declared(t, file)[name]:
			t.Errorf("`%s`: %s does not declare %s", span[1], file, name)
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Every page of docs is in the index.
func TestDocsIndex(t *testing.T) {
	index, err := os.ReadFile("docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range markdown(t) {
		name, in := strings.CutPrefix(page, "docs/")
		if in && name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

// Every link of a page to a file of this repository leads somewhere, and so does the anchor in it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`(?m)\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)`)
	anchors := make(map[string]map[string]bool)
	for _, page := range markdown(t) {
		for _, to := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, page), ""), -1) {
			target := to[1] + to[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			name, anchor, _ := strings.Cut(target, "#")
			file := page
			if name != "" {
				file = filepath.Join(filepath.Dir(page), name)
			}
			if !exists(file) {
				t.Errorf("%s links to %s, which is not there", page, target)
				continue
			}
			if anchor == "" {
				continue
			}
			if anchors[file] == nil {
				anchors[file] = headings(read(t, file))
			}
			if !anchors[file][anchor] {
				t.Errorf("%s links to %s, and there is no such heading", page, target)
			}
		}
	}
}

// code is what Markdown shows as it is.
var code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

// headings returns the anchors of a page, as GitHub makes them.
func headings(page string) map[string]bool {
	anchors := make(map[string]bool)
	page = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(page, "")
	for _, heading := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading[1], "$1")
		text = regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), "")
		anchor := strings.ReplaceAll(text, " ", "-")
		for n, plain := 1, anchor; anchors[anchor]; n++ {
			anchor = plain + "-" + strconv.Itoa(n)
		}
		anchors[anchor] = true
	}
	return anchors
}

// markdown returns all pages of the repository.
func markdown(t *testing.T) (pages []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github" {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	return pages
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The pages in Chinese keep step with those in English: as many headings of each level,
// tables with as many rows, the same code. What only they have comes last, under a heading
// of its own.
func TestTranslations(t *testing.T) {
	for page, of := range map[string]string{
		"README.zh-CN.md":        "README.md",
		"docs/zh-CN/choosing.md": "docs/choosing.md",
	} {
		translated, original := outline(t, page), outline(t, of)
		if len(translated) < len(original) {
			t.Errorf("%s has %d headings, tables, questions and blocks of code, %s has %d", page, len(translated), of, len(original))
			continue
		}
		for i, want := range original {
			if translated[i] != want {
				t.Errorf("%s: element %d is\n%s\nand in %s\n%s", page, i+1, translated[i], of, want)
				break
			}
		}
	}
}

// outline returns what a page and its translation have in common.
func outline(t *testing.T, page string) (elements []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```.*?```")
	element := regexp.MustCompile("(?m)^#+ |^\\| *[-:|]+\\|$|^\\||^- |^> |^\\*\\*|\x00[0-9]+\x00")
	var blocks []string
	marked := code.ReplaceAllStringFunc(string(text), func(block string) string {
		blocks = append(blocks, block)
		return "\x00" + strconv.Itoa(len(blocks)-1) + "\x00"
	})
	for _, e := range element.FindAllString(marked, -1) {
		if n, err := strconv.Atoi(strings.Trim(e, "\x00")); err == nil {
			e = blocks[n]
		}
		if e != "> " { // a quotation may take fewer lines
			elements = append(elements, e)
		}
	}
	return elements
}

// Every function that users call has an example which runs.
func TestExamples(t *testing.T) {
	for dir, importPath := range map[string]string{".": module, "patterns": module + "/patterns"} {
		testExamples(t, dir, importPath)
	}
}

func testExamples(t *testing.T, dir, importPath string) {
	t.Helper()
	fset := token.NewFileSet()
	names, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	pkg, err := doc.NewFromFiles(fset, files, importPath)
	if err != nil {
		t.Fatal(err)
	}
	functions := pkg.Funcs
	for _, typ := range pkg.Types {
		functions = append(functions, typ.Funcs...)
	}
	// An option is shown in the example of the function that it changes.
	shown := map[string]bool{"TTL": true, "Holder": true, "WithOwner": true}
	for _, f := range functions {
		if len(f.Examples) == 0 && !shown[f.Name] {
			t.Errorf("%s has no example", f.Name)
		}
		for _, e := range f.Examples {
			if strings.TrimSpace(e.Output) == "" {
				t.Errorf("the example of %s has no output, so no test runs it", f.Name)
			}
		}
	}
}
