package compare

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/mutants"
	"github.com/distlock-go/distlock/internal/place"
	"github.com/distlock-go/distlock/memlock"
)

// lightDose is enough to see a flaw. Its patience is what a driver with one costs.
func lightDose() dose {
	return dose{
		ttl: 2 * time.Second, repeats: 2, waiters: 100, stress: 4 * time.Second, queue: 4,
		longTTL: 20 * time.Second, restartTTL: 3 * time.Second, spell: 200 * time.Millisecond, maxAttempts: 3,
		patience: 10 * time.Second,
	}
}

// run exposes a target to one hazard.
func run(t *testing.T, target Target, id Hazard, d dose) Outcome {
	t.Helper()
	b := &Backend{Name: target.Name}
	l, err := newLab(t.Context(), b, target, d)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, h := range hazards {
		if h.id == id {
			if why := h.lacks(target.Rig); why != "" {
				t.Fatal(why)
			}
			o := l.outcome(t.Context(), h.run)
			t.Logf("%s: %+v", id, o)
			return o
		}
	}
	t.Fatalf("no hazard is called %s", id)
	return Outcome{}
}

// over is a target over drivers that share what they like, with a network between.
func over(name string, driver func() distlock.Driver) Target {
	return Target{
		Name: name,
		Open: func(context.Context) (distlock.Locker, error) { return distlock.New(driver(), nil) },
		Rig: Rig{Route: func() (*Route, error) {
			link := conformance.NewCallLink()
			return &Route{
				Link: link,
				Open: func(context.Context, time.Duration) (distlock.Locker, error) {
					return distlock.New(link.Driver(driver()), nil)
				},
				Close: func() error { link.Close(); return nil },
			}, nil
		}},
	}
}

func sound() Target {
	store := memlock.NewStore(nil)
	return over("sound", func() distlock.Driver { return memlock.NewDriver(store) })
}

// mutant is a target over one of the suite's broken drivers.
func mutant(t *testing.T, name string) Target {
	t.Helper()
	all := mutants.All()
	i := slices.IndexFunc(all, func(m mutants.Mutant) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no mutant is called %s", name)
	}
	h := all[i].Harness().(conformance.Scoped).ForCheck(nil).(interface {
		conformance.Harness
		conformance.Proxy
	})
	return Target{
		Name: name,
		Open: func(ctx context.Context) (distlock.Locker, error) { return h.Open(ctx, nil) },
		Rig: Rig{Route: func() (*Route, error) {
			r := &Route{Close: func() error { return nil }}
			r.Open = func(ctx context.Context, _ time.Duration) (l distlock.Locker, err error) {
				l, r.Link, err = h.OpenVia(ctx, nil)
				return l, err
			}
			return r, nil
		}},
	}
}

// A driver that keeps the contract is not accused of anything, however slow the
// machine is: then there is nothing to tell.
func TestHazardsAcquitTheSound(t *testing.T) {
	for _, id := range []Hazard{CutOffHolder, CancelledWaiter, Herd, Fairness, DoubleGrants} {
		t.Run(string(id), func(t *testing.T) {
			t.Parallel()
			if o := run(t, sound(), id, lightDose()); o.Verdict == Bad {
				t.Errorf("%s: %s (%s)", o.Verdict, o.Text, o.Detail)
			} else if o.Verdict != Unmeasured && len(o.Values) == 0 {
				t.Errorf("%s without a value: %+v", o.Verdict, o)
			}
		})
	}
	t.Run(string(ServerRestart), func(t *testing.T) {
		t.Parallel()
		if o := run(t, restartable(false), ServerRestart, lightDose()); o.Verdict == Bad {
			t.Errorf("%s: %s (%s)", o.Verdict, o.Text, o.Detail)
		}
	})
}

// Every hazard that needs no second process convicts a driver with that flaw.
func TestHazardsConvict(t *testing.T) {
	d := lightDose()
	d.patience = 4 * time.Second // nobody is waited for here who would still come
	for _, tc := range []struct {
		hazard Hazard
		target Target
		says   string
	}{
		{CutOffHolder, mutant(t, "SilentLoss"), "NOT told"},
		{CutOffHolder, boastful(), "told"},
		{CancelledWaiter, mutant(t, "GhostWaiter"), "queue stays"},
		{CancelledWaiter, unseen(mutant(t, "LateGrant")), "leftover"},
		{Herd, waking(), "wakes everybody"},
		{Fairness, lastFirst(), "out of order"},
		{DoubleGrants, mutant(t, "BlindUnlock"), "in "},
		{DoubleGrants, mutant(t, "UpMeansGot"), "in "},
		{ServerRestart, restartable(true), "lost and NOT told"},
	} {
		t.Run(string(tc.hazard)+"/"+tc.target.Name, func(t *testing.T) {
			t.Parallel()
			if o := run(t, tc.target, tc.hazard, d); o.Verdict != Bad || !strings.Contains(o.Text, tc.says) {
				t.Errorf("%s: %q (%s), want bad and %q", o.Verdict, o.Text, o.Detail, tc.says)
			}
		})
	}
}

