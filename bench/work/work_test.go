package work

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/bench/bucket"
	"github.com/distlock-go/distlock/bench/meter"
	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/bench/result"
	"github.com/distlock-go/distlock/internal/servers"
)

// TestMain makes this binary its own child, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == ChildFlag {
		if err := Child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Every workload runs on a real server and measures what it says, in small. What it
// measures is not judged here, but for what holds on any machine.
func TestRows(t *testing.T) {
	s := servers.ForTest(t, servers.Redis)
	p, err := meter.New(s.Kind(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	// What a pair costs the server is known of a local process on Linux.
	var pids []int
	if s.PID() != 0 {
		pids = append(pids, s.PID())
	}
	for id, want := range map[string]Figures{
		"requests":    {result.Known: 2, result.New: 2},
		"solo":        {result.Rate: math.NaN(), result.Work: math.NaN(), result.Busy: math.NaN()},
		"parallel":    {result.Rate: math.NaN(), result.Work: math.NaN(), result.Busy: math.NaN()},
		"hot2":        {result.Rate: math.NaN(), result.Work: math.NaN(), result.Busy: math.NaN(), result.Jain: math.NaN(), result.P50: math.NaN(), result.P99: math.NaN(), result.Worst: math.NaN()},
		"handoff":     {result.Work: math.NaN(), result.Busy: math.NaN(), result.P50: math.NaN(), result.P99: math.NaN(), result.Worst: math.NaN()},
		"waiting16":   {result.All: math.NaN(), result.Each: math.NaN(), result.Total: math.NaN()},
		"waiters1":    {result.Serve: 1, result.Moved: 0, result.Took: math.NaN()},
		"waiters1000": {result.Serve: 1000, result.Took: math.NaN()},
		"held100":     {result.Lost: 0, result.Count: 100, result.All: math.NaN(), result.Bytes: math.NaN(), result.Gos: math.NaN()},
	} {
		t.Run(id, func(t *testing.T) {
			d := 100 * time.Millisecond
			if id == "hot2" {
				d = 3 * time.Second // only what is granted in time counts, and there must be something
			}
			got, err := Do(t.Context(), Job{
				Backend: servers.Redis, Contender: peers.Distlock, Row: id, Prefix: "test-" + id + "-",
				URLs: []string{s.URL()}, Metered: []string{s.URLVia(p.Addr())}, PIDs: pids, TTL: 20 * time.Second, Duration: d,
			}, p.Requests)
			if err != nil {
				t.Fatal(err)
			}
			if pids == nil || runtime.GOOS != "linux" {
				delete(want, result.Busy)
			}
			for f, v := range want {
				measured, ok := got[f]
				if !ok || !math.IsNaN(v) && measured != v {
					t.Errorf("%s is %v (measured: %v), want %v", f, measured, ok, v)
				}
			}
		})
	}
}

// A job leaves the profile that it was asked for.
func TestProfiles(t *testing.T) {
	s := servers.ForTest(t, servers.Redis)
	p, err := meter.New(s.Kind(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	do := func(j Job) *os.File {
		j.Backend, j.Contender, j.Prefix, j.TTL = servers.Redis, peers.Distlock, "profile-"+j.Row+"-", 2*time.Second
		j.URLs, j.Metered = []string{s.URL()}, []string{s.URLVia(p.Addr())}
		if _, err := Do(t.Context(), j, p.Requests); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(j.CPUProfile + j.HeapProfile)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	path := filepath.Join(t.TempDir(), "profile")
	for _, row := range []string{"solo", "handoff"} {
		if _, err := bucket.CPU(do(Job{Row: row, CPUProfile: path, Duration: 100 * time.Millisecond})); err != nil {
			t.Errorf("%s: %v", row, err)
		}
	}
	sites, err := bucket.Heap(do(Job{Row: "held100", HeapProfile: path}), 100, 5)
	if err != nil || len(sites) == 0 || sites[0].Bytes <= 0 {
		t.Errorf("the memory of held locks is at %v (%v)", sites, err)
	}
}

func TestTimeOf(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it is measured on Linux only")
	}
	own, known := timeOf([]int{os.Getpid()})
	twice, knownTwice := timeOf([]int{os.Getpid(), os.Getpid()})
	if !known || !knownTwice || own <= 0 || twice < 2*own {
		t.Errorf("this process has used %v (known: %v), twice that is %v (known: %v)", own, known, twice, knownTwice)
	}
	if used, known := timeOf(nil); known {
		t.Errorf("no process has used %v", used)
	}
	const nobody = 1<<22 + 1 // more than there can be
	if used, known := timeOf([]int{os.Getpid(), nobody}); known {
		t.Errorf("with one that does not exist it is %v", used)
	}
}

// The child's end, whatever it is, is an error of the job and not of the program.
func TestDoFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	for name, j := range map[string]Job{
		"row":       {Backend: servers.Redis, Contender: peers.Distlock, Row: "none"},
		"contender": {Backend: servers.Redis, Contender: "none", Row: "solo"},
		"open":      {Backend: servers.Redis, Contender: peers.Distlock, Row: "solo", URLs: []string{"redis://" + nobody}, TTL: time.Second},
		"open: ":    {Backend: servers.Redis, Contender: peers.Distlock, Row: "solo", URLs: []string{"redis://" + nobody + "?nonsense=1"}, TTL: time.Second},
	} {
		_, err := Do(t.Context(), j, func() int64 { return 0 })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Ctrl-C must not have to wait for the job.
func TestDoIsInterrupted(t *testing.T) {
	s := servers.ForTest(t, servers.Redis)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	_, err := Do(ctx, Job{
		Backend: servers.Redis, Contender: peers.Distlock, Row: "solo", URLs: []string{s.URL()}, TTL: time.Minute, Duration: 10 * time.Minute,
	}, func() int64 { return 0 })
	if err == nil || ctx.Err() == nil {
		t.Errorf("the job has ended with %v, the context with %v", err, ctx.Err())
	}
}

func TestChildRefusesNonsense(t *testing.T) {
	for _, text := range []string{"", "no JSON\n"} {
		if err := Child(strings.NewReader(text), new(bytes.Buffer)); err == nil {
			t.Errorf("%q is a job", text)
		}
	}
}

func TestFurthest(t *testing.T) {
	for _, tc := range []struct {
		served []int
		want   int
	}{
		{nil, 0},
		{[]int{0, 1, 2}, 0},
		{[]int{1, 0, 2}, 1},
		{[]int{1, 2, 3, 0}, 3},
		{[]int{3, 0, 1, 2}, 1}, // the one that pushed in made three late by one
		{[]int{2, 3}, 0},       // two were not served at all
	} {
		if got := furthest(tc.served); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.served, got, tc.want)
		}
	}
}

func TestRowsAreWhole(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range Rows {
		if seen[r.ID] || r.Title == "" || r.run == nil || r.takes == nil {
			t.Errorf("row %q is there twice, or lacks something", r.ID)
		}
		seen[r.ID] = true
		n := 0
		for _, backend := range servers.Kinds {
			n += len(r.For(backend))
		}
		if n == 0 {
			t.Errorf("nobody takes the row %q", r.ID)
		}
		if long, short := r.Measure(time.Second, false), r.Measure(time.Second, true); long < r.Least || short > long {
			t.Errorf("row %q is measured for %v, quick for %v", r.ID, long, short)
		}
	}
}

// Each goal is on a row that exists.
func TestGoalsHaveRows(t *testing.T) {
	for _, g := range result.Goals {
		for _, p := range g.Judge(nil).Parts {
			if r, ok := Find(p.Row); !ok || len(r.For(g.Backend)) == 0 {
				t.Errorf("%s on %s: there is no row %q", g.Row, g.Backend, p.Row)
			}
		}
	}
}
