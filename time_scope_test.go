package distlock_test

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scope is the body of a function, where names are looked up.
type scope struct {
	*timeFinder
	body *ast.BlockStmt
}

// shortest is what a context has to allow if something must succeed in it: from here on it only keeps a test that
// hangs from hanging for long.
const shortest = 10 * time.Second

// condition reports the upper bounds of a condition that fails a test if it is met, or if it is not.
func (in *scope) condition(e ast.Expr, met bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		in.condition(e.X, met)
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			in.condition(e.X, !met)
		}
	case *ast.CallExpr:
		if in.passed(e, "After") && met || in.passed(e, "Before") && !met {
			in.report(e, "an upper bound in real time: %s", insteadOfElapsed)
		}
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			in.condition(e.X, met)
			in.condition(e.Y, met)
			return
		}
		if d, short := in.ended(e); short && (e.Op == token.NEQ) == met {
			in.report(e, "it fails when a context of %v ends: %s", d, insteadOfContext)
		}
		if in.above(e, met) {
			in.report(e, "an upper bound in real time: %s", insteadOfElapsed)
		}
	}
}

// passed reports whether a call asks whether it is after, or before, a certain time now.
func (in *scope) passed(e *ast.CallExpr, method string) bool {
	s, ok := e.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == method && isCall(s.X, "time.Now")
}

// above reports whether a comparison fails a test because time has passed.
func (in *scope) above(e *ast.BinaryExpr, met bool) bool {
	op := e.Op
	if !met {
		op = map[token.Token]token.Token{token.GTR: token.LEQ, token.GEQ: token.LSS, token.LSS: token.GEQ, token.LEQ: token.GTR,
			token.EQL: token.NEQ, token.NEQ: token.EQL}[op]
	}
	switch op {
	case token.GTR, token.GEQ:
		return in.bounds(e.X, e.Y)
	case token.LSS, token.LEQ:
		return in.bounds(e.Y, e.X)
	case token.NEQ:
		return in.elapsed(e.X, "Since", "Sub") != in.elapsed(e.Y, "Since", "Sub")
	}
	return false
}

// bounds reports whether a time that passes is compared with a limit: neither with another that goes on passing, nor
// the difference of two instants with zero, which asks for their order.
func (in *scope) bounds(passing, limit ast.Expr) bool {
	if d, known := in.duration(limit, limit.Pos()); known && d == 0 {
		return in.elapsed(passing, "Since")
	}
	return in.elapsed(passing, "Since", "Sub") && !in.elapsed(limit, "Since")
}

// elapsed reports whether an expression is made of a time that has passed: of time.Since, or of x.Sub(y).
func (in *scope) elapsed(e ast.Expr, by ...string) (found bool) {
	in.within(e, e.Pos(), func(e ast.Expr) {
		if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 {
			s, ok := call.Fun.(*ast.SelectorExpr)
			found = found || ok && slices.Contains(by, s.Sel.Name)
		}
	})
	return found
}

// reckoning lists the calls that a duration stays one in.
var reckoning = []string{"append", "int", "int64", "float64", "max", "min", "time.Duration", "slices.Max", "slices.Min", "slices.Sorted"}

// within calls visit for an expression, and for what it is reckoned from.
func (in *scope) within(e ast.Expr, at token.Pos, visit func(ast.Expr)) {
	in.follow(e, at, visit, make(map[ast.Expr]bool))
}

func (in *scope) follow(e ast.Expr, at token.Pos, visit func(ast.Expr), seen map[ast.Expr]bool) {
	if e == nil || seen[e] {
		return
	}
	seen[e] = true
	visit(e)
	switch e := e.(type) {
	case *ast.ParenExpr:
		in.follow(e.X, at, visit, seen)
	case *ast.UnaryExpr:
		in.follow(e.X, at, visit, seen)
	case *ast.IndexExpr:
		in.follow(e.X, at, visit, seen)
	case *ast.BinaryExpr:
		in.follow(e.X, at, visit, seen)
		if e.Op != token.SUB { // what is taken off does not make it longer
			in.follow(e.Y, at, visit, seen)
		}
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Round", "Truncate", "Seconds", "Milliseconds", "Abs"}, s.Sel.Name) {
			in.follow(s.X, at, visit, seen)
		}
		if isCall(e, reckoning...) {
			for _, arg := range e.Args {
				in.follow(arg, at, visit, seen)
			}
		}
	case *ast.Ident:
		if value, pos := in.assigned(e.Name, at); value != nil {
			in.follow(value, pos, visit, seen)
		}
	}
}

