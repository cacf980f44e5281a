package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Run examines a driver in go test: one sub-test for every check, named by its ID,
// so that "go test -run 'TestX/core/exclusive'" runs one. An inconclusive
// check is reported as skipped, with its reason, unless Options.Strict is set.
//
// At its end it prints Report.Summary to standard output: how many checks passed, failed
// and were skipped, and which clauses were not examined. "go test" in the directory of the
// package shows that without -v; with a list of packages it shows the output of those that
// fail, and of the others only with -v or -json.
//
// On a real server, up to Options.Parallel checks run side by side: nearly all they do
// is to wait for a TTL to pass. The sub-tests report in the order of the table.
func Run(t *testing.T, h Harness, o *Options) {
	t.Helper()
	s := newSuite(t.Context(), h, o)
	s.rerun = func(id string) string {
		return fmt.Sprintf("%s=%d go test -run '^%s$' -count=1", seedVariable, s.opts.Seed, testPattern(t.Name()+"/"+id))
	}
	s.calibrateVirtually(t)
	defer s.watch()()
	t.Logf("conformance: %s", s.head())
	results := s.launch(func(k Check) bool { return !s.opts.VirtualTime && selected(t.Name()+"/"+k.ID) }, func(Result) {})
	var done []Result
	for i, k := range s.checks {
		t.Run(k.ID, func(t *testing.T) {
			var r Result
			if s.opts.VirtualTime {
				r = s.inBubble(t, k)
			} else {
				r = results.wait(i)
			}
			done = append(done, r)
			tell(t, r, s.opts.Strict)
		})
	}
	results.stop()
	fmt.Printf("%s: %s\n", t.Name(), s.report(done).Summary()) // t.Log is silent without -v
}

// Collect is Run for tests of the suite: it examines the driver in the same way,
// virtual time included, but tells t nothing.
func Collect(t *testing.T, h Harness, o *Options) Report {
	t.Helper()
	s := newSuite(t.Context(), h, o)
	if !s.opts.VirtualTime {
		defer s.watch()()
		return s.report(s.all(func(Result) {}))
	}
	s.calibrateVirtually(t)
	return s.report(s.allInBubbles(t))
}

func (s *suite) allInBubbles(t *testing.T) (done []Result) {
	for _, k := range s.checks {
		done = append(done, s.inBubble(t, k))
	}
	return done
}

// calibrateVirtually measures how long the driver sleeps: nothing else takes time in a
// bubble.
func (s *suite) calibrateVirtually(t *testing.T) {
	t.Helper()
	if s.opts.VirtualTime {
		synctest.Test(t, func(*testing.T) { s.calibrate() })
	}
}

// inBubble runs a check in virtual time, and measures what it took in real time. A
// bubble panics if its goroutines are blocked for ever: the driver is at fault, and
// the run must go on.
func (s *suite) inBubble(t *testing.T, k Check) (r Result) {
	began := time.Now()
	defer func() {
		r.Took = time.Since(began)
		problem := recover()
		switch {
		case problem == nil:
		case r.ID == "" || !strings.Contains(fmt.Sprint(problem), "blocked goroutines remain"):
			panic(problem)
		case r.Status == Failed:
			r.Log = append(r.Log, "goroutines of the driver are blocked for ever")
		default:
			r.Status, r.Clause, r.Reason = Failed, "C1", "after the check, goroutines of the driver are blocked for ever"
		}
	}()
	synctest.Test(t, func(*testing.T) {
		r = s.examine(k)
		time.Sleep(time.Second) // time stands still at the end of this function, also for what only sleeps a little
	})
	return r
}

// tell makes a result that of a test.
func tell(t *testing.T, r Result, strict bool) {
	t.Helper()
	switch {
	case r.Status == Failed, r.Status == Inconclusive && strict:
		t.Errorf("%s", r.Text())
	case r.Status == Skipped:
		t.Skipf("%s", r.Reason)
	case r.Status == Inconclusive:
		t.Skipf("inconclusive: %s", r.Text())
	default:
		t.Logf("%s, in %v: %s", r.Clause, r.Took.Round(time.Millisecond), strings.Join(append([]string{r.Rule}, r.Log...), "\n"))
	}
}

// Verify examines a driver outside of go test, in real time, and returns what it
// found. It touches only names that contain random text of its own, and leaves no lock.
// What the store keeps of a name, so that tokens never fall, stays. When ctx ends,
// running checks are inconclusive, and those that have not begun are left out.
func Verify(ctx context.Context, h Harness, o *Options) Report {
	s := newSuite(ctx, h, o)
	if s.opts.VirtualTime {
		panic("conformance: Verify cannot run in virtual time, only Run and Collect can")
	}
	defer s.watch()()
	return s.report(s.all(s.opts.Progress))
}
