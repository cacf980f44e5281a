package conformance

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/conformance/oracle"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// stub is a harness over memlock with a clean declaration, for tests of the suite.
type stub struct{ store *memlock.Store }

func (h stub) ForCheck(*C) Harness { return stub{memlock.NewStore(nil)} }

func (h stub) Open(context.Context, *C) (distlock.Locker, error) { return memlock.New(h.store, nil) }

func (h stub) Caps() Caps {
	return Caps{Backend: "stub", Fair: Yes, Push: Yes, Durable: No, Quorum: No,
		Inspector: No, Proxy: No, Process: No, ServerClock: No, Failover: No, Namespaces: No, Child: No}
}

func (h stub) Timing() Timing {
	return TimingFrom(memlock.NewDriver(memlock.NewStore(nil)).Capabilities())
}

// own selects the checks of a test.
func own(k Check) bool { return k.Group() == "own" }

func check(name string, run func(*C)) Check {
	return Check{ID: "own/" + name, Clause: "H1", Rule: "the rule of " + name, Run: run}
}

// collect runs nothing but the checks, and returns the results by the name.
func collect(t *testing.T, checks ...Check) map[string]Result {
	t.Helper()
	return collectWith(t, Options{Checks: checks})
}

func collectWith(t *testing.T, o Options) map[string]Result {
	t.Helper()
	o.VirtualTime, o.Filter, o.Artifacts = true, own, t.TempDir()
	results := make(map[string]Result)
	for _, r := range Collect(t, stub{}, &o).Results {
		results[strings.TrimPrefix(r.ID, "own/")] = r
	}
	return results
}

func TestOutcomes(t *testing.T) {
	var units []time.Duration
	got := collect(t,
		check("passes", func(c *C) { c.open("A").mustTry(c.Name("x"), "which is fresh").free() }),
		check("fails", func(c *C) { c.Failf("seen %d", 7) }),
		check("fails-in-helper", func(c *C) {
			c.Go(func() { c.Failf("seen by the helper") })
			<-c.Context().Done()
			c.Failf("a consequence")
		}),
		check("panics", func(*C) { panic("oh") }),
		check("fails-in-cleanup", func(c *C) { c.Cleanup(func() { c.Failf("left over") }) }),
		check("skips", func(c *C) { c.Skipf("not here") }),
		check("inconclusive", func(c *C) {
			units = append(units, c.Unit())
			c.Inconclusivef("too slow")
		}),
		check("second-time-lucky", func(c *C) {
			if c.Unit() == virtualUnit {
				c.Inconclusivef("too slow")
			}
		}),
	)
	for name, want := range map[string]struct {
		status   Status
		reason   string
		attempts int
	}{
		"passes":            {Passed, "", 1},
		"fails":             {Failed, "seen 7", 1},
		"fails-in-helper":   {Failed, "seen by the helper", 1},
		"panics":            {Failed, "panic: oh", 1},
		"fails-in-cleanup":  {Failed, "left over", 1},
		"skips":             {Skipped, "not here", 1},
		"inconclusive":      {Inconclusive, "too slow", maxAttempts},
		"second-time-lucky": {Passed, "", 2},
	} {
		r, ok := got[name]
		if !ok || r.Status != want.status || !strings.HasPrefix(r.Reason, want.reason) || r.Attempts != want.attempts {
			t.Errorf("%s: got %s, %q, %d attempts, want %+v", name, r.Status, r.Reason, r.Attempts, want)
		}
	}
	if want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute}; !slices.Equal(units, want) {
		t.Errorf("an inconclusive check was tried with the units %v, want %v", units, want)
	}
}

// TestWatchdog: a check that hangs fails when its time is over, and says where.
func TestWatchdog(t *testing.T) {
	got := collect(t, check("hangs", func(c *C) {
		a := c.open("A")
		h := a.mustTry(c.Name("x"), "which is fresh", distlock.TTL(time.Hour))
		_ = a.acquire(c.Context(), oracle.OpLock, h.Name(), distlock.TTL(time.Hour))
	}))
	r := got["hangs"]
	if r.Status != Failed || !strings.Contains(r.Reason, "did not end within") || !strings.Contains(r.Reason, "suite_test.go") {
		t.Errorf("got %s: %s", r.Status, r.Reason)
	}
}