// assigned returns what was assigned last before at to a name, and where; the innermost of equal names is not told
// from the others.
func (in *scope) assigned(name string, at token.Pos) (value ast.Expr, pos token.Pos) {
	note := func(left, right ast.Expr) {
		if x, ok := left.(*ast.IndexExpr); ok {
			left = x.X
		}
		if id, ok := left.(*ast.Ident); ok && id.Name == name && left.Pos() < at && left.Pos() > pos {
			value, pos = right, left.Pos()
		}
	}
	ast.Inspect(in.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				switch {
				case len(n.Rhs) == len(n.Lhs):
					note(left, n.Rhs[i])
				case len(n.Rhs) == 1:
					note(left, n.Rhs[0]) // one of several results
				}
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if len(n.Values) == len(n.Names) {
					note(id, n.Values[i])
				}
			}
		case *ast.RangeStmt:
			if n.Value != nil {
				note(n.Value, n.X)
			}
		}
		return true
	})
	if value == nil {
		return in.globals[name], at
	}
	return value, pos
}

// duration returns the value of an expression that is constant, or nearly.
func (in *scope) duration(e ast.Expr, at token.Pos) (time.Duration, bool) {
	v, ok := in.number(e, at, 0)
	return time.Duration(v), ok
}

func (in *scope) number(e ast.Expr, at token.Pos, depth int) (float64, bool) {
	if depth > 10 {
		return 0, false
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return in.number(e.X, at, depth+1)
	case *ast.BasicLit:
		v, err := strconv.ParseFloat(strings.ReplaceAll(e.Value, "_", ""), 64)
		return v, err == nil
	case *ast.SelectorExpr:
		unit, ok := map[string]time.Duration{"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
			"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[e.Sel.Name]
		return float64(unit), ok
	case *ast.Ident:
		if value, pos := in.assigned(e.Name, at); value != nil {
			return in.number(value, pos, depth+1)
		}
	case *ast.CallExpr:
		if isCall(e, "time.Duration") && len(e.Args) == 1 {
			return in.number(e.Args[0], at, depth+1)
		}
	case *ast.BinaryExpr:
		a, okA := in.number(e.X, at, depth+1)
		b, okB := in.number(e.Y, at, depth+1)
		if !okA || !okB {
			return 0, false
		}
		switch e.Op {
		case token.ADD:
			return a + b, true
		case token.SUB:
			return a - b, true
		case token.MUL:
			return a * b, true
		case token.QUO:
			return a / b, b != 0
		}
	}
	return 0, false
}

// timer reports a case of a select that fails the test because a timer has run out.
func (in *scope) timer(c *ast.CommClause) {
	if !failsIn(c.Body) {
		return
	}
	var from ast.Expr
	switch s := c.Comm.(type) {
	case *ast.ExprStmt:
		from = s.X
	case *ast.AssignStmt:
		from = s.Rhs[0]
	}
	receive, ok := from.(*ast.UnaryExpr)
	if !ok || receive.Op != token.ARROW {
		return
	}
	what := receive.X
	if s, ok := what.(*ast.SelectorExpr); ok && s.Sel.Name == "C" {
		what = s.X
	}
	if id, ok := what.(*ast.Ident); ok {
		what, _ = in.assigned(id.Name, what.Pos())
	}
	switch {
	case isCall(what, "time.After", "time.NewTimer", "time.NewTicker", "time.Tick"):
		in.report(c, "an upper bound in real time: %s", insteadOfAfter)
	default:
		if d, short := in.method(what, "Done"); short {
			in.report(c, "it fails when a context of %v ends: %s", d, insteadOfContext)
		}
	}
}

// ended returns how long a context lasts that is compared with having ended: ctx.Err() != nil.
func (in *scope) ended(e *ast.BinaryExpr) (time.Duration, bool) {
	if y, ok := e.Y.(*ast.Ident); !ok || y.Name != "nil" {
		return 0, false
	}
	return in.method(e.X, "Err")
}

// method returns how long a context lasts whose method is called, if that is too short.
func (in *scope) method(e ast.Expr, name string) (time.Duration, bool) {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return 0, false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return 0, false
	}
	return in.short(s.X, e.Pos())
}

