package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/memlock"
)

// A login that takes its time makes a check inconclusive that fails meanwhile, and no other; the
// looks, which have a connection, are answered at once.
func TestSlowLoginsAccuseNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admin, err := another(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		w := watchStore(admin, another)
		defer w.stop()
		check := func(id string, logins ...time.Duration) conformance.Status {
			time.Sleep(time.Minute)
			began := time.Now()
			for _, took := range logins {
				from := time.Now()
				time.Sleep(took)
				w.opened(from, nil)
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
		n := w.judge(&report)
		if n != 1 || report.Count(conformance.Failed) != 1 {
			t.Errorf("%d checks are inconclusive, %d failed, want 1 and 1", n, report.Count(conformance.Failed))
		}
		if got := w.failure(n).Error(); !strings.Contains(got, "for 3.3s; what 1 check found") {
			t.Errorf("told is %q, want the time of the slow login", got)
		}
	})
}

// A store without room for a new client makes inconclusive what fails meanwhile, though the connection that there is answers.
func TestFullStoreAccusesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admin, err := another(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		var full atomic.Bool
		w := watchStore(admin, func(ctx context.Context) (distlock.Locker, error) {
			if full.Load() {
				return nil, errors.New("too many connections")
			}
			return another(ctx)
		})
		defer w.stop()
		check := func() conformance.Result {
			time.Sleep(time.Minute)
			return w.excuse(conformance.Result{ID: "a/b", Status: conformance.Failed, Took: time.Second})
		}
		if got := check(); got.Status != conformance.Failed {
			t.Errorf("a check that failed while there was room is %s", got.Status)
		}
		full.Store(true)
		if got := check(); got.Status != conformance.Inconclusive {
			t.Errorf("a check that failed while there was no room is %s", got.Status)
		}
		if got := w.failure(1).Error(); !strings.Contains(got, "too many connections") {
			t.Errorf("told is %q, want the reason", got)
		}
	})
}

// another opens a client of a store of its own.
func another(context.Context) (distlock.Locker, error) {
	return memlock.New(memlock.NewStore(nil), nil)
}