// TestWatchdogEndsWaiting: a driver that says its lease lasts for years does not have
// the check wait for them.
func TestWatchdogEndsWaiting(t *testing.T) {
	got := collect(t, check("waits", func(c *C) {
		began := c.now()
		defer func() {
			if waited := c.now() - began; waited > time.Hour {
				t.Errorf("waited for %v", waited)
			}
		}()
		c.within(make(chan struct{}), 10*365*24*time.Hour)
	}))
	if r := got["waits"]; r.Status != Failed || !strings.Contains(r.Reason, "did not end within") {
		t.Errorf("got %s: %s", r.Status, r.Reason)
	}
}

// TestTimelineOfTheName: a failure that quotes a name shows what was done to it, and
// counts the rest; one that quotes none shows all.
func TestTimelineOfTheName(t *testing.T) {
	events := []oracle.Event{{Name: "a"}, {Name: "ab"}, {Name: "b"}, {Name: "a"}}
	for reason, want := range map[string][2]int{`B was granted "a"`: {2, 2}, `"ab" and "b"`: {2, 2}, "nothing is left": {4, 0}} {
		if kept, others := concerned(events, reason); len(kept) != want[0] || others != want[1] {
			t.Errorf("%s: kept %d, left out %d, want %v", reason, len(kept), others, want)
		}
	}
	if lines := timeline(concerned(events, `"a"`)); !strings.Contains(lines[len(lines)-1], "2 operations on other names") {
		t.Errorf("got %q", lines)
	}
}

// TestConvict: what the oracles find fails a check that has found nothing itself, an
// inconclusive one as well; it is not tried again.
func TestConvict(t *testing.T) {
	for _, verdict := range []func(*C){func(*C) {}, func(c *C) { c.Inconclusivef("too slow") }} {
		overlaps := check("overlaps", func(c *C) {
			a, b := c.open("A"), c.open("B")
			b.locker = patterns.Prefix(b.locker, "elsewhere/") // so both get it
			name := c.Name("x")
			a.mustTry(name, "which is fresh")
			b.mustTry(name, "which is fresh elsewhere")
			c.sleep(time.Second)
			verdict(c)
		})
		overlaps.Clause = "A3" // the verdict is about another
		got := collect(t, overlaps)
		r := got["overlaps"]
		if r.Status != Failed || !strings.Contains(r.Reason, "interval oracle") || r.Clause != "H1" || r.Attempts != 1 {
			t.Errorf("got %s after %d attempts: %s", r.Status, r.Attempts, r.Reason)
		}
		if len(r.Artifacts) == 0 || !strings.HasSuffix(r.Artifacts[0], "own-overlaps.jsonl") {
			t.Errorf("the history was not saved: %q", r.Artifacts)
		}
	}
}

// The histories of a run are in one directory.
func TestHistoriesOfARun(t *testing.T) {
	holds := func(c *C) {
		c.open("A").mustTry(c.Name("x"), "which is fresh").free()
		c.Failf("seen")
	}
	got := collect(t, check("first", holds), check("second", holds))
	first, second := got["first"].Artifacts, got["second"].Artifacts
	if len(first) == 0 || len(second) == 0 || first[0] == second[0] || filepath.Dir(first[0]) != filepath.Dir(second[0]) {
		t.Errorf("the histories are in %q and %q", first, second)
	}
}

func TestPinnedSkips(t *testing.T) {
	pass, skip := func(*C) {}, func(c *C) { c.Skipf("not here") }
	got := collectWith(t, Options{
		Checks: []Check{check("pass", pass), check("pass-listed", pass), check("skip", skip), check("skip-listed", skip)},
		Skips:  []string{"own/pass-listed", "own/skip-listed"},
	})
	for name, want := range map[string]struct {
		status Status
		reason string
	}{
		"pass":        {Passed, ""},
		"pass-listed": {Failed, "remove it from the list"},
		"skip":        {Failed, "Options.Skips does not list it"},
		"skip-listed": {Skipped, "not here"},
	} {
		if r := got[name]; r.Status != want.status || !strings.Contains(r.Reason, want.reason) {
			t.Errorf("%s: got %s: %s, want %+v", name, r.Status, r.Reason, want)
		}
	}
}

