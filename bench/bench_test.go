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

// docs/reports/performance.md is what the results in this folder say, and nothing else.
func TestPageIsOfTheResults(t *testing.T) {
	var want bytes.Buffer
	if err := command([]string{"-render", "results.json"}, &want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../docs/reports/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/reports/performance.md is not what results.json renders to: run\ngo run . -render results.json > ../docs/reports/performance.md")
	}
	if n := bytes.Count(got, []byte("\n")); n > 200 {
		t.Errorf("the page has %d lines, nobody reads more than 200", n)
	}
}

// Every figure of the page is there for every contender of a store, of a run that is as
// short as it can be.
func TestRun(t *testing.T) {
	st := stores[1] // MySQL has what is special: a peer with few locks, one that polls, a set-up
	st.setUp = noFlush
	if _, err := servers.StartDurable(cancelled(), st.kind); err != nil && strings.Contains(err.Error(), "not installed") {
		t.Skip(err)
	}
	r := &run{
		settings: settings{stores: []store{st}, rounds: 1, duration: 50 * time.Millisecond, quick: true, busy: true},
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
	var page bytes.Buffer
	if err := r.results.page(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| MySQL |", "MySQL: **distlock** |", "MySQL: GET_LOCK |", "MySQL: bare commands |"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, page.String())
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
		"no contender": {Kind: servers.Redis, Contender: "nobody", Workloads: []string{"solo"}, URLs: []string{"redis://h"}},
		"duration is":  {Kind: servers.Redis, Contender: ours, Workloads: []string{"solo"}, URLs: []string{"redis://h"}},
	} {
		if _, err := j.do(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Ours is compared with the best of the others, but not with one that is unfair, nor with
// the bare commands.
func TestAgainst(t *testing.T) {
	backend := func(name string, rate, p50, jain float64) *report.Backend {
		return &report.Backend{Name: name, Figures: map[report.Figure]report.Series{
			report.HotRate: {rate, rate, rate}, report.HandOff50: {p50, p50, p50}, report.HotJain: {jain}}}
	}
	none := func(b *report.Backend, v float64) *report.Backend {
		b.Figures[report.HeldRequests] = report.Series{v}
		return b
	}
	m := &measured{Contenders: []*report.Backend{
		none(backend(ours, 100, 2, 1), 3), none(backend("fair", 80, 4, .9), 0), backend("unfair", 400, 5, .4), backend("slow", 10, 9, 1), backend(bare, 1000, 1, 1),
	}}
	for c, want := range map[column]string{
		{"", report.HotRate, false}:  "**1.25** (fair)",
		{"", report.HandOff50, true}: "**2** (fair)",
		{"", report.SoloRate, false}: "–",
		{"", report.HeldBytes, true}: "–",
	} {
		if got, _ := m.against(c); got != want {
			t.Errorf("%s: %q, want %q", c.figure, got, want)
		}
	}
}

// A quick run, or one of a part, must not touch the figures that the page is made of.
func TestParse(t *testing.T) {
	for args, out := range map[string]string{"": "results.json", "-quick": "quick.json", "-only redis,mysql-noflush": "", "-only etcd -out x": "x"} {
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

// An idle machine gives all; how much this one gives now, nobody knows.
func TestSpin(t *testing.T) {
	share, known := spin(50 * time.Millisecond)
	if known && (share <= 0 || share > 1) {
		t.Errorf("the share is %v", share)
	}
}
