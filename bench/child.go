package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/compare/measure"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/servers"
)

// childFlag makes the program do one job: see child.
const childFlag = "-child"

// The contenders other than the peers.
const (
	ours = "distlock"
	bare = "bare commands"
)

// job is one contender with one workload in one round. Each is done by a process of its
// own. So memory, goroutines and processor time are of the contender alone, and one
// that hangs can be ended.
type job struct {
	Kind      servers.Kind
	Contender string
	Workloads []string
	Params    report.Params
	URLs      []string
	PIDs      []int         // of the servers
	Patience  time.Duration // besides what the workloads take; patience if it is 0
	Profile   string        // file for what takes the processors of this process; empty for none
}

// patience is for the start of a process, its connections and its end.
const patience = 10 * time.Second

// do runs the job in a child process.
func (j job) do(ctx context.Context) (*report.Backend, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, j.bound())
	defer cancel()
	cmd := exec.CommandContext(bounded, self, childFlag)
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader(string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case bounded.Err() != nil:
		return nil, fmt.Errorf("it hangs: not done after %v", j.bound())
	}
	b := new(report.Backend)
	if json.Unmarshal(out, b) != nil {
		return nil, fmt.Errorf("the child process: %w: %.600s", errors.Join(err, errors.New("it has told nothing")), stderr.String())
	}
	return b, nil
}

// bound is how long a job may take: many times as long as it should, so that only a
// library that hangs exceeds it. One does now and then.
func (j job) bound() time.Duration {
	bound := cmp.Or(j.Patience, patience) + 20*j.Params.Duration
	if slices.Contains(j.Workloads, "held") {
		bound += time.Duration(j.Params.Held)*4*time.Millisecond + 2*j.Params.TTL
	}
	return bound
}

// child does the job that comes on in, and writes what it has measured to out.
func child(in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	t, err := j.target()
	if err != nil {
		return err
	}
	t.Patience = j.Patience
	j.Params.Rounds, j.Params.Workloads = 1, j.Workloads
	var profile bytes.Buffer
	var profileErr error
	targets := []measure.Target{t}
	r, err := measure.Run(context.Background(), targets, j.Params, func(s measure.Step) {
		switch {
		case j.Profile == "":
		case s.Done == s.Total-1: // the last is what is measured, and not the warm-up
			profileErr = pprof.StartCPUProfile(&profile)
		case s.Done == s.Total:
			pprof.StopCPUProfile()
			profileErr = errors.Join(profileErr, os.WriteFile(j.Profile, profile.Bytes(), 0o644))
		}
	})
	if err = errors.Join(err, profileErr); err != nil {
		return err
	}
	measure.Clean(targets, r)
	return json.NewEncoder(out).Encode(r.Backends[0])
}

// target returns the contender as what compare measures.
func (j job) target() (measure.Target, error) {
	if j.Contender == ours || j.Contender == bare {
		t, err := measure.NewTarget(j.Contender, j.URLs[0], "", "", j.Params.TTL)
		t.PIDs = j.PIDs
		return t, err
	}
	i := slices.IndexFunc(peers.All, func(p peers.Peer) bool { return p.Name == j.Contender && p.Store == j.Kind })
	if i < 0 {
		return measure.Target{}, fmt.Errorf("no contender on %s is called %q", j.Kind, j.Contender)
	}
	first, err := url.Parse(j.URLs[0])
	if err != nil {
		return measure.Target{}, err
	}
	open := func(ctx context.Context, via string) (distlock.Locker, error) {
		t := peers.Target{URLs: slices.Clone(j.URLs), TTL: j.Params.TTL, Renew: slices.Contains(j.Workloads, "held")}
		u := *first
		if via != "" {
			u.Host = via
		}
		t.URLs[0] = u.String()
		return peers.All[i].Open(ctx, t)
	}
	return measure.Target{
		Name: j.Contender, Store: first.Scheme, Addr: first.Host, PIDs: j.PIDs, OpenVia: open,
		Open: func(ctx context.Context) (distlock.Locker, error) { return open(ctx, "") },
	}, nil
}