// TestNeeds: a check is skipped if its capability is absent or not declared, and fails
// if nothing has such a name.
func TestNeeds(t *testing.T) {
	absent, unknown := check("absent", func(c *C) { c.Failf("it ran") }), check("unknown", func(*C) {})
	absent.Needs, unknown.Needs = []Cap{capFair, capProxy}, []Cap{"Proxy"}
	got := collect(t, absent, unknown)
	if r := got["absent"]; r.Status != Skipped || r.Reason != "needs the capability proxy, which is declared as no" {
		t.Errorf("got %s: %s", r.Status, r.Reason)
	}
	if r := got["unknown"]; r.Status != Failed || !strings.Contains(r.Reason, "no such capability") {
		t.Errorf("got %s: %s", r.Status, r.Reason)
	}
	r := Collect(t, undeclared{}, &Options{VirtualTime: true, Filter: own, Artifacts: t.TempDir(), Checks: []Check{absent}}).Results[0]
	if r.Status != Skipped || r.Reason != "needs the capability fair, which is not declared" {
		t.Errorf("got %s: %s", r.Status, r.Reason)
	}
}

// undeclared is a harness without any thought in it.
type undeclared struct{ stub }

func (undeclared) ForCheck(*C) Harness { return undeclared{stub{memlock.NewStore(nil)}} }
func (undeclared) Caps() Caps          { return Caps{Proxy: Yes} }
func (undeclared) Timing() Timing      { return Timing{MinTTL: time.Second} }

func TestMetaCatchesOmissions(t *testing.T) {
	report := Collect(t, undeclared{}, &Options{VirtualTime: true, Artifacts: t.TempDir(),
		Filter: func(k Check) bool { return k.Group() == "meta" }})
	for id, fragments := range map[string][]string{
		"meta/caps-declared":   {"fair is not declared", "proxy is declared present, but", "Backend is empty"},
		"meta/timing-declared": {"TTLGranularity is 0s", "WakeLag is 0s", "CleanupBound is 0s"},
		"meta/driver-agrees":   {"MinTTL: the harness says 1s, the driver's Capabilities say 1ms", "Fair"},
	} {
		r, _ := report.Result(id)
		for _, f := range fragments {
			if r.Status != Failed || !strings.Contains(r.Reason, f) {
				t.Errorf("%s: %s: %q is not in: %s", id, r.Status, f, r.Reason)
			}
		}
	}
}

// TestFailureText: a failure says what a driver's author needs, and nothing twice.
func TestFailureText(t *testing.T) {
	r := collectWith(t, Options{Seed: 42, Checks: []Check{check("fails", func(c *C) {
		a, b := c.open("A"), c.open("B")
		h := a.mustTry(c.Name("x"), "which is fresh")
		for range 50 {
			b.mustBeBusy(h.Name(), h)
		}
		c.Logf("a hint")
		c.Failf("seen\nin two lines")
	})}})["fails"]
	text := r.Text()
	for _, want := range []string{
		"own/fails failed (clause H1)", "rule:     the rule of fails", "seen:     seen\n            in two lines",
		"A TryLock(", "… 48 more with this outcome …", "token 1", "a hint", "seed 42", "own-fails.jsonl", "run the check own/fails with seed 42",
	} {
		if strings.Count(text, want) != 1 && want != "A TryLock(" && want != "seed 42" || !strings.Contains(text, want) {
			t.Errorf("%q is not once in:\n%s", want, text)
		}
	}
}

