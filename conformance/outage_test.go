package conformance

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
)

// TestSlowOpeningsAccuseNobody: a client that takes its time to open makes a check inconclusive that fails meanwhile, and no other;
// the looks, which have a connection, are answered at once.
func TestSlowOpeningsAccuseNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := newOutages(func(context.Context) error { return nil })
		go o.watch(ctx)
		why := func(opened ...time.Duration) string {
			time.Sleep(time.Minute)
			began := time.Now()
			for _, took := range opened {
				from := time.Now()
				time.Sleep(took)
				o.note(from, nil)
			}
			return o.since(began)
		}
		if got := why(lookPatience/2, 3*lookPatience, lookPatience/2); !strings.Contains(got, "for 3.25s meanwhile") {
			t.Errorf("beside a slow opening: %q", got)
		}
		if got := why(lookPatience/2, lookPatience/2, lookPatience/2); got != "" {
			t.Errorf("beside quick openings: %q", got)
		}
		cancel()
		<-o.ended
		if got := o.outage(); got.Lasted != 3*lookPatience+beatEvery || got.Last != nil {
			t.Errorf("told is %+v, want the time of the slow opening", got)
		}
	})
}

// TestOutageIsOne: looks that fail one after the other are one outage, with the breaks between them.
func TestOutageIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var down atomic.Bool
		full := errors.New("too many connections")
		o := newOutages(func(context.Context) error {
			if down.Load() {
				return full
			}
			return nil
		})
		go o.watch(ctx)
		began := time.Now()
		time.Sleep(time.Second)
		if why := o.since(began); why != "" {
			t.Errorf("before: %q", why)
		}
		down.Store(true)
		time.Sleep(time.Minute)
		if why := o.since(began); !strings.Contains(why, full.Error()) {
			t.Errorf("meanwhile: %q", why)
		}
		down.Store(false)
		time.Sleep(time.Second)
		if why := o.since(time.Now()); why != "" {
			t.Errorf("after: %q", why)
		}
		cancel()
		<-o.ended
		if got := o.outage(); got.Lasted.Round(time.Second) != time.Minute || !errors.Is(got.Last, full) || len(o.spans) != 1 {
			t.Errorf("told is %+v of %d outages", got, len(o.spans))
		}
	})
}

// TestOutageAccusesNobody: what fails while a look does is inconclusive, also of a check that runs alone, and so is a check that
// gets no client; what an oracle finds stays a failure.
func TestOutageAccusesNobody(t *testing.T) {
	t.Parallel()
	gone := errors.New("no route to the store")
	alone := check("alone", func(c *C) { c.Failf("the lock was lost") })
	alone.Alone = true
	double := check("double", (*C).grantTwice)
	for _, k := range []struct {
		look   error
		checks []Check
		want   []Status
	}{
		{gone, []Check{alone, double}, []Status{Inconclusive, Failed}},
		{nil, []Check{check("unopened", func(c *C) { c.open("A") })}, []Status{Inconclusive}},
	} {
		h := &unopened{stub: stub{memlock.NewStore(nil)}, err: gone}
		r := Collect(t, h, &Options{Filter: own, Checks: k.checks, Artifacts: t.TempDir(), Look: func(context.Context) error { return k.look }})
		for i, res := range r.Results {
			if res.Status != k.want[i] {
				t.Errorf("%s, the look says %v: got %s: %s", res.ID, k.look, res.Status, res.Reason)
			}
		}
		if r.Outage.Checks != 1 || !errors.Is(r.Outage.Last, gone) {
			t.Errorf("told is %+v", r.Outage)
		}
	}
}

// unopened is a harness that opens clients before the first check, and then no more.
type unopened struct {
	stub
	err error
}

func (h *unopened) ForCheck(*C) Harness { return h }

func (h *unopened) Open(_ context.Context, c *C) (distlock.Locker, error) {
	if c.ID() == "calibration" || c.ID() == "pulse" {
		return memlock.New(h.store, nil)
	}
	return nil, h.err
}
