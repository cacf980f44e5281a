package distlock_test

import (
	"go/ast"
	"strings"
)

// bubbles returns the functions and function literals that run in virtual time only: what synctest.Test is given, if
// need be by a helper, and functions that only such code names.
func bubbles(files []*ast.File) map[ast.Node]bool {
	b := bubbleFinder{files, make(map[string][]*ast.FuncDecl), make(map[ast.Node]bool)}
	for _, file := range files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
				b.decls[d.Name.Name] = append(b.decls[d.Name.Name], d)
			}
		}
	}
	named := make(map[string]bool)
	b.outside(func(id *ast.Ident) { named[id.Name] = true }, nil) // nothing is marked yet: from everywhere
	given := b.mark(b.openers())
	b.inside(named)
	for again := true; again; {
		again = false
		b.outside(func(id *ast.Ident) {
			for _, d := range b.decls[id.Name] {
				again = again || b.virtual[d]
				delete(b.virtual, d)
			}
		}, given)
	}
	return b.virtual
}

type bubbleFinder struct {
	files   []*ast.File
	decls   map[string][]*ast.FuncDecl // by name; methods as well
	virtual map[ast.Node]bool
}

// openers returns the names of the functions that call a function of theirs in a bubble.
func (b bubbleFinder) openers() map[string]bool {
	found := map[string]bool{"synctest.Test": true}
	for again := true; again; {
		again = false
		for name, list := range b.decls {
			for _, d := range list {
				if !found[name] && givesOn(d, found) {
					found[name], again = true, true
				}
			}
		}
	}
	return found
}

// givesOn reports whether a function gives one of its parameters to an opener, or a function literal that uses it.
func givesOn(d *ast.FuncDecl, openers map[string]bool) (found bool) {
	params := make(map[string]bool)
	for _, p := range d.Type.Params.List {
		if _, ok := p.Type.(*ast.FuncType); ok {
			for _, name := range p.Names {
				params[name.Name] = true
			}
		}
	}
	ast.Inspect(d.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !opens(call, openers) {
			return true
		}
		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				found = found || ok && params[id.Name]
				return true
			})
		}
		return true
	})
	return found
}

// opens reports whether a call is one of an opener: a function of this package, a method, or synctest.Test.
func opens(call *ast.CallExpr, openers map[string]bool) bool {
	name := callee(call)
	return openers[name] || openers[name[strings.LastIndex(name, ".")+1:]] && name != ""
}

// mark notes the function literals that openers are given, and returns where they are given a function by its name.
func (b bubbleFinder) mark(openers map[string]bool) map[*ast.Ident]bool {
	given := make(map[*ast.Ident]bool)
	for _, file := range b.files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !opens(call, openers) {
				return true
			}
			for _, arg := range call.Args {
				switch arg := arg.(type) {
				case *ast.FuncLit:
					b.virtual[arg] = true
				case *ast.Ident:
					given[arg] = true
				}
			}
			return true
		})
	}
	return given
}

// inside supposes of all functions that are named somewhere, and that go test does not call, that they run in
// virtual time.
func (b bubbleFinder) inside(named map[string]bool) {
	for name, list := range b.decls {
		entry := strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Benchmark") || strings.HasPrefix(name, "Example") ||
			strings.HasPrefix(name, "Fuzz") || name == "init"
		for _, d := range list {
			if named[name] && (!entry || d.Recv != nil) {
				b.virtual[d] = true
			}
		}
	}
}

// outside calls visit for each name of a function that is used outside of virtual time.
func (b bubbleFinder) outside(visit func(*ast.Ident), given map[*ast.Ident]bool) {
	for _, file := range b.files {
		for _, d := range file.Decls {
			own, isFunc := d.(*ast.FuncDecl)
			ast.Inspect(d, func(n ast.Node) bool {
				if n != nil && b.virtual[n] {
					return false
				}
				if id, ok := n.(*ast.Ident); ok && !given[id] && b.decls[id.Name] != nil && (!isFunc || id != own.Name) {
					visit(id)
				}
				return true
			})
		}
	}
}