// TestVerify runs some real checks in real time, side by side, and renders the
// report in every way.
func TestVerify(t *testing.T) {
	var told []string
	report := Verify(t.Context(), stub{}, &Options{
		Parallel: 4, Artifacts: t.TempDir(),
		Filter:   func(k Check) bool { return k.Group() == "core" || k.Group() == "own" },
		Checks:   []Check{check("fails", func(c *C) { c.Failf("seen <1 & 2>") })},
		Progress: func(r Result) { told = append(told, r.ID) },
	})
	if report.OK() || report.Count(Failed) != 1 || report.Count(Passed) < 7 || report.Trouble != "" {
		t.Errorf("%s", report.Summary())
		for _, r := range report.Results {
			t.Logf("%s", r.Text())
		}
	}
	var ids []string
	for _, r := range report.Results {
		ids = append(ids, r.ID)
	}
	slices.Sort(told)
	sorted := slices.Sorted(slices.Values(ids))
	if !slices.Equal(told, sorted) {
		t.Errorf("progress was told of %v, the results are %v", told, sorted)
	}
	if ids[len(ids)-1] != "own/fails" {
		t.Errorf("the results are not in the order of the table: %v", ids)
	}
	for _, c := range report.Clauses() {
		if c.Clause == "H1" && (c.Counts[Failed] != 1 || !slices.Equal(c.Failed, []string{"own/fails"})) {
			t.Errorf("clause H1: %+v", c)
		}
	}
	var b strings.Builder
	var back Report
	if err := errors.Join(report.WriteJSON(&b), json.Unmarshal([]byte(b.String()), &back)); err != nil || len(back.Results) != len(ids) {
		t.Errorf("the JSON does not come back: %v", err)
	}
	b.Reset()
	var suite junitSuite
	if err := errors.Join(report.WriteJUnit(&b), xml.Unmarshal([]byte(b.String()), &suite)); err != nil {
		t.Fatalf("the XML does not come back: %v", err)
	}
	last := suite.Cases[len(suite.Cases)-1]
	if suite.Failures != 1 || last.Name != "own/fails" || last.Failure == nil || last.Failure.Message != "seen <1 & 2>" {
		t.Errorf("got %+v", suite)
	}
}

// TestVerifyInterrupted: when the context ends, the run ends, and accuses nobody.
func TestVerifyInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report := Verify(ctx, stub{}, &Options{Parallel: 1, Filter: own, Checks: []Check{
		check("interrupted", func(c *C) {
			cancel()
			a := c.tryAfter()
			c.Failf("a consequence: %v", a)
		}),
		check("left-out", func(c *C) { c.Failf("it ran") }),
	}})
	if !report.OK() || len(report.Results) != 1 || report.Results[0].Status != Inconclusive {
		t.Errorf("got %+v", report.Results)
	}
}

func (c *C) tryAfter() error {
	<-c.ctx.Done()
	return c.ctx.Err()
}

// TestTable: the table is in order, so that reports and skip lists can rely on it.
func TestTable(t *testing.T) {
	id, clause := regexp.MustCompile(`^[a-z]+/[a-z0-9-]+$`), regexp.MustCompile(`^([AHEFINOPWCX][1-9]|meta)$`)
	seen := make(map[string]bool)
	for _, k := range Checks() {
		if !id.MatchString(k.ID) || seen[k.ID] {
			t.Errorf("the ID %q is malformed or not unique", k.ID)
		}
		seen[k.ID] = true
		if !clause.MatchString(k.Clause) {
			t.Errorf("%s: clause %q", k.ID, k.Clause)
		}
		if k.Rule == "" || strings.HasSuffix(k.Rule, ".") || k.Run == nil {
			t.Errorf("%s: the rule is no sentence without a full stop, or there is nothing to run", k.ID)
		}
		for _, need := range k.Needs {
			if !slices.ContainsFunc(Caps{}.all(), func(cs capSupport) bool { return cs.cap == need }) {
				t.Errorf("%s needs %q, which is no capability", k.ID, need)
			}
		}
	}
}

