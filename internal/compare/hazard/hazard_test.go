package hazard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/virtual"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/sandbox"
	"github.com/distlock-go/distlock/memlock"
)

// lightParams are enough to see a flaw. Their patience is what a driver with one costs.
func lightParams() params {
	return params{
		ttl: 2 * time.Second, repeats: 2,
		longTTL: 20 * time.Second, restartTTL: 3 * time.Second, maxAttempts: 3,
		patience: 10 * time.Second,
	}
}

// target is a backend and what can be done to it.
type target struct {
	name string
	Rig
}

// one exposes a target to one hazard.
func one(t *testing.T, target target, id report.Hazard, p params) report.Outcome {
	t.Helper()
	e, err := newEnv(t.Context(), &report.Backend{Name: target.name}, target.Rig, p)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	for _, h := range hazards {
		if h.id == id {
			if why := h.lacks(target.Rig); why != "" {
				t.Fatal(why)
			}
			o := e.outcome(t.Context(), h.run)
			t.Logf("%s: %+v", id, o)
			return o
		}
	}
	t.Fatalf("no hazard is called %s", id)
	return report.Outcome{}
}

// over is a target over drivers that share what they like, with a network between.
func over(name string, make func() driver.Driver) target {
	return target{name, Rig{
		Open: func(context.Context, time.Duration) (distlock.Locker, error) { return driver.New(make(), nil) },
		Route: func() (*Route, error) {
			link := virtual.NewLink()
			return &Route{
				Link: link,
				Open: func(context.Context, time.Duration) (distlock.Locker, error) {
					return driver.New(link.Driver(make()), nil)
				},
				Close: func() error { link.Close(); return nil },
			}, nil
		},
	}}
}

func sound() target {
	store := memlock.NewStore(nil)
	return over("sound", func() driver.Driver { return memlock.NewDriver(store) })
}

// A driver that keeps the contract is not accused of anything, however slow the
// machine is: then there is nothing to tell.
func TestHazardsAcquitTheSound(t *testing.T) {
	for _, id := range []report.Hazard{report.CutOffHolder, report.Herd} { // of the others, see TestRun
		t.Run(string(id), func(t *testing.T) {
			t.Parallel()
			if o := one(t, sound(), id, lightParams()); o.Verdict == report.Bad {
				t.Errorf("%s: %s (%s)", o.Verdict, o.Text, o.Detail)
			}
		})
	}
	t.Run(string(report.ServerRestart), func(t *testing.T) {
		t.Parallel()
		if o := one(t, restartable(false), report.ServerRestart, lightParams()); o.Verdict == report.Bad {
			t.Errorf("%s: %s (%s)", o.Verdict, o.Text, o.Detail)
		}
	})
}

// Every hazard that needs no second process convicts a driver with that flaw.
func TestHazardsConvict(t *testing.T) {
	d := lightParams()
	d.patience = 4 * time.Second // no waiter here would still get the name
	d.restartTTL = time.Minute   // the verdict comes before the holder's next renewal
	for _, tc := range []struct {
		hazard report.Hazard
		target target
		says   string
	}{
		{report.CutOffHolder, silent(), "NOT told"},
		{report.CutOffHolder, boastful(), "told"},
		{report.Fairness, lastFirst(), "fails after/order"},
		{report.DoubleGrants, generous(), "fails core/exclusive"},
		{report.ServerRestart, restartable(true), "lost and NOT told"},
	} {
		t.Run(string(tc.hazard)+"/"+tc.target.name, func(t *testing.T) {
			t.Parallel()
			o := one(t, tc.target, tc.hazard, d)
			for try := 1; o.Text == unmeasured(errStall).Text; try++ {
				if try == 3 {
					t.Fatal("inconclusive: the machine is too slow")
				}
				o = one(t, tc.target, tc.hazard, d)
			}
			if o.Verdict != report.Bad || !strings.Contains(o.Text, tc.says) {
				t.Errorf("%s: %q (%s), want bad and %q", o.Verdict, o.Text, o.Detail, tc.says)
			}
		})
	}
}

// A server that was away for longer than its locks last tells nothing of what becomes of them in a restart: they are
// neither kept nor lost by it. What breaks the contract is told all the same.
func TestRestartThatTakesTooLong(t *testing.T) {
	t.Parallel()
	p := lightParams()
	p.restartTTL = time.Second
	slow := restartable(false)
	slow.Control.(*frail).away = p.restartTTL + 100*time.Millisecond
	o := one(t, slow, report.ServerRestart, p)
	for try := 1; o.Text == unmeasured(errStall).Text; try++ {
		if try == 3 {
			t.Fatal("inconclusive: the machine is too slow")
		}
		o = one(t, slow, report.ServerRestart, p)
	}
	var away float64 // it may have been longer, on a machine that is late
	_, err := fmt.Sscanf(o.Text, "not measured: the server was away for %f s, longer than a lock of 1s lasts", &away)
	if o.Verdict != report.Unmeasured || err != nil || away < 1.1 || len(o.Values) > 0 || o.Unit != "" {
		t.Errorf("%s: %q (%s), %v %q", o.Verdict, o.Text, o.Detail, o.Values, o.Unit)
	}
}

