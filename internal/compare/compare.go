// Package compare sets lock backends side by side. It measures them in turn, causes the
// failures that it can, and adds what is known of them. Package render shows the
// report.
package compare

import (
	"cmp"
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/compare/hazard"
	"github.com/distlock-go/distlock/internal/compare/measure"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// Target is one backend to compare.
type Target struct {
	measure.Target
	Rig hazard.Rig
}

// NewTarget returns the target behind a URL, confined to a sandbox. Run removes the
// sandbox. Nothing is sent until Run. ttl is the TTL of the run's locks.
func NewTarget(name, rawURL, origin, version string, ttl time.Duration) (Target, error) {
	t, err := measure.NewTarget(name, rawURL, origin, version, ttl)
	if err != nil {
		return Target{}, err
	}
	if t.Store == "" {
		t.Version = cmp.Or(version, Version()) // it is part of the program
	}
	return Target{Target: t, Rig: hazard.NewRig(t.Sandbox, t.Used)}, nil
}

// Progress is told how much of the run is done, what is being done, and about how long the rest will take.
type Progress func(done, total int, doing string, left time.Duration)

// Run compares the targets: it measures, describes, has go wrong what can if safety is
// set, and removes what it has made on the servers. If ctx ends early, it returns what
// it has until then.
func Run(ctx context.Context, targets []Target, p report.Params, safety bool, tell Progress) (*report.Report, error) {
	var measured []measure.Target
	var rigs []hazard.Rig
	for _, t := range targets {
		measured, rigs = append(measured, t.Target), append(rigs, t.Rig)
	}
	var hazards, steps int
	var breaking time.Duration
	if safety {
		hazards, breaking = hazard.Plan(rigs)
	}
	r, err := measure.Run(ctx, measured, p, func(s measure.Step) {
		steps = s.Total
		if s.Done < s.Total || hazards == 0 {
			tell(s.Done, s.Total+hazards, s.Doing, s.Left+breaking)
		}
	})
	if err != nil {
		return nil, err
	}
	r.Machine.Version = Version()
	describe(ctx, r, measured)
	if safety {
		hazard.Run(ctx, r, rigs, func(done int, doing string, left time.Duration) { tell(steps+done, steps+hazards, doing, left) })
	}
	measure.Clean(measured, r)
	return r, nil
}

// describe fills in the Facts of each backend. One that cannot be opened has none; why
// not, the workloads tell.
func describe(ctx context.Context, r *report.Report, targets []measure.Target) {
	var all sync.WaitGroup
	for i, t := range targets {
		if r.Backends[i].Failed["open"] == "" {
			all.Go(func() { r.Backends[i].Facts = factsOf(ctx, t) })
		}
	}
	all.Wait()
}

func factsOf(ctx context.Context, t measure.Target) []report.Fact {
	bounded, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	l, err := t.Open(bounded)
	if err != nil {
		return nil
	}
	defer l.Close()
	c, ok := l.(interface{ Capabilities() driver.Capabilities })
	if !ok {
		return nil
	}
	return facts(c.Capabilities())
}

// version is set by the linker if the sources are not those of a git commit. Go would
// take it from the commit.
var version string

// Version returns the version of distlock that this program was built from.
func Version() string {
	built := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		built = info.Main.Version
	}
	return cmp.Or(version, built, "(devel)")
}
