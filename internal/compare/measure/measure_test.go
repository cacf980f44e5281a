package measure

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/sandbox"
	"github.com/distlock-go/distlock/memlock"
)

func memory(name string) Target { // no Bare: there are no commands
	store := memlock.NewStore(nil)
	return Target{
		Name: name, URL: "mem://" + name, Origin: "in this process",
		Open:    func(context.Context) (distlock.Locker, error) { return memlock.New(store, nil) },
		NoRoute: errors.New("there is no server"),
	}
}

func small() report.Params {
	return report.Params{Workloads: report.WorkloadIDs(), Duration: 50 * time.Millisecond, Rounds: 2, Clients: 4, Names: 4,
		Held: 8, Waiters: 5, TTL: 4 * time.Second, Rate: 200}
}

// Every figure must be there once a round, from every backend.
func TestRun(t *testing.T) {
	t.Parallel()
	steps := 0
	r, err := Run(t.Context(), []Target{memory("a"), memory("b")}, small(), func(Step) { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range r.Backends {
		if len(b.Failed) > 0 {
			t.Errorf("%s: %v", b.Name, b.Failed)
		}
		for _, f := range []report.Figure{report.SoloRate, report.ParallelRate, report.HotRate, report.HotJain, report.HotWorst, report.HandOff50, report.HandOff99} {
			if s := b.Figures[f]; len(s) != 2 || s[0] <= 0 || s[1] <= 0 {
				t.Errorf("%s: %s is %v, want 2 values above 0", b.Name, f, s)
			}
		}
		if j, _ := b.Figures[report.HotJain].Median(); j > 1.0001 || j < 0.25 {
			t.Errorf("%s: Jain's index of 4 clients is %v", b.Name, j)
		}
	}
	want := 1 // that it is done
	for _, w := range workloads {
		if w.bare {
			continue // memory has no commands
		}
		if w.warm {
			want += 2
		}
		if w.once {
			want += 2
		} else {
			want += 2 * 2
		}
	}
	if steps != want {
		t.Errorf("%d steps were told, want %d", steps, want)
	}
	if got := r.Backends[0].Unmeasured["traffic"]; !strings.Contains(got, "no server") {
		t.Errorf("why there is no traffic: %q", got)
	}
}

// What is done must be known for every workload that a report has a title for.
func TestWorkloads(t *testing.T) {
	for _, w := range report.Workloads {
		if workloads[w.ID].run == nil || workloads[w.ID].takes == nil {
			t.Errorf("nothing is done for the workload %q", w.ID)
		}
	}
	if len(workloads) != len(report.Workloads) {
		t.Errorf("there are %d workloads of %d titles", len(workloads), len(report.Workloads))
	}
}

// A backend that cannot be opened says so and does not stop the others.
func TestRunTellsOfFailure(t *testing.T) {
	t.Parallel()
	broken := memory("broken")
	broken.Open = func(context.Context) (distlock.Locker, error) { return nil, errors.New("no such server") }
	r, err := Run(t.Context(), []Target{broken, memory("fine")}, small(), func(Step) {})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Backends[0].Failed["open"], "no such server") || len(r.Backends[0].Failed) != 1 {
		t.Errorf("the failure is not told: %v", r.Backends[0].Failed)
	}
	if _, ok := r.Backends[1].Figures[report.SoloRate].Median(); !ok {
		t.Error("the other backend was not measured")
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := Run(ctx, []Target{memory("a")}, small(), func(Step) {})
	if err != nil || !r.Interrupted {
		t.Errorf("interrupted: %v, error %v", r.Interrupted, err)
	}
}

// A profile is allowed, and takes on five backends no longer than it should.
func TestProfiles(t *testing.T) {
	limits := map[string]time.Duration{"quick": 50 * time.Second, "standard": 150 * time.Second}
	for _, f := range Profiles {
		p, err := ProfileParams(f.Name)
		must(t, err)
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		var benches []*bench
		for range 5 {
			benches = append(benches, newBench(memory("one of five")))
		}
		limit := cmp.Or(limits[f.Name], 4*time.Minute)
		if takes := newEstimate(plan(benches, p), p).left(0); takes > limit {
			t.Errorf("%s takes about %v, want %v at the most", f.Name, takes, limit)
		}
	}
	if _, err := ProfileParams("none"); err == nil {
		t.Error("a profile that does not exist was found")
	}
}

// The remaining time must follow what the machine does, not the plan alone.
func TestEstimate(t *testing.T) {
	e := &estimate{expected: []time.Duration{10 * time.Second, 10 * time.Second, 20 * time.Second}}
	if got := e.left(0); got != 40*time.Second {
		t.Errorf("at the start: %v", got)
	}
	e.took(0, 21*time.Second) // 22 where 11 were expected, with the second of trust
	if got := e.left(1); got != time.Minute {
		t.Errorf("twice as slow: %v, want 1m", got)
	}
}

// mute is a store that never tells its version.
type mute struct {
	sandbox.Client
	asked int
}

func (m *mute) Commands() string { return "" }

func (m *mute) Version(ctx context.Context) string {
	m.asked++
	<-ctx.Done()
	return ""
}

// Which version it is need not be waited for where no Locker can be opened.
func TestVersionOfUnreached(t *testing.T) {
	m := new(mute)
	target := memory("unreached")
	target.Bare = func(context.Context) (sandbox.Client, error) { return m, nil }
	target.Open = func(context.Context) (distlock.Locker, error) { return nil, errors.New("nobody is there") }
	b := newBench(target)
	b.connect(t.Context())
	if m.asked != 0 || !b.refused || b.result.Failed["open"] == "" {
		t.Errorf("asked %d times; refused: %v, failed: %v", m.asked, b.refused, b.result.Failed)
	}
}

// Memory of the locks is given only where it is clear of what else the process has freed.
func TestWithinNoise(t *testing.T) {
	for _, tc := range []struct {
		grown, fell float64
		want        bool
	}{{4480, 1_000_000, true}, {1_010_000, 0, false}, {1_010_000, -300_000, false}, {1_010_000, 400_000, false}, {1_010_000, 600_000, true}, {-20, -40, true}, {0, 0, true}} {
		if got := withinNoise(tc.grown, tc.fell); got != tc.want {
			t.Errorf("%v bytes more, then %v less than before: within the noise: %v", tc.grown, tc.fell, got)
		}
	}
}

// Why the processor time of a server is not known is told; what is in this process has no server.
func TestWhyNoServerCPU(t *testing.T) {
	given, local := newBench(Target{Store: "redis"}), newBench(memory("local"))
	given.tellServerCPU()
	local.tellServerCPU()
	if why := given.result.Unmeasured["server_cpu"]; !strings.Contains(why, "not a local process") {
		t.Errorf("of a given server: %q", why)
	}
	if why := local.result.Unmeasured["server_cpu"]; why != "" {
		t.Errorf("in this process: %q", why)
	}
}
