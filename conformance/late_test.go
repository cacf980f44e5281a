package conformance

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestLateness: a bound is exceeded only by more than the machine was late, and where the machine was late by more than
// the bound, nothing is said of the driver.
func TestLateness(t *testing.T) {
	const bound = 4 * time.Second
	for _, tc := range []struct {
		name   string
		part   time.Duration // of a second that the machine was late for
		after  time.Duration // when the event comes
		status Status
		reason string
	}{
		{"in time", 0, bound - 1, Passed, ""},
		{"too late", 0, bound + time.Second, Failed, "too late"},
		{"as late as the machine", time.Second / 3, bound + time.Second, Passed, ""},
		{"later than the machine", time.Second / 3, 2 * bound, Failed, "too late"},
		{"in time on a late machine", time.Second * 9 / 10, bound - 1, Passed, ""},
		{"on a machine that is too late", time.Second * 9 / 10, 100 * bound, Inconclusive, "the machine was late by"},
	} {
		for how, exceeds := range map[string]func(c *C, event <-chan struct{}) bool{
			"within": func(c *C, event <-chan struct{}) bool { return !c.within(event, bound) },
			"eventually": func(c *C, event <-chan struct{}) bool {
				return !c.eventually(bound, func() bool { return isDone(event) })
			},
			"took": func(c *C, event <-chan struct{}) bool {
				began := c.now()
				<-event
				return c.tooLong(began, c.now(), bound)
			},
			"detached": func(c *C, event <-chan struct{}) bool {
				p, now := &client{c: c}, make(chan struct{})
				close(now)
				return !p.detached(func() { <-event }, now, bound)
			},
		} {
			attempts := 0
			got := collect(t, check("late", func(c *C) {
				attempts++
				c.delays = func(from, to time.Time) time.Duration {
					return time.Duration(to.Sub(from).Seconds() * float64(tc.part))
				}
				event, happens := context.WithCancel(c.ctx)
				defer happens()
				time.AfterFunc(tc.after, happens)
				if exceeds(c, event.Done()) {
					c.Failf("too late")
				}
			}))["late"]
			if got.Status != tc.status || !strings.HasPrefix(got.Reason, tc.reason) {
				t.Errorf("%s, %s: got %s: %s", tc.name, how, got.Status, got.Reason)
			}
			if tc.status == Inconclusive && attempts != maxAttempts || tc.status == Failed && attempts != 1 {
				t.Errorf("%s, %s: %d attempts", tc.name, how, attempts)
			}
		}
	}
}

// TestCanaryBesideTheChecks: in real time checks know how late the machine was.
func TestCanaryBesideTheChecks(t *testing.T) {
	r := Verify(t.Context(), stub{}, &Options{Filter: own, Artifacts: t.TempDir(), Checks: []Check{check("asks", func(c *C) {
		c.sleep(20 * time.Millisecond)
		if late := c.lateness(0, c.now()); c.delays == nil || late < 0 || late > c.now() {
			c.Failf("late by %v of %v", late, c.now())
		}
	})}})
	if !r.OK() {
		t.Error(r.Results[0].Text())
	}
}