// TestHazardsReport looks at what becomes of the outcomes.
func TestHazardsReport(t *testing.T) {
	t.Parallel()
	inProcess := memory("memory")
	inProcess.Rig.InProcess = true
	broken := memory("broken")
	broken.Open = func(context.Context) (distlock.Locker, error) { return nil, errors.New("no such server") }
	r := &Report{Backends: []*Backend{{Name: "memory"}, {Name: "broken"}}}
	targets := []Target{inProcess, broken}
	d := lightDose()
	d.stress = 200 * time.Millisecond
	var told []Step
	Describe(t.Context(), r, targets)
	expose(t.Context(), r, targets, d, func(s Step) { told = append(told, s) })
	for _, b := range r.Backends {
		for _, h := range hazards {
			if o := b.Safety[h.id]; o.Text == "" || o.Verdict == "" {
				t.Errorf("%s: nothing is said of %s", b.Name, h.id)
			}
		}
	}
	mem, bad := r.Backends[0], r.Backends[1]
	for _, id := range []Hazard{KilledHolder, StalledHolder, CutOffHolder, ServerRestart, Herd} {
		if o := mem.Safety[id]; o.Verdict != Unmeasured || o.Text != noServer {
			t.Errorf("%s in this process: %+v", id, o)
		}
	}
	if len(mem.Facts) != len(factTitles) || len(bad.Facts) != 0 {
		t.Errorf("facts: %d of memory, %d of a backend that is not there", len(mem.Facts), len(bad.Facts))
	}
	if o := bad.Safety[Fairness]; o.Verdict != Unmeasured || !strings.Contains(o.Detail, "no such server") {
		t.Errorf("of a backend that is not there: %+v", o)
	}
	if o := bad.Safety[KilledHolder]; o.Text != noChild {
		t.Errorf("without a second process: %+v", o)
	}
	if last := told[len(told)-1]; len(told) != 2*len(hazards) || last.Done != last.Total {
		t.Errorf("%d steps were told, the last one %+v", len(told), last)
	}
}

// An interrupted run says what it has not measured, and ends soon.
func TestHazardsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := &Report{Backends: []*Backend{{Name: "sound"}}}
	time.AfterFunc(time.Second, cancel)
	expose(ctx, r, []Target{sound()}, lightDose(), func(Step) {})
	if o := r.Backends[0].Safety[DoubleGrants]; o.Verdict != Unmeasured || !strings.Contains(o.Text, "interrupted") || !r.Interrupted {
		t.Errorf("interrupted: %+v, the report says %v", o, r.Interrupted)
	}
}

func TestFactsOfEveryDriver(t *testing.T) {
	for backend := range storeFacts {
		fs := facts(distlock.Capabilities{Backend: backend, Durability: distlock.Restart})
		for i, f := range fs {
			if f.ID != factTitles[i].id || f.Title == "" || f.Text == "" {
				t.Errorf("%s: fact %d is %+v, want %s", backend, i, f, factTitles[i].id)
			}
		}
		if len(fs) != len(factTitles) {
			t.Errorf("%s has %d facts of %d", backend, len(fs), len(factTitles))
		}
	}
	if fs := facts(distlock.Capabilities{Backend: "else"}); len(fs) != 3 {
		t.Errorf("of a driver that is not known here: %v", fs)
	}
}

// What a URL alone allows: a proxy before a single server, and clients of any TTL
// unless it names one.
func TestRigOfURL(t *testing.T) {
	for _, tc := range []struct{ url, addr, ttl string }{
		{"redis://u:p@h/0", "h:6379", "2s"},
		{"zk://h:1?ttl=7s", "h:1", "7s"},
		{"zk://a,b/chroot", "", "2s"},
		{"rediss://h", "", "2s"},
		{"own://h:1", "h:1", "2s"},
		{"own://h", "", "2s"}, // nobody knows its port
		{"own://a:1,b:1", "", "2s"},
	} {
		p, err := place.New(tc.url, "compare")
		if err != nil {
			t.Fatal(err)
		}
		if got := proxied(p); got != tc.addr {
			t.Errorf("a proxy before %s would stand before %q, want %q", tc.url, got, tc.addr)
		}
		head, query, _ := strings.Cut(leased(p, "127.0.0.1:9", 2*time.Second), "?")
		if !strings.Contains(query, "ttl="+tc.ttl) || strings.Count(query, "ttl=") != 1 || !strings.Contains(head, "127.0.0.1:9") {
			t.Errorf("%s by way of a proxy for a TTL of 2s: %s?%s", tc.url, head, query)
		}
		if r := newRig(&shared{place: p}); r.InProcess || r.Control != nil || (r.Route != nil) != (tc.addr != "") {
			t.Errorf("%s: %+v", tc.url, r)
		}
	}
	mem, err := place.New("mem://x", "compare")
	if err != nil {
		t.Fatal(err)
	}
	if r := newRig(&shared{place: mem}); !r.InProcess || r.Route != nil || r.Child != nil {
		t.Errorf("of a store in this process: %+v", r)
	}
}
