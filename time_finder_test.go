package distlock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// What the finder must find, and what it must let pass. Each snippet is the body of a test;
// timeSnippetFrame is around it.
var timeSnippets = []struct {
	code string
	want int // bounds
}{
	// The time that something took.
	{`if time.Since(began) > bound { t.Error("late") }`, 1},
	{`if took := time.Since(began); took > 3*time.Second { t.Fatalf("%v", took) }`, 1},
	{`took := time.Since(began); if err != nil || took >= bound { t.Errorf("%v", took) }`, 1},
	{`if n == 0 && end.Sub(began) > time.Second { t.Error() }`, 1},
	{`if bound < time.Since(began) { t.Fail() }`, 1},
	{`if !(time.Since(began) < bound) { t.FailNow() }`, 1},
	{`if time.Since(began) < bound { done = true } else { t.Error("late") }`, 1},
	{`switch { case time.Since(began) > bound: t.Error("late") }`, 1},
	{`if took := time.Since(began) - pause; took != bound { t.Error("not at once") }`, 1},
	{`all = append(all, time.Since(began)); if slices.Max(all) > bound { t.Error("late") }`, 1},
	{`all = append(all, time.Since(began)); if all[len(all)/2].Seconds() > 1 { t.Error("late") }`, 1},
	{`if lease := end.Sub(start); time.Since(began) > lease { t.Error("late") }`, 1},
	{`if time.Now().After(deadline) { t.Fatal("late") }`, 1},
	{`if !time.Now().Before(deadline) { t.Fatal("late") }`, 1},
	{`if time.Since(began) > bound { panic("late") }`, 1},
	{`if time.Since(began) > bound { return fmt.Errorf("late") }`, 1},
	{`if late := time.Since(lock.Deadline()); late > 0 { t.Error("past its end") }`, 1},
	{`for time.Now().Before(end) { if ok() { return } }; t.Fatal("not in time")`, 1},
	{`for end := time.Now().Add(bound); !ok(); { if time.Now().After(end) { t.Fatal("not in time") } }`, 1},
	{`t.Run("x", func(t *testing.T) { if time.Since(began) > bound { t.Error("late") } })`, 1},

	{`if time.Since(began) < bound { t.Error("too early") }`, 0},
	{`if took := time.Since(began); took < bound*9/10 { t.Error("too early") }`, 0},
	{`if time.Since(began) > bound { t.Skip("a slow machine") }`, 0},
	{`if time.Since(began) > bound { return }`, 0},
	{`if end.Sub(began) > 0 { t.Error("in the wrong order") }`, 0},
	{`if before.Add(long).Sub(ends) > 0 { t.Error("in the wrong order") }`, 0},
	{`if d := end.Sub(began); d > ttl+time.Since(began) { t.Error("more than was asked for") }`, 0},
	{`if n > int(time.Since(began)/time.Second)+2 { t.Error("too many") }`, 0},
	{`if least := bound - time.Since(began); left < least { t.Error("too little is left") }`, 0},
	{`for time.Since(began) < bound { work() }; if n == 0 { t.Error("nothing done") }`, 0},
	{`if time.Now().Before(deadline) { t.Error("too early") }`, 0},
	{`t.Logf("took %v", time.Since(began))`, 0},

	// A timer beside an event.
	{`select { case <-done: case <-time.After(bound): t.Fatal("nothing happened") }`, 1},
	{`select { case <-done: case <-time.After(time.Minute): t.Error("nothing happened"); return }`, 1},
	{`timer := time.NewTimer(bound); select { case <-done: case <-timer.C: t.Fatal("nothing happened") }`, 1},
	{`late := time.After(bound); for { select { case <-done: return; case <-late: t.Fatal("nothing happened") } }`, 1},
	{`select { case <-done: return nil; case <-time.After(bound): return errors.New("nothing happened") }`, 1},

	{`select { case <-done: t.Error("it happened"); case <-time.After(bound): }`, 0},
	{`select { case <-done: return; case <-time.After(bound): looks++ }`, 0},
	{`select { case <-done: case <-t.Context().Done(): t.Error("nothing happened") }`, 0},
	{`select { case <-done: default: t.Error("not yet") }`, 0},

	// A short context in which something must succeed.
	{`ctx, cancel := context.WithTimeout(bg, time.Second); defer cancel(); if err := l.Unlock(ctx); err != nil { t.Error(err) }`, 1},
	{`ctx, cancel := context.WithTimeout(bg, bound); defer cancel(); lock, err := l.Lock(ctx, "x"); if err != nil { t.Fatal(err) }; _ = lock`, 1},
	{`ctx, _ := context.WithDeadline(bg, time.Now().Add(2*time.Second)); if _, err := l.Lock(ctx, "x"); err != nil || n > 1 { t.Fatal(err) }`, 1},
	{`ctx, _ := context.WithTimeoutCause(bg, 9*time.Second, cause); must(t, l.Unlock(ctx))`, 1},
	{`ctx, _ := context.WithTimeout(bg, time.Second); lock := mustLock(t, ctx, l, "x"); _ = lock`, 1},
	{`ctx, _ := context.WithTimeout(bg, time.Second); testkit.Should(t, l.Unlock(ctx))`, 1},
	{`ctx, _ := context.WithTimeout(bg, time.Second); lock, err := l.Lock(ctx, "x"); testkit.Must(t, err); _ = lock`, 1},
	{`ctx, _ := context.WithTimeout(bg, time.Second); select { case <-done: case <-ctx.Done(): t.Error("nothing happened") }`, 1},
	{`ctx, _ := context.WithTimeout(bg, time.Second); l.Renew(ctx); if ctx.Err() != nil { t.Error("it took long") }`, 1},

	{`ctx, cancel := context.WithTimeout(bg, time.Minute); defer cancel(); if err := l.Unlock(ctx); err != nil { t.Error(err) }`, 0},
	{`ctx, _ := context.WithTimeout(bg, time.Second); if _, err := l.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) { t.Error(err) }`, 0},
	{`ctx, _ := context.WithTimeout(bg, time.Second); if _, err := l.Lock(ctx, "x"); err == nil { t.Error("granted") }`, 0},
	{`ctx, _ := context.WithTimeout(bg, time.Second); if _, err := l.Lock(ctx, "x"); err != nil && !errors.Is(err, distlock.ErrHeld) { t.Error(err) }`, 0},
	{`ctx, _ := context.WithTimeout(bg, time.Second); <-ctx.Done(); if err := l.Unlock(bg); err != nil { t.Error(err) }`, 0},
	{`ctx, _ := context.WithTimeout(bg, time.Second); ctx = bg; if err := l.Unlock(ctx); err != nil { t.Error(err) }`, 0},

	// Virtual time is exact.
	{`synctest.Test(t, func(t *testing.T) { if time.Since(began) > bound { t.Error("late") } })`, 0},
	{`bubble(t, func(t *testing.T) { if time.Since(began) > bound { t.Error("late") } })`, 0},
	{`synctest.Test(t, inside)`, 0},
	{`synctest.Test(t, func(t *testing.T) { inside(t) })`, 0},
	{`synctest.Test(t, inside); inside(t)`, 1},
	{`inside(t)`, 1},
	{`plain(t, func(t *testing.T) { if time.Since(began) > bound { t.Error("late") } })`, 1},
}

const timeSnippetFrame = `package p

const bound = 2 * time.Second

func bubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, func(t *testing.T) { f(t) }) }

func plain(t *testing.T, f func(*testing.T)) { f(t) }

func inside(t *testing.T) { deeper(t) }

func deeper(t *testing.T) { if time.Since(began) > bound { t.Error("late") } }

func TestSnippet(t *testing.T) {
	BODY
}
`

func TestTimeFinder(t *testing.T) {
	for _, tc := range timeSnippets {
		code := timeSnippetFrame
		if !strings.Contains(tc.code, "inside") { // nothing else names it
			code = strings.ReplaceAll(code, `if time.Since(began) > bound { t.Error("late") }`, "")
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "p_test.go", strings.ReplaceAll(code, "BODY", tc.code), parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", tc.code, err)
			continue
		}
		if found := newTimeFinder(fset, []*ast.File{file}).bounds(); len(found) != tc.want {
			t.Errorf("%s\nfound %v, want %d bounds", tc.code, found, tc.want)
		}
	}
}
