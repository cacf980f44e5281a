package chaos_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/chaos"
	"github.com/distlock-go/distlock/internal/harness"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // each refused connection is a line
	harness.Main(m, open)
}

// number returns an environment variable as a number, or def.
func number(t *testing.T, name string, def uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q, allowed is a number", name, text)
	}
	return n
}

// seen is what came of a topology.
type seen struct {
	topology
	servers string              // kind and version
	suite   *conformance.Report // nil if the suite has not examined it
	faults  *chaos.Result       // nil if they have not come to their end
	trouble string              // why something of it is missing; empty if nothing is
}

// TestTopologies breaks each topology DISTLOCK_CHAOS_EVENTS times, by the seed
// DISTLOCK_CHAOS_SEED; without that number, one of each store a few times. If DISTLOCK_CHAOS_PAGE names a file, the suite examines each deployment
// before that, and what was seen is written to the file, failures included.
func TestTopologies(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts all servers")
	}
	p := page{events: int(number(t, "DISTLOCK_CHAOS_EVENTS", 4)), seed: number(t, "DISTLOCK_CHAOS_SEED", 1), began: time.Now()}
	file := os.Getenv("DISTLOCK_CHAOS_PAGE")
	rounds := 1
	if p.events >= 50 {
		rounds = 100
	}
	all := chosen()
	p.all = make([]*seen, len(all))
	t.Run("each", func(t *testing.T) {
		for i, top := range all {
			t.Run(top.name, func(t *testing.T) {
				t.Parallel()
				now := &seen{topology: top}
				// After each of them, also if it failed: the page has what there is if the run ends early.
				defer p.add(t, file, func() {
					if !t.Skipped() {
						p.all[i] = now
					}
				})
				now.look(t, file != "", p.events, p.seed)
			})
		}
		t.Run("a lock that was not replicated", func(t *testing.T) {
			t.Parallel()
			lost := unreplicated(t, rounds)
			p.add(t, file, func() { p.lost = lost })
		})
	})
}

// look examines and breaks a topology. It notes what is under way, as t may end it.
func (s *seen) look(t *testing.T, suite bool, events int, seed uint64) {
	s.trouble = "it could not be started"
	d := s.start(t)
	s.servers = fmt.Sprintf("%s %s", d.Servers[0].Kind(), d.Servers[0].Version())
	if s.topology.suite && suite {
		s.trouble = "the suite has not come to its end"
		s.suite = examine(t, d, seed)
		s.trouble = "it could not be started again for the faults"
		d = s.start(t) // the faults begin with servers to which nothing was done
	}
	s.trouble = "the faults have not come to their end"
	var err error
	if s.faults, err = broken(t, s.subject(d), events, seed); err != nil {
		s.faults, s.trouble = nil, s.trouble+": "+err.Error()
		t.Fatal(err)
	}
	s.trouble = ""
}

// examining bounds how many suites run side by side: each of them measures time.
var examining = make(chan struct{}, 2)

// examine has the suite examine a deployment.
func examine(t *testing.T, d deployment, seed uint64) *conformance.Report {
	examining <- struct{}{}
	defer func() { <-examining }()
	base := harness.OnStore(t, d.Store, open)
	var h conformance.Harness = base
	if d.alone != nil {
		h = blocking{base, d}
	}
	if d.failover != nil {
		h = failing{base, d.failover}
		// The suite asks what healthy servers do: they must not fail over for a busy machine.
		if err := d.failover.waitFor(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.failover.waitFor(t.Context(), downAfter); err != nil {
				t.Fatal(err)
			}
		}()
	}
	report := conformance.Verify(t.Context(), h, &conformance.Options{Seed: seed, Progress: func(r conformance.Result) {
		switch r.Status {
		case conformance.Failed:
			t.Error(r.Text())
		case conformance.Inconclusive:
			t.Log(r.Text())
		}
	}})
	t.Log(report.Summary())
	return &report
}

// blocking is the harness of a store with a server that can be made stuck.
type blocking struct {
	*harness.Harness
	d deployment
}

// BlockServer implements conformance.ServerBlocker.
func (h blocking) BlockServer(ctx context.Context) (func(string) bool, func() error, error) {
	first := h.d.Servers[0]
	return h.d.alone, func() error { return first.Resume(context.Background()) }, first.Pause(ctx)
}

// failing is the harness of a store that can fail over.
type failing struct {
	*harness.Harness
	*roles
}

var _ conformance.Failover = failing{}

func (h failing) Caps() conformance.Caps {
	caps := h.Harness.Caps()
	caps.Failover = conformance.Yes
	return caps
}

// broken breaks a topology while clients lock on it.
func broken(t *testing.T, s chaos.Subject, events int, seed uint64) (*chaos.Result, error) {
	result, err := chaos.Run(t.Context(), s, chaos.Params{
		Seed: seed, Events: events, Clients: 4, Names: 3,
		TTL: 2 * time.Second, Gap: 400 * time.Millisecond, Length: time.Second,
		Log: func(text string) { t.Log(text) },
	})
	if err != nil {
		return nil, err
	}
	t.Logf("%+v", *result)
	for _, f := range result.Findings {
		t.Error(f)
	}
	if result.Grants == 0 {
		t.Error("no lock was granted")
	}
	return result, nil
}
