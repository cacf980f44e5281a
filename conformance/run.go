package conformance

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Run examines a driver in go test: one sub-test for every check, named by its ID,
// so that "go test -run 'TestX/owner/double-unlock'" runs one. An inconclusive
// check is reported as skipped, with its reason.
//
// On a real server, up to WithParallel checks run side by side: nearly all they do
// is to wait for a TTL to pass. The sub-tests report in the order of the table.
func Run(t *testing.T, h Harness, opts ...Option) {
	t.Helper()
	s := newSuite(t.Context(), h, opts)
	s.rerun = func(id string) string {
		return fmt.Sprintf("%s=%d go test -run '^%s$' -count=1", seedVariable, s.seed, testPattern(t.Name()+"/"+id))
	}
	t.Logf("conformance: %s", s.head())
	results := s.launch(func(k Check) bool { return !s.Virtual && selected(t.Name()+"/"+k.ID) }, func(Result) {})
	var done []Result
	for i, k := range s.checks {
		t.Run(k.ID, func(t *testing.T) {
			var r Result
			if s.Virtual {
				r = s.inBubble(t, k)
			} else {
				r = results.wait(i)
			}
			done = append(done, r)
			tell(t, r)
		})
	}
	results.stop()
	t.Log(s.report(done).Summary())
}

// Collect is Run for those who test the suite: it examines the driver in the same
// way, virtual time included, but tells t nothing. t fails only if a check leaves
// a goroutine behind in virtual time.
func Collect(t *testing.T, h Harness, opts ...Option) Report {
	t.Helper()
	s := newSuite(t.Context(), h, opts)
	if !s.Virtual {
		return s.report(s.all(func(Result) {}))
	}
	var done []Result
	for _, k := range s.checks {
		done = append(done, s.inBubble(t, k))
	}
	return s.report(done)
}

// inBubble runs a check in virtual time, and measures what it took in real time.
func (s *suite) inBubble(t *testing.T, k Check) (r Result) {
	began := time.Now()
	synctest.Test(t, func(*testing.T) { r = s.examine(k) })
	r.Took = time.Since(began)
	return r
}

// tell makes a result that of a test.
func tell(t *testing.T, r Result) {
	t.Helper()
	switch r.Status {
	case Failed:
		t.Errorf("%s", r.Text())
	case Skipped:
		t.Skipf("%s", r.Reason)
	case Inconclusive:
		t.Skipf("inconclusive: %s", r.Text())
	default:
		t.Logf("%s, in %v: %s", r.Clause, r.Took.Round(time.Millisecond), r.Rule)
	}
}

// Verify examines a driver outside of go test, in real time, and returns what it
// found. It touches only names under a random prefix of its own and leaves no lock.
// What the store keeps of a name, so that tokens never fall, stays.
// When ctx ends, the checks that are still running are inconclusive, and those that
// have not begun are left out.
func Verify(ctx context.Context, h Harness, opts ...Option) Report {
	s := newSuite(ctx, h, opts)
	if s.Virtual {
		panic("conformance: Verify cannot run in virtual time, only Run and Collect can")
	}
	return s.report(s.all(s.progress))
}
