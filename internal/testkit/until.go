package testkit

import (
	"testing"
	"time"
)

const (
	pollEvery = 5 * time.Millisecond

	// before is how long before the end of go test a wait gives up, so that it is told which one
	// it was, and clean-ups still run.
	before = 5 * time.Second

	// A figure has settled once it was the same for so many readings in a row, so far apart.
	readings   = 10
	betweenThe = 10 * time.Millisecond
)

// Until polls cond until it is true. Its only bound is the end of the test: there it fails t,
// with what was waited for. It is not for a bubble of testing/synctest, where time is exact.
func Until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for !cond() {
		if ends(t) {
			t.Fatalf("%s: not so until the test had to end", what)
		}
		time.Sleep(pollEvery)
	}
}

// Settled returns the figure that read gives, once it has stopped changing.
func Settled(t testing.TB, read func() int) int {
	t.Helper()
	last, same := read(), 1
	for same < readings {
		if ends(t) {
			t.Fatalf("a figure, %d by now, was still changing when the test had to end", last)
		}
		time.Sleep(betweenThe)
		if now := read(); now == last {
			same++
		} else {
			last, same = now, 1
		}
	}
	return last
}

// AtMost waits until the figure that read gives has come down to limit. Its only bound is the
// end of the test: there it fails t, with what the figure is of and its last value.
func AtMost(t testing.TB, what string, limit int, read func() int) {
	t.Helper()
	for {
		got := read()
		if got <= limit {
			return
		}
		if ends(t) {
			t.Fatalf("%s: got %d until the test had to end, want %d at the most", what, got, limit)
		}
		time.Sleep(pollEvery)
	}
}

// ends reports whether the test must end now.
func ends(t testing.TB) bool {
	d, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return false
	}
	end, ok := d.Deadline()
	return ok && time.Until(end) < before
}