func TestJudgeRestart(t *testing.T) {
	kept, lost, flawed := trial{kept: true}, trial{value: time.Second}, trial{flaw: "lost and NOT told"}
	for _, tc := range []struct {
		trials []trial
		away   time.Duration
		want   report.Verdict
		says   string
	}{
		{[]trial{kept, kept}, 8 * time.Second, report.Good, "kept"},
		{[]trial{kept, lost}, 6 * time.Second, report.Caution, "lost, told 1.0 s before"},
		{[]trial{kept, lost}, 7 * time.Second, report.Unmeasured, "not measured: the server was away for 7.0 s, nearly as long as a lock of 10s lasts"},
		{[]trial{lost, lost}, 19900 * time.Millisecond, report.Unmeasured, "not measured: the server was away for 19.9 s, longer than a lock of 10s lasts"},
		{[]trial{lost, flawed}, 20 * time.Second, report.Bad, "lost and NOT told"},
	} {
		if o := judgeRestart(tc.trials, tc.away, 10*time.Second, 10*time.Second, driver.Restart); o.Verdict != tc.want || o.Text != tc.says {
			t.Errorf("away for %v: %s, %q, want %s, %q", tc.away, o.Verdict, o.Text, tc.want, tc.says)
		}
	}
	if o := judgeRestart([]trial{kept, kept}, time.Second, 10*time.Second, 10*time.Second, driver.Volatile); o.Verdict != report.Caution {
		t.Errorf("a store that may forget: %s, %q", o.Verdict, o.Text)
	}
}

// TestRun looks at what becomes of the outcomes.
func TestRun(t *testing.T) {
	t.Parallel()
	inProcess := sound().Rig
	inProcess.InProcess, inProcess.Route = true, nil
	r := &report.Report{Backends: []*report.Backend{{Name: "memory"}, {Name: "broken", Failed: map[string]string{"open": "no such server"}}}}
	var done, told int
	total, _ := Plan([]Rig{inProcess, {}})
	run(t.Context(), r, []Rig{inProcess, {}}, lightParams(), func(d int, _ string, _ time.Duration) { done, told = d, told+1 })
	for _, b := range r.Backends {
		for _, h := range hazards {
			if o := b.Safety[h.id]; o.Text == "" || o.Verdict == "" {
				t.Errorf("%s: nothing is said of %s", b.Name, h.id)
			}
		}
	}
	mem, bad := r.Backends[0], r.Backends[1]
	for _, id := range []report.Hazard{report.CancelledWaiter, report.Fairness, report.DoubleGrants} {
		if o := mem.Safety[id]; o.Verdict == report.Bad || o.Verdict == report.Unmeasured && o.Text != "not measured: machine too slow" {
			t.Errorf("%s of a sound driver: %s, %s (%s)", id, o.Verdict, o.Text, o.Detail)
		}
	}
	for _, id := range []report.Hazard{report.KilledHolder, report.StalledHolder, report.CutOffHolder, report.ServerRestart, report.Herd} {
		if o := mem.Safety[id]; o.Verdict != report.Unmeasured || o.Text != noServer {
			t.Errorf("%s in this process: %+v", id, o)
		}
	}
	if o := bad.Safety[report.Fairness]; o.Verdict != report.Unmeasured || !strings.Contains(o.Detail, "no such server") {
		t.Errorf("of a backend that is not there: %+v", o)
	}
	if o := bad.Safety[report.KilledHolder]; o.Text != noChild {
		t.Errorf("without a second process: %+v", o)
	}
	// Cancelled waiters, fairness and double grants need neither a server nor a process.
	if told != 2*3 || done != total || total != told {
		t.Errorf("%d steps were told, the last one %d of %d", told, done, total)
	}
}

