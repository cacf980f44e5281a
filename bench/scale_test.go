package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// A helper holds its locks until it is told to free them, and finds none lost.
func TestHold(t *testing.T) {
	in, tell := io.Pipe()
	hear, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- help(in, out) }()
	defer tell.Close()
	text, err := json.Marshal(task{Role: "hold", URL: "mem://", Locks: 50, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(tell, string(text))
	said := json.NewDecoder(bufio.NewReader(hear))
	var took struct{ Took time.Duration }
	if err := said.Decode(&took); err != nil || took.Took <= 0 {
		t.Fatal(took, err)
	}
	fmt.Fprintln(tell, "free")
	var end heldEnd
	if err := said.Decode(&end); err != nil || end.Lost != 0 || end.Freed <= 0 {
		t.Errorf("%+v, %v", end, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Turns are judged in the order of their tokens: those that came too early, and those that began
// before the one before had ended.
func TestJudge(t *testing.T) {
	turns := [][]turn{ // by process, one name
		{{Token: 1, From: 10, Till: 20}},
		{{Token: 3, From: 25, Till: 30}},
		{{Token: 2, From: 20, Till: 26}},
		{{Failed: "no answer"}},
	}
	h := &herd{Processes: 4, Names: 1}
	h.judge(turns, 5)
	if h.Served != 3 || h.Failures != 1 || h.Failure != "no answer" || h.Overlaps != 1 {
		t.Errorf("%+v", h)
	}
	if want := 1. / 3; h.Disorder != want || h.Drain != (20*time.Nanosecond).Seconds() {
		t.Errorf("out of order: %v, want %v; drain: %v", h.Disorder, want, h.Drain)
	}
}

// The page shows what was lost and why, and what could not be held at all.
func TestScaleTables(t *testing.T) {
	r := &results{Scale: &scaled{
		Long:  []*longHold{{Store: "Redis", Locks: 7, Lost: 3, Cause: "gone"}, {Store: "etcd", Failed: "no space"}},
		Herds: []*herd{{Store: "Redis", Processes: 2, Names: 4, Served: 8}},
	}}
	var b strings.Builder
	r.scaleTables(&b)
	for _, want := range []string{"3, the first `gone`", "failed: `no space`", "| Redis | 2 × 4 | 8 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
