package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/servers"
)

// TestMain makes this binary its own child, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		if err := child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The pages in docs/reports are what the results in this folder say, and nothing else.
func TestPagesAreOfTheResults(t *testing.T) {
	r, err := readResults("results.json")
	if err != nil {
		t.Fatal(err)
	}
	files, err := r.files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile("../docs/reports/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("docs/reports/%s is not what results.json renders to: run\ngo run . -render results.json", name)
		}
		if n := bytes.Count(got, []byte("\n")); strings.HasSuffix(name, ".md") && n > 200 {
			t.Errorf("%s has %d lines, nobody reads more than 200", name, n)
		}
	}
	r.Idle = idleAt - .01
	if _, err := r.files(); err == nil || !strings.Contains(err.Error(), "the machine was busy") {
		t.Errorf("the page of a busy machine: %v", err)
	}
	if !strings.Contains(string(r.page()), "The machine was busy") {
		t.Error("what is printed of a busy machine does not say so")
	}
}

// patient is for processes with the race detector, and a new server, on a machine that is late.
const patient = 2 * time.Minute

// Every figure of the page is there for every contender of a store, of a run that is as
// short as it can be.
func TestRun(t *testing.T) {
	st := stores[1] // MySQL has what is special: a peer with few locks, one that polls, a set-up
	st.title, st.setUp = "MySQL, no flush at commit", noFlush
	if _, err := servers.StartDurable(cancelled(), st.kind); err != nil && strings.Contains(err.Error(), "not installed") {
		t.Skip(err)
	}
	r := &run{
		settings: settings{stores: []store{st}, rounds: 1, duration: 50 * time.Millisecond, patience: patient, quick: true, busy: true},
		results:  newResults(nil), log: io.Discard, began: time.Now(),
	}
	r.results.Params = r.params()
	if err := r.everything(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := r.results.Stores[0]
	if len(m.Contenders) != len(peers.On(st.kind))+2 {
		t.Fatalf("%d contenders", len(m.Contenders))
	}
	for _, b := range m.Contenders {
		figures := []report.Figure{report.SoloRate, report.ParallelRate, report.HotRate, report.HotJain, report.HandOff50, report.HandOff99,
			report.HeldRequests, report.HeldBytes, report.WaitRequests, report.ClientCPU("solo")}
		if b.Name == bare {
			figures = []report.Figure{report.BareRate, report.BareParallelRate, report.ClientCPU("bare")}
		}
		for _, f := range figures {
			if len(b.Figures[f]) != 1 {
				t.Errorf("%s: %s is %v", b.Name, f, b.Figures[f])
			}
		}
		if len(b.Failed) > 0 {
			t.Errorf("%s: %v", b.Name, b.Failed)
		}
	}
	for _, g := range goals {
		if _, yes, known := g.reached(m); g.store == st.id && known && !yes && (m.profile(ours, g.workload) == nil || m.profile(g.rival, g.theirs) == nil) {
			t.Errorf("%s misses its goal, and has no profile", g.workload)
		}
	}
	page := string(r.results.page()) + string(r.results.details())
	for _, want := range []string{"| MySQL, no flush at commit |", "MySQL, no flush at commit: **distlock** |", "MySQL, no flush at commit: GET_LOCK |", "MySQL, no flush at commit: bare commands |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the pages have no %q:\n%s", want, page)
		}
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A child that cannot do its job is an error of that job, and not of the program.
func TestJobFails(t *testing.T) {
	for name, j := range map[string]job{
		"no contender": {Kind: servers.Redis, Contender: "nobody", Workloads: []string{"solo"}, URLs: []string{"redis://h"}, Patience: patient},
		"duration is":  {Kind: servers.Redis, Contender: ours, Workloads: []string{"solo"}, URLs: []string{"redis://h"}, Patience: patient},
	} {
		if _, err := j.do(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Ours is compared with each of the others, but not with one that is unfair.
func TestAgainst(t *testing.T) {
	backend := func(rate, p50, jain, requests float64) *report.Backend {
		return &report.Backend{Figures: map[report.Figure]report.Series{
			report.HotRate: {rate, rate, rate}, report.HandOff50: {p50, p50, p50}, report.HotJain: {jain}, report.HeldRequests: {requests}}}
	}
	own := backend(100, 2, 1, 3)
	for _, tc := range []struct {
		figure report.Figure
		lower  bool
		other  *report.Backend
		want   string
	}{
		{report.HotRate, false, backend(80, 4, .9, 0), "**1.25**"},
		{report.HotRate, false, backend(200, 4, .9, 0), "0.50"},
		{report.HotRate, false, backend(101, 4, .9, 0), "≈ 0.99"},
		{report.HotRate, false, backend(400, 5, .4, 0), "¹"},
		{report.HandOff50, true, backend(80, 4, .9, 0), "**2**"},
		{report.HeldRequests, true, backend(80, 4, .9, 0), "none there"},
		{report.SoloRate, false, backend(80, 4, .9, 0), "–"},
	} {
		if got := (column{"", tc.figure, tc.lower}).against(own, tc.other); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.figure, got, tc.want)
		}
	}
}

// Few clients are judged by their worst round.
func TestFewClients(t *testing.T) {
	m := &measured{ID: "etcd"}
	for n, rates := range map[int]report.Series{2: {90, 30}, 3: {90, 90}, 4: {100, 90}, 16: {100, 100}} {
		m.crowdOf(ours, n).Rate = rates
	}
	if got, known := few("etcd")[0].ratio(m); !known || got != .3 {
		t.Errorf("got %v, %v", got, known)
	}
	if _, known := few("etcd")[0].ratio(new(measured)); known {
		t.Error("known without figures")
	}
}

// A quick run, or one of a part, must not touch the figures that the page is made of.
func TestParse(t *testing.T) {
	for args, out := range map[string]string{"": "results.json", "-quick": "quick.json", "-busy": "", "-only redis,mysql-noflush": "", "-only etcd -out x": "x"} {
		s, _, err := parse(strings.Fields(args))
		if err != nil || s.out != out {
			t.Errorf("%q writes to %q (%v), want %q", args, s.out, err, out)
		}
	}
	for _, args := range []string{"-only oracle", "-rounds 0", "-duration 1ms", "-duration 2h", "nonsense"} {
		if s, _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%q gives %+v", args, s)
		}
	}
}

// One store measured again replaces its rows alone, and the page says so.
func TestMeasuredAgain(t *testing.T) {
	old := &results{Commit: "old", Idle: .99, Stores: []*measured{{ID: "redis", Title: "Redis"}, {ID: "etcd", Title: "etcd", Server: "1"}}}
	r := old.with(&results{Commit: "new", Idle: .97, Together: .6, Stores: []*measured{{ID: "etcd", Title: "etcd", Server: "2"}}})
	if got := r.where(); !strings.Contains(got, "at commit old") || !strings.Contains(got, "Redis , etcd 2 (measured again at new).") || r.Idle != .97 || r.Together != .6 || !strings.Contains(got, "share cores") {
		t.Errorf("idle %v: %s", r.Idle, got)
	}
}

// An idle machine gives all; how much this one gives now, nobody knows.
func TestSpin(t *testing.T) {
	share, known, did := spin(50 * time.Millisecond)
	if known && (share <= 0 || share > 1) || did <= 0 {
		t.Errorf("the share is %v, and %v were done", share, did)
	}
}