// TestSchedule: what is said to take long is in the table, and does not run alone. In real time checks run side by
// side, those that are heavy two at a time, and those that must run alone after all others.
func TestSchedule(t *testing.T) {
	table := Checks()
	for i, id := range longest {
		k := slices.IndexFunc(table, func(k Check) bool { return k.ID == id })
		if k < 0 || table[k].Alone || slices.Index(longest, id) != i {
			t.Errorf("%s is not in the table, or runs alone, or is listed twice", id)
		}
	}
	var running, heavy atomic.Int32
	var met sync.WaitGroup
	met.Add(3)
	busy := func(c *C) {
		if n := heavy.Add(1); n > maxHeavy {
			c.Failf("%d heavy checks run at a time", n)
		}
		time.Sleep(time.Millisecond)
		heavy.Add(-1)
	}
	meets := func(c *C) { // each waits for the others
		running.Add(1)
		defer running.Add(-1)
		met.Done()
		met.Wait()
	}
	checks := []Check{
		check("alone", func(c *C) {
			if n := running.Load(); n != 0 {
				c.Failf("%d others run", n)
			}
		}),
		check("meets-1", meets), check("meets-2", meets), check("meets-3", meets),
	}
	checks[0].Alone, checks[1].Heavy = true, true
	for i := range 5 {
		k := check(fmt.Sprint("heavy-", i), busy)
		k.Heavy = true
		checks = append(checks, k)
	}
	report := Verify(t.Context(), stub{}, &Options{Parallel: 3, Artifacts: t.TempDir(), Filter: own, Checks: checks})
	if n := report.Count(Passed); n != len(checks) {
		t.Errorf("%d of %d checks have passed: %s", n, len(checks), report.Summary())
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern string
		want    bool
	}{
		{"", true}, {"TestX", true}, {"^TestX$/own", true}, {"TestX/own/a-b", true}, {"/own", true},
		{"TestY", false}, {"TestX/core", false}, {"TestX/own/c", false}, {"TestX/(", false},
	} {
		if got := matches(c.pattern, "TestX/own/a-b"); got != c.want {
			t.Errorf("matches(%q) = %v", c.pattern, got)
		}
	}
	if got := "^" + testPattern("TestX/own/a.b") + "$"; got != `^TestX$/^own$/^a\.b$` || !matches(got, "TestX/own/a.b") {
		t.Errorf("got %q", got)
	}
}

// absent is a harness that has what it declares absent, and fails when it is used.
type absent struct {
	stub
	t *testing.T
}

func (h absent) ForCheck(*C) Harness { return absent{stub{memlock.NewStore(nil)}, h.t} }

func (h absent) OpenVia(context.Context, *C) (distlock.Locker, netfault.Link, error) {
	h.t.Error("OpenVia was called, although a proxy is declared absent")
	return nil, nil, errors.New("it does not work here")
}

func (h absent) Waiters(context.Context, string) (int, error) {
	h.t.Error("Waiters was called, although an inspector is declared absent")
	return 0, errors.New("it does not work here")
}

func (h absent) Records(ctx context.Context, name string) (int, error) { return h.Waiters(ctx, name) }
func (h absent) Delete(context.Context, string) error                  { return nil }

func (h absent) OpenIn(context.Context, *C, string) (distlock.Locker, error) {
	h.t.Error("OpenIn was called, although namespaces are declared absent")
	return nil, errors.New("it does not work here")
}

// TestAbsentIsNotUsed: an interface that a harness implements and declares absent is
// not used, by any check, in any situation of a name, or, under -race, in a sample of them.
func TestAbsentIsNotUsed(t *testing.T) {
	collect := func(sample bool, of func(group string) bool) []Result {
		o := Options{VirtualTime: true, Sample: sample, Artifacts: t.TempDir(), Filter: func(k Check) bool { return of(k.Group()) }}
		return Collect(t, absent{t: t}, &o).Results
	}
	table := collect(raceEnabled, func(group string) bool { return group == "after" })
	for _, r := range append(table, collect(true, func(group string) bool { return group != "after" && group != "meta" })...) {
		if r.Status == Failed || r.Status == Inconclusive {
			t.Errorf("memlock without an inspector and a proxy is accused: %s", r.Text())
		}
	}
}
