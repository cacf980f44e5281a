package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/memlock"
)

// A login that takes its time makes a check inconclusive that fails meanwhile, and no other; the
// looks, which have a connection, are answered at once.
func TestSlowLoginsAccuseNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admin, err := memlock.New(memlock.NewStore(nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		w := watchStore(admin)
		defer w.stop()
		check := func(id string, logins ...time.Duration) conformance.Status {
			time.Sleep(time.Minute)
			began := time.Now()
			for _, took := range logins {
				from := time.Now()
				time.Sleep(took)
				w.opened(from)
			}
			return w.excuse(conformance.Result{ID: id, Status: conformance.Failed, Took: time.Since(began)}).Status
		}
		if got := check("a/slow", lookPatience/2, 3*lookPatience, lookPatience/2); got != conformance.Inconclusive {
			t.Errorf("a check that failed beside a slow login is %s", got)
		}
		if got := check("a/quick", lookPatience/2, lookPatience/2, lookPatience/2); got != conformance.Failed {
			t.Errorf("a check that failed beside quick logins is %s", got)
		}
		report := conformance.Report{Results: []conformance.Result{
			{ID: "a/slow", Status: conformance.Failed}, {ID: "a/quick", Status: conformance.Failed}}}
		if n := w.judge(&report); n != 1 || report.Count(conformance.Failed) != 1 {
			t.Errorf("%d checks are inconclusive, %d failed, want 1 and 1", n, report.Count(conformance.Failed))
		}
		if got := w.down(); got < 3*lookPatience || got > 4*lookPatience {
			t.Errorf("the store did not answer for %v, want that of the slow login", got)
		}
	})
}