// short returns how long a context lasts, if that is known and too short for what must succeed.
func (in *scope) short(ctx ast.Expr, at token.Pos) (time.Duration, bool) {
	id, ok := ctx.(*ast.Ident)
	if !ok {
		return 0, false
	}
	value, pos := in.assigned(id.Name, at)
	call, ok := value.(*ast.CallExpr)
	if !ok || len(call.Args) < 2 || !strings.HasPrefix(callee(call), "context.With") {
		return 0, false
	}
	lasts := call.Args[1]
	switch strings.TrimSuffix(callee(call), "Cause") {
	case "context.WithTimeout":
	case "context.WithDeadline": // time.Now().Add(d)
		add, ok := lasts.(*ast.CallExpr)
		if !ok || !strings.HasSuffix(callee(add), ".Add") || len(add.Args) != 1 {
			return 0, false
		}
		lasts = add.Args[0]
	default:
		return 0, false
	}
	d, known := in.duration(lasts, pos)
	return d, known && d < shortest
}

// shortCall returns how long the context lasts that is given to a call, if that is too short.
func (in *scope) shortCall(e ast.Expr) (d time.Duration, found bool) {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return 0, false
	}
	for _, arg := range call.Args {
		if d, short := in.short(arg, arg.Pos()); short {
			return d, true
		}
	}
	return 0, false
}

// demands returns the names of the errors that a condition and its body demand to be nil.
func demands(s *ast.IfStmt) (errs []string) {
	if !fails(s.Body) {
		return nil
	}
	var operands func(e ast.Expr)
	operands = func(e ast.Expr) {
		b, ok := e.(*ast.BinaryExpr)
		if !ok {
			return
		}
		if b.Op == token.LOR {
			operands(b.X)
			operands(b.Y)
		}
		x, isName := b.X.(*ast.Ident)
		if y, isNil := b.Y.(*ast.Ident); b.Op == token.NEQ && isName && isNil && y.Name == "nil" {
			errs = append(errs, x.Name)
		}
	}
	operands(s.Cond)
	return errs
}

// succeeds reports an assignment of an error that must be nil, by a call under a short context.
func (in *scope) succeeds(s ast.Stmt, errs []string) {
	a, ok := s.(*ast.AssignStmt)
	if !ok || len(a.Rhs) != 1 || len(a.Lhs) == 0 {
		return
	}
	last, ok := a.Lhs[len(a.Lhs)-1].(*ast.Ident)
	if !ok || !slices.Contains(errs, last.Name) {
		return
	}
	if d, short := in.shortCall(a.Rhs[0]); short {
		in.report(a, "it must succeed in a context of %v: %s", d, insteadOfContext)
	}
}

func (in *scope) succeedsIf(s *ast.IfStmt) {
	if s.Init != nil {
		in.succeeds(s.Init, demands(s))
	}
}

// sequence looks at statements whose order makes a bound: a call, and then the question for its error; a loop for
// a limited time, and then the failure.
func (in *scope) sequence(list []ast.Stmt) {
	for i := 1; i < len(list); i++ {
		switch s := list[i].(type) {
		case *ast.IfStmt:
			if s.Init == nil {
				in.succeeds(list[i-1], demands(s))
			}
		case *ast.ExprStmt:
			in.succeeds(list[i-1], demanded(s))
		}
		loop, ok := list[i-1].(*ast.ForStmt)
		if !ok || loop.Cond == nil {
			continue
		}
		if isFailure(list[i]) {
			in.condition(loop.Cond, false)
		}
	}
}

// must reports a call of a helper that fails the test unless something succeeds, under a short context.
func (in *scope) must(call *ast.CallExpr) {
	if !insists(call) {
		return
	}
	for _, e := range append([]ast.Expr{call}, call.Args...) {
		if d, short := in.shortCall(e); short {
			in.report(call, "it must succeed in a context of %v: %s", d, insteadOfContext)
		}
	}
}