// What the suite finds is told as it is: one failure convicts, and without an answer
// nothing is said.
func TestJudgeChecks(t *testing.T) {
	passed := conformance.Result{ID: "a/passed", Status: conformance.Passed}
	failed := conformance.Result{ID: "a/failed", Status: conformance.Failed, Reason: "two hold it\nand more"}
	skipped := conformance.Result{ID: "a/skipped", Status: conformance.Skipped}
	slow := conformance.Result{ID: "a/slow", Status: conformance.Inconclusive}
	for _, tc := range []struct {
		results []conformance.Result
		verdict report.Verdict
		text    string
		err     error
	}{
		{[]conformance.Result{passed, skipped}, report.Good, "fine, by 1 of 2 checks", nil},
		{[]conformance.Result{passed, failed, slow}, report.Bad, "fails a/failed: two hold it", nil},
		{[]conformance.Result{passed, slow}, report.Good, "fine", errStall},
	} {
		o, err := judgeChecks(conformance.Report{Results: tc.results}, "fine")
		if o.Verdict != tc.verdict || o.Text != tc.text || !errors.Is(err, tc.err) || !strings.Contains(o.Detail, "a/passed") {
			t.Errorf("%v: %+v, %v", tc.results, o, err)
		}
	}
	full := conformance.Outage{Checks: 1, Last: errors.New("too many connections")}
	if _, err := judgeChecks(conformance.Report{Results: []conformance.Result{passed, slow}, Outage: full}, "fine"); !errors.Is(err, full.Last) {
		t.Errorf("a check without a client: %v", err)
	}
	if _, err := judgeChecks(conformance.Report{Results: []conformance.Result{skipped}}, "fine"); err == nil {
		t.Error("nothing but skipped checks say something")
	}
	for _, ids := range [][]string{exclusionChecks, cancelChecks, orderChecks, herdChecks} {
		for _, id := range ids {
			if !slices.ContainsFunc(conformance.Checks(), func(k conformance.Check) bool { return k.ID == id }) {
				t.Errorf("the suite has no check %s", id)
			}
		}
	}
}

// An interrupted run says what it has not measured, and ends soon. Its progress comes to
// an end as well, and names nothing that the rig does not allow.
func TestHazardsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := &report.Report{Backends: []*report.Backend{{Name: "sound"}}}
	time.AfterFunc(time.Second, cancel)
	last := 0
	all, _ := Plan([]Rig{sound().Rig})
	run(ctx, r, []Rig{sound().Rig}, lightParams(), func(done int, doing string, _ time.Duration) {
		last = done
		if strings.Contains(doing, "restart") || strings.Contains(doing, "killed") {
			t.Errorf("the progress tells of %q, which cannot be done with this rig", doing)
		}
	})
	if last != all || all != 5 {
		t.Errorf("the progress ended with %d of %d steps, want 5 of 5", last, all)
	}
	if o := r.Backends[0].Safety[report.DoubleGrants]; o.Verdict != report.Unmeasured || !strings.Contains(o.Text, "interrupted") || !r.Interrupted {
		t.Errorf("interrupted: %+v, the report says %v", o, r.Interrupted)
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
		box, err := sandbox.New(tc.url, "compare")
		if err != nil {
			t.Fatal(err)
		}
		if got := addrOf(box); got != tc.addr {
			t.Errorf("a proxy before %s would stand before %q, want %q", tc.url, got, tc.addr)
		}
		head, query, _ := strings.Cut(leased(box, "127.0.0.1:9", 2*time.Second), "?")
		if !strings.Contains(query, "ttl="+tc.ttl) || strings.Count(query, "ttl=") != 1 || !strings.Contains(head, "127.0.0.1:9") {
			t.Errorf("%s by way of a proxy for a TTL of 2s: %s?%s", tc.url, head, query)
		}
		if r := NewRig(box, func() {}); r.InProcess || r.Control != nil || (r.Route != nil) != (tc.addr != "") {
			t.Errorf("%s: %+v", tc.url, r)
		}
	}
	mem, err := sandbox.New("mem://x", "compare")
	if err != nil {
		t.Fatal(err)
	}
	if r := NewRig(mem, func() {}); !r.InProcess || r.Route != nil || r.Child != nil || r.Open == nil {
		t.Errorf("of a store in this process: %+v", r)
	}
}

// The plan is that of the slowest rig, and counts only what a rig does. A rig that is slower than planned delays the end.
func TestPlan(t *testing.T) {
	local, remote := Rig{InProcess: true}, Rig{Route: func() (*Route, error) { return nil, nil }}
	if local.takes(0) >= remote.takes(0) || remote.takes(1) >= remote.takes(0) || remote.takes(len(hazards)) != 0 {
		t.Errorf("in this process %v, on a server %v, without its first group %v", local.takes(0), remote.takes(0), remote.takes(1))
	}
	if zk := (Rig{ZooKeeper: true}); zk.takes(0) <= (Rig{}).takes(0) {
		t.Errorf("on ZooKeeper %v, elsewhere %v", zk.takes(0), Rig{}.takes(0))
	}
	count, takes := Plan([]Rig{local, remote, remote})
	if count != 3+2*(3+2) || takes != remote.takes(0) {
		t.Errorf("the plan is %d hazards in %v, want 13 in %v", count, takes, remote.takes(0))
	}
	var left time.Duration
	s := newSteps([]Rig{local, remote}, func(_ int, _ string, l time.Duration) { left = l })
	first := remote.takes(0) - remote.takes(1)
	s.start = time.Now().Add(-2*first - time.Second) // the first group took twice as long as planned
	s.passed(1, 0)
	s.over("")
	if want := 2 * remote.takes(1); (left - want).Abs() > 10*time.Second { // for a machine that is late; a wrong factor is off by more

		t.Errorf("about %v left, want %v", left, want)
	}
}
