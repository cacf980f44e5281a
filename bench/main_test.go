package main

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/distlock-go/distlock/bench/work"
	"github.com/distlock-go/distlock/internal/servers"
)

// docs/performance.md is what the results in this folder say, and nothing else.
func TestPageIsOfTheResults(t *testing.T) {
	var want bytes.Buffer
	if err := page(&want, "results.json"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/performance.md is not what results.json renders to: run\n" +
			"go run . -render results.json > ../docs/performance.md")
	}
}

func TestParse(t *testing.T) {
	s, render, err := parse([]string{"-only", "redis,etcd", "-rows", "solo,hot*", "-who", "distlock;redsync, 1 node", "-rounds", "7", "-duration", "2s"})
	if err != nil || render != "" {
		t.Fatal(render, err)
	}
	if !slices.Equal(s.backends, []servers.Kind{servers.Redis, servers.Etcd}) || s.rounds != 7 || s.duration != 2*time.Second ||
		s.out != "results.json" || s.afresh {
		t.Errorf("the settings are %+v", s)
	}
	for id, want := range map[string]bool{"solo": true, "hot2": true, "hot64": true, "parallel": false, "held1": false} {
		if row, ok := work.Find(id); !ok || s.wants(row) != want {
			t.Errorf("row %s is wanted: %v", id, s.wants(row))
		}
	}
	row, _ := work.Find("solo")
	if who := s.contenders(row, servers.Redis); len(who) != 2 || who[0].Name != "distlock" || who[1].Name != "redsync, 1 node" {
		t.Errorf("the contenders are %v", who)
	}
}

// A quick run must not touch the figures that the page is made of.
func TestParseQuick(t *testing.T) {
	s, _, err := parse([]string{"-quick"})
	if err != nil || s.out == "results.json" || s.rounds >= 5 || len(s.backends) != len(servers.Kinds) {
		t.Errorf("the settings are %+v, the error %v", s, err)
	}
	for _, row := range work.Rows {
		if s.wants(row) == row.Slow {
			t.Errorf("row %s, slow %v, is wanted: %v", row.ID, row.Slow, s.wants(row))
		}
	}
	if s, _, err = parse(nil); err != nil || !s.afresh || s.out != "results.json" || s.rounds < 5 {
		t.Errorf("without flags the settings are %+v, the error %v", s, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-only", "oracle"}, {"-rows", "sol"}, {"-rows", "x*"}, {"-who", "nobody"}, {"-rounds", "0"},
		{"-duration", "1ms"}, {"-duration", "2h"}, {"nonsense"},
	} {
		if s, _, err := parse(args); err == nil {
			t.Errorf("%q gives %+v", args, s)
		}
	}
}

func TestParseLoad(t *testing.T) {
	for text, want := range map[string]float64{"1.25 0.5 0.4 1/200 77\n": 1.25, "": 0, "x y": 0} {
		if got := parseLoad(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
