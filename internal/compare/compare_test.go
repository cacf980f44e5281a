package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
)

func memory(name string) Target { // no Bare: there are no commands
	store := memlock.NewStore(nil)
	return Target{
		Name: name, URL: "mem://" + name, Origin: "in this process",
		Open: func(context.Context) (distlock.Locker, error) { return memlock.New(store, nil) },
	}
}

func small() Params {
	return Params{Duration: 50 * time.Millisecond, Rounds: 2, Clients: 4, Names: 4, TTL: 10 * time.Second}
}

// Every figure must be there once a round, from every backend.
func TestRun(t *testing.T) {
	steps := 0
	r, err := Run(t.Context(), []Target{memory("a"), memory("b")}, small(), func(Step) { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range r.Backends {
		if len(b.Failed) > 0 {
			t.Errorf("%s: %v", b.Name, b.Failed)
		}
		for _, f := range []Figure{SoloRate, ParallelRate, HotRate, HotJain, HotWorst, HandOff50, HandOff99} {
			if s := b.Figures[f]; len(s) != 2 || s[0] <= 0 || s[1] <= 0 {
				t.Errorf("%s: %s is %v, want 2 values above 0", b.Name, f, s)
			}
		}
		if j, _ := b.Figures[HotJain].Median(); j > 1.0001 || j < 0.25 {
			t.Errorf("%s: Jain's index of 4 clients is %v", b.Name, j)
		}
	}
	if want := len(workloads)*2*3 + 1; steps != want {
		t.Errorf("%d steps were told, want %d", steps, want)
	}
	for _, write := range []func(*bytes.Buffer) error{
		func(b *bytes.Buffer) error { return r.WriteText(b) },
		func(b *bytes.Buffer) error { return r.WriteMarkdown(b) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "in this process") {
			t.Errorf("the report does not tell where the backends were: %s", b.String())
		}
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("JSON: %v", err)
	}
}

// A backend that cannot be opened says so and does not stop the others.
func TestRunTellsOfFailure(t *testing.T) {
	broken := memory("broken")
	broken.Open = func(context.Context) (distlock.Locker, error) { return nil, errors.New("no such server") }
	r, err := Run(t.Context(), []Target{broken, memory("fine")}, small(), func(Step) {})
	if err != nil {
		t.Fatal(err)
	}
	if r.Err() == nil || !strings.Contains(r.Backends[0].Failed["solo"], "no such server") {
		t.Errorf("the failure is not told: %v", r.Backends[0].Failed)
	}
	if _, ok := r.Backends[1].Figures[SoloRate].Median(); !ok {
		t.Error("the other backend was not measured")
	}
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "FAILED: no such server") {
		t.Errorf("the table hides the failure (error %v): %s", err, b.String())
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

func TestParams(t *testing.T) {
	for _, p := range []Params{
		{}, {Duration: time.Second, Rounds: 1, Clients: 2, Names: 1},
		{Duration: time.Second, Rounds: 1, Clients: 1, Names: 1, TTL: time.Minute},
	} {
		if p.Check() == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}

func TestSeries(t *testing.T) {
	if m, ok := (Series{3, 1, 2}).Median(); !ok || m != 2 {
		t.Errorf("median of three: %v", m)
	}
	if m, _ := (Series{4, 1, 2, 3}).Median(); m != 2.5 {
		t.Errorf("median of four: %v", m)
	}
	if _, ok := (Series{}).Median(); ok {
		t.Error("nothing has a median")
	}
	if s := (Series{8, 10, 12}).Spread(); math.Abs(s-0.2) > 1e-9 {
		t.Errorf("spread: %v", s)
	}
	if r := (Series{2, 9}).Ratio(Series{4, 0, 1}); len(r) != 1 || r[0] != 0.5 {
		t.Errorf("ratio: %v", r)
	}
}
