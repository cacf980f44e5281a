package distlock_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A bound in real time fails on a busy machine, and says nothing then. So tests have none, but for those of
// testkit.Within, which knows how late the machine itself was. Virtual time is exact: what runs in a bubble of
// testing/synctest may compare it with anything.
func TestNoBoundsInRealTime(t *testing.T) {
	all := testFiles(t)
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		for _, b := range newTimeFinder(all[dir].fset, all[dir].files).bounds() {
			t.Errorf("%s: %s", b.pos, b.text)
		}
	}
}

// testPackage is the test files of one directory: those of the package, and those outside of it.
type testPackage struct {
	fset  *token.FileSet
	files []*ast.File
}

// testFiles parses the test files of the repository, by directory: those of all modules, and for all systems.
func testFiles(t *testing.T) map[string]testPackage {
	t.Helper()
	all, n := make(map[string]testPackage), 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := name != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_"))
			if hidden || d.Name() == "testdata" || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		name = filepath.ToSlash(name)
		p := all[path.Dir(name)]
		if p.fset == nil {
			p.fset = token.NewFileSet()
		}
		file, err := parser.ParseFile(p.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files = append(p.files, file)
		all[path.Dir(name)] = p
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 100 {
		t.Fatalf("found %d test files only", n)
	}
	return all
}

// realBound is an upper bound in real time.
type realBound struct {
	pos  token.Position
	text string
}

// timeFinder finds upper bounds in real time in the test files of one directory. It knows no types: what a name
// stands for is what was last assigned to it above, in the same function.
type timeFinder struct {
	fset    *token.FileSet
	files   []*ast.File
	globals map[string]ast.Expr // what constants and variables of the package are declared as
	bubbles map[ast.Node]bool   // functions and function literals that run in virtual time
	found   []realBound
}

func newTimeFinder(fset *token.FileSet, files []*ast.File) *timeFinder {
	f := &timeFinder{fset: fset, files: files, globals: make(map[string]ast.Expr)}
	for _, file := range files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
						for i, name := range v.Names {
							f.globals[name.Name] = v.Values[i]
						}
					}
				}
			}
		}
	}
	f.bubbles = bubbles(files)
	return f
}

// bounds returns what is found, in the order of the files.
func (f *timeFinder) bounds() []realBound {
	for _, file := range f.files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil && !f.bubbles[d] {
				f.function(d)
			}
		}
	}
	return f.found
}

func (f *timeFinder) report(n ast.Node, format string, args ...any) {
	f.found = append(f.found, realBound{f.fset.Position(n.Pos()), fmt.Sprintf(format, args...)})
}

const (
	insteadOfElapsed = "wait for the event alone, with the end of the test as the only bound, or use testkit.Within if the time is what is tested"
	insteadOfAfter   = "receive without a select, since go test ends a test that hangs and prints its goroutines, or use testkit.Within if the time is what is tested"
	insteadOfContext = "use t.Context(), or testkit.Within if the time is what is tested"
)

// function looks at one function, except for what of it runs in virtual time.
func (f *timeFinder) function(d *ast.FuncDecl) {
	in := &scope{f, d.Body}
	ast.Inspect(d.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return !f.bubbles[n]
		case *ast.IfStmt:
			if fails(n.Body) {
				in.condition(n.Cond, true)
			}
			if n.Else != nil && fails(n.Else) {
				in.condition(n.Cond, false)
			}
			in.succeedsIf(n)
		case *ast.SwitchStmt:
			for _, s := range n.Body.List {
				if c, ok := s.(*ast.CaseClause); ok && n.Tag == nil && failsIn(c.Body) {
					for _, cond := range c.List {
						in.condition(cond, true)
					}
				}
			}
		case *ast.BlockStmt:
			in.sequence(n.List)
		case *ast.CaseClause:
			in.sequence(n.Body)
		case *ast.CommClause:
			in.sequence(n.Body)
			in.timer(n)
		case *ast.CallExpr:
			in.must(n)
		}
		return true
	})
}

// fails reports whether a statement fails a test.
func fails(s ast.Stmt) (found bool) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case ast.Stmt:
			found = found || isFailure(n)
		}
		return !found
	})
	return found
}

// failsIn reports whether one of the statements themselves fails a test, whatever else is the case.
func failsIn(list []ast.Stmt) bool { return slices.ContainsFunc(list, isFailure) }

// isFailure reports whether a statement is a call such as t.Errorf, a panic, or the return of a new error.
func isFailure(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			return fun.Name == "panic"
		case *ast.SelectorExpr:
			return slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow", "Failf"}, fun.Sel.Name)
		}
	case *ast.ReturnStmt:
		return slices.ContainsFunc(s.Results, func(e ast.Expr) bool { return isCall(e, "fmt.Errorf", "errors.New") })
	}
	return false
}

// callee returns the name of what is called, with that of a package or a variable before it, or "".
func callee(e ast.Expr) string {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok {
			return x.Name + "." + fun.Sel.Name
		}
		return "." + fun.Sel.Name
	}
	return ""
}

func isCall(e ast.Expr, names ...string) bool { return slices.Contains(names, callee(e)) }

// insists reports whether a call is of a helper that fails the test on an error: must and its like, and those of testkit.
func insists(call *ast.CallExpr) bool {
	name := callee(call)
	name = name[strings.LastIndex(name, ".")+1:]
	return strings.HasPrefix(name, "must") || name == "Must" || name == "Should"
}

// demanded returns the errors that such a helper is given.
func demanded(s *ast.ExprStmt) (errs []string) {
	call, ok := s.X.(*ast.CallExpr)
	if !ok || !insists(call) {
		return nil
	}
	for _, arg := range call.Args {
		if x, ok := arg.(*ast.Ident); ok {
			errs = append(errs, x.Name)
		}
	}
	return errs
}
