package testkit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a testing.TB that notes failures.
type recorder struct {
	testing.TB
	text   string
	failed bool
	end    time.Time
}

func (r *recorder) Helper()             {}
func (r *recorder) Failed() bool        { return r.failed }
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failed, r.text = true, fmt.Sprintf(format, args...)
}
func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}
func (r *recorder) Deadline() (time.Time, bool) { return r.end, !r.end.IsZero() }

// run calls f, up to its Fatalf.
func (r *recorder) run(f func()) {
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
	}()
	f()
}

func TestWithin(t *testing.T) {
	type run struct{ took, late time.Duration }
	const bound = time.Second
	for _, tc := range []struct {
		name string
		runs []run
		want string // in the failure; empty for none
	}{
		{"in time", []run{{bound, 0}}, ""},
		{"too late", []run{{bound + 1, 0}}, "it took 1.000000001s where 1s are allowed, and the machine was late by 0s only"},
		{"as late as the machine", []run{{bound + 100, 100}}, ""},
		{"later than the machine", []run{{bound + 101, 100}}, "the machine was late by 100ns only"},
		{"in time on a late machine", []run{{bound, 5 * bound}}, ""},
		{"a machine that was late once", []run{{4 * bound, 3 * bound}, {bound, 0}}, ""},
		{"a machine that was late at first", []run{{4 * bound, 3 * bound}, {2 * bound, 0}}, "it took 2s"},
		{"a machine that is always late", []run{{4 * bound, 3 * bound}, {4 * bound, 2 * bound}, {4 * bound, 3 * bound}}, "inconclusive: nothing more is tested: the machine was late by 3s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, calls := new(recorder), 0
			prepare := func() func() { return func() { calls++ } }
			r.run(func() {
				within(r, bound, prepare, func(f func()) (took, late time.Duration) {
					f()
					return tc.runs[calls-1].took, tc.runs[calls-1].late
				})
			})
			if calls != len(tc.runs) {
				t.Errorf("called %d times, want %d", calls, len(tc.runs))
			}
			if r.failed != (tc.want != "") || !strings.Contains(r.text, tc.want) {
				t.Errorf("failed: %v, %q; want %q", r.failed, r.text, tc.want)
			}
		})
	}
}

func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, late := measure(func() { time.Sleep(time.Second) })
		if took != time.Second || late != 0 {
			t.Errorf("got %v, late by %v", took, late)
		}
		r := new(recorder)
		r.run(func() { measure(func() { r.Fatalf("enough") }) }) // the bubble ends only if the canary has
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		r := &recorder{end: time.Now().Add(time.Minute)}
		Until(r, "three", func() bool { n++; return n == 3 })
		r.run(func() { Until(r, "the end", func() bool { return false }) })
		if !strings.HasPrefix(r.text, "the end: not so") || time.Until(r.end) > before || time.Until(r.end) <= 0 {
			t.Errorf("got %q, %v before the end", r.text, time.Until(r.end))
		}
	})
}

func TestFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 100
		forever := new(recorder)
		if got := Settled(forever, func() int { n = max(n-1, 50); return n }); got != 50 {
			t.Errorf("settled at %d, want 50", got)
		}
		n = 100
		AtMost(forever, "a figure", 60, func() int { n--; return n })
		if n != 60 {
			t.Errorf("stopped at %d, want 60", n)
		}
		for name, f := range map[string]func(r *recorder){
			"changing": func(r *recorder) { Settled(r, func() int { n++; return n }) },
			"got 7":    func(r *recorder) { AtMost(r, "a figure", 6, func() int { return 7 }) },
		} {
			r := &recorder{end: time.Now().Add(time.Minute)}
			r.run(func() { f(r) })
			if !strings.Contains(r.text, name) {
				t.Errorf("got %q, want %q in it", r.text, name)
			}
		}
	})
}

func TestMust(t *testing.T) {
	for name, f := range map[string]func(r *recorder, err error){
		"Must":   func(r *recorder, err error) { Must(r, err) },
		"Should": func(r *recorder, err error) { Should(r, err) },
	} {
		for _, err := range []error{nil, errors.New("no")} {
			r, wentOn := new(recorder), false
			r.run(func() { f(r, err); wentOn = true })
			if r.failed != (err != nil) || wentOn != (name == "Should" || err == nil) {
				t.Errorf("%s of %v: failed %v, went on %v", name, err, r.failed, wentOn)
			}
		}
	}
}
