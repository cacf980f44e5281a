package conformance

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
	"github.com/distlock-go/distlock/memlock"
)

// stopped is a harness over a store that can be stopped: then nothing answers.
type stopped struct {
	stub
	mu *sync.Mutex // held while the store is stopped
}

func (h stopped) ForCheck(*C) Harness { return h }

func (h stopped) Open(context.Context, *C) (distlock.Locker, error) {
	return memlock.New(h.store, nil)
}

// TestSilentStore: what a check finds while the store does not answer is not counted
// against the driver; what it finds later is.
func TestSilentStore(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var answered atomic.Int64 // requests; only the pulse makes any
	h := stopped{stub{memlock.NewStore(&memlock.StoreOptions{
		Intercept: func(_ context.Context, _ memlock.Call, apply func()) error {
			mu.Lock() // waits while the store is stopped
			defer mu.Unlock()
			apply()
			answered.Add(1)
			return nil
		},
	})}, &mu}
	stop := func(c *C) {
		// A look is two requests. One that follows another shows that the other is over.
		looks := func(n int64) {
			enough := answered.Load() + 2*n + 1
			c.eventually(time.Minute, func() bool { return answered.Load() >= enough })
		}
		looks(beatsBefore)
		mu.Lock()
		time.Sleep(c.Slack() + time.Second)
		mu.Unlock()
		looks(1)
	}
	tries := 0
	silent := check("silent", func(c *C) {
		if tries++; tries == 1 {
			stop(c)
			c.Failf("the lock was lost")
		}
	})
	r := Collect(t, h, &Options{Filter: own, Checks: []Check{silent}, Artifacts: t.TempDir()})
	if res := r.Results[0]; res.Status != Passed || res.Attempts != 2 {
		t.Errorf("got %s after %d attempts: %s", res.Status, res.Attempts, res.Reason)
	}
	double := check("double", func(c *C) {
		stop(c)
		c.grantTwice()
		c.Failf("the lock was lost")
	})
	r = Collect(t, h, &Options{Filter: own, Checks: []Check{double}, Artifacts: t.TempDir()})
	if res := r.Results[0]; res.Status != Failed || res.Attempts != 1 {
		t.Errorf("one token was given out twice: got %s after %d attempts: %s", res.Status, res.Attempts, res.Reason)
	}
	r = Collect(t, h, &Options{Filter: own, Artifacts: t.TempDir(),
		Checks: []Check{check("healthy", func(c *C) { c.Failf("the lock was lost") })}})
	if res := r.Results[0]; res.Status != Failed {
		t.Errorf("got %s, although the store answers: %s", res.Status, res.Reason)
	}
}

// grantTwice has two clients get one name with one token.
func (c *C) grantTwice() {
	for _, who := range []string{"A", "B"} {
		e := oracle.Event{Op: oracle.OpTry, Client: who, Name: "x", TTL: time.Hour, Call: c.recorder.Stamp(), Outcome: oracle.OutcomeOK, Token: 1}
		e.Return = c.recorder.Stamp()
		c.recorder.Add(e)
	}
}

// TestSlowestTry: the TryLock by which a lock was taken counts, and of later ones those of other clients.
func TestSlowestTry(t *testing.T) {
	t.Parallel()
	counts := check("counts", func(c *C) {
		a, b := c.open("A"), c.open("B")
		a.mustTry(c.Name("before"), "which is fresh")
		h := a.mustTry(c.Name("its own"), "which is fresh")
		b.mustTry(c.Name("another's"), "which is fresh")
		a.mustTry(c.Name("later"), "which is fresh")
		var want time.Duration
		for _, e := range c.recorder.History().Events {
			if e.Op == oracle.OpTry && (e.Name == c.Name("its own") || e.Name == c.Name("another's")) {
				want = max(want, e.Return.At-e.Call.At)
			}
		}
		if got := c.slowestTry(h); got != want || want == 0 {
			c.Failf("got %v, want %v of %v", got, want, c.recorder.History().Events)
		}
	})
	r := Collect(t, stub{}, &Options{Filter: own, Checks: []Check{counts}, Artifacts: t.TempDir()})
	if res := r.Results[0]; res.Status != Passed {
		t.Errorf("got %s: %s", res.Status, res.Reason)
	}
}

// TestGrantIsNoSilence: a grant of a name that is held is a failure in real time, too, and no error of the store.
func TestGrantIsNoSilence(t *testing.T) {
	t.Parallel()
	granted := check("granted", func(c *C) { c.open("B").mustBeRefused(c.Name("x")) })
	r := Collect(t, stub{}, &Options{Filter: own, Checks: []Check{granted}, Artifacts: t.TempDir()})
	if res := r.Results[0]; res.Status != Failed || res.Attempts != 1 {
		t.Errorf("got %s after %d attempts: %s", res.Status, res.Attempts, res.Reason)
	}
}

// TestStoodStill: what fails while the machine or the store stands still is looked at again, unless it is about two holders or
// a token.
func TestStoodStill(t *testing.T) {
	t.Parallel()
	for clause, want := range map[string]Status{"E1": Passed, "P4": Passed, "H1": Failed, "F1": Failed} {
		tries := 0
		stood := check("stood", func(c *C) {
			if tries++; tries == 1 {
				c.noteStall(c.Unit())
				c.Failf("it was refused")
			}
		})
		stood.Clause = clause
		r := Collect(t, stub{}, &Options{Filter: own, Checks: []Check{stood}, Artifacts: t.TempDir()})
		if res := r.Results[0]; res.Status != want || tries != map[Status]int{Passed: 2, Failed: 1}[want] {
			t.Errorf("%s: got %s after %d attempts: %s", clause, res.Status, tries, res.Reason)
		}
	}
}
