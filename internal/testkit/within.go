// Package testkit is what the tests of all packages need for time: an upper bound in real
// time that knows how late the machine was, and waiting for an event without a bound of
// its own; errors that must not be; and a port that answers as a test wants, with certificates for it. CONTRIBUTING.md has the rules, and the root's time_test.go holds them.
package testkit

import (
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/canary"
)

// tries is how often a bound is tried on a machine that is too late to tell.
const tries = 3

// Within fails t unless f returns within bound, plus what the machine was late meanwhile. If
// the machine was late by more than the bound, nothing was learnt: then f is called again,
// three times in all at the most, and after that the test fails as inconclusive: "make test" runs
// it once more when all else has ended. So f must be repeatable. An f that ends the test, as by t.Fatal, ends it.
func Within(t testing.TB, bound time.Duration, f func()) {
	t.Helper()
	WithinFresh(t, bound, func() func() { return f })
}

// WithinFresh is Within for a function that needs preparation, which does not count: prepare
// returns the function to be timed, and is called again before each repetition.
func WithinFresh(t testing.TB, bound time.Duration, prepare func() func()) {
	t.Helper()
	within(t, bound, prepare, measure)
}

// measure calls f and returns how long it took, and how late the machine was meanwhile.
func measure(f func()) (took, late time.Duration) {
	c := canary.Start()
	defer c.Stop() // also when f ends the test
	began := time.Now()
	f()
	took = time.Since(began)
	// What is recorded of the process sees also a thread that waited for a processor while the canary's had one.
	return took, max(c.Late(), machine.Between(began, began.Add(took)))
}

func within(t testing.TB, bound time.Duration, prepare func() func(), measure func(func()) (took, late time.Duration)) {
	t.Helper()
	for try := 1; ; try++ {
		took, late := measure(prepare())
		switch {
		case took <= bound:
		case late > bound && try < tries:
			t.Logf("it took %v where %v are allowed, and the machine was late by %v: once more", took, bound, late)
			continue
		case late > bound:
			Inconclusivef(t, "the machine was late by %v; it took %v where %v are allowed", late, took, bound)
		case took > bound+late:
			t.Errorf("it took %v where %v are allowed, and the machine was late by %v only", took, bound, late)
		}
		return
	}
}
