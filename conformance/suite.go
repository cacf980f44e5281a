package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
	"github.com/distlock-go/distlock/internal/canary"
)

// suite is one examination of one driver.
type suite struct {
	Calibration
	opts    Options
	ctx     context.Context
	harness Harness
	caps    Caps
	timing  Timing
	checks  []Check
	bounds  bounds
	started time.Time
	rerun   func(id string) string
	trouble string // what went wrong before the first check

	artifacts func() (string, error) // makes the directory for histories, once

	// alone is held for reading by every check that runs, and for writing by one
	// that must run alone.
	alone sync.RWMutex

	heavy chan struct{} // has an element for every heavy check that runs

	openings *openings // nil in virtual time
	outages  *outages  // nil there, and without Options.Look

	pulse  pulse
	canary *canary.Canary // nil in virtual time, and before the first check
}

func newSuite(ctx context.Context, h Harness, o *Options) *suite {
	s := &suite{opts: o.withDefaults(), ctx: ctx, harness: h, caps: h.Caps(), timing: h.Timing(), started: time.Now(),
		heavy: make(chan struct{}, maxHeavy)}
	if s.opts.VirtualTime {
		// What is outside of a bubble must not end what is inside.
		s.ctx = context.WithoutCancel(ctx)
	} else {
		s.openings, s.outages = newOpenings(), newOutages(s.opts.Look)
	}
	s.artifacts = sync.OnceValues(func() (string, error) { return os.MkdirTemp(s.opts.Artifacts, "distlock-conformance-") })
	s.rerun = func(id string) string { return fmt.Sprintf("run the check %s with seed %d", id, s.opts.Seed) }
	for _, k := range append(Checks(), s.opts.Checks...) {
		if s.opts.Filter(k) {
			s.checks = append(s.checks, k)
		}
	}
	if !s.opts.VirtualTime { // else it needs a bubble
		s.calibrate()
	}
	return s
}

// calibrate measures machine and server through a check outside of the table.
func (s *suite) calibrate() {
	s.Virtual = s.opts.VirtualTime
	c := s.newC(Check{ID: "calibration", Run: func(c *C) {
		ctx, cancel := context.WithTimeout(c.ctx, 2*patience)
		defer cancel()
		p := c.open("A")
		s.Open = c.timeOpenings()
		var err error
		s.SleepOver, s.Pair, err = calibrate(ctx, func(ctx context.Context) error {
			l, err := p.locker.TryLock(ctx, c.Name("pair"), distlock.TTL(c.fits(2*patience)))
			if err != nil {
				return err
			}
			return l.Unlock(ctx)
		})
		if err != nil {
			c.Failf("%v", err)
		}
	}})
	c.run()
	if c.status != "" {
		s.trouble = "no lock could be taken before the first check: " + c.reason
	}
	s.derive(s.timing)
	s.Unit, s.Slack = max(s.Unit, s.opts.Unit), max(s.Slack, s.opts.Slack)
}

// head describes the examination in one line.
func (s *suite) head() string {
	return fmt.Sprintf("%s; %s; %s; seed %d", s.caps, s.timing, s.Calibration, s.opts.Seed)
}

// newC makes the recorder for one attempt at a check.
func (s *suite) newC(k Check) *C {
	var random [5]byte
	_, _ = rand.Read(random[:]) // never fails, by its documentation
	ctx, stop := context.WithCancelCause(s.ctx)
	c := &C{
		check:   k,
		harness: s.harness,
		timing:  s.timing,
		cal:     s.Calibration,
		seed:    s.opts.Seed,
		sparse:  s.opts.Sample,
		prefix:  "conf-" + hex.EncodeToString(random[:]) + "-",
		bounds:  &s.bounds,
		delays:  s.delays(),
		ctx:     ctx,
		stop:    stop,
		recorder: oracle.NewRecorder(oracle.History{
			Backend:     s.caps.Backend,
			Seed:        s.opts.Seed,
			Granularity: s.timing.TTLGranularity,
			MinTTL:      s.timing.MinTTL,
			ExpiryLag:   s.timing.ExpiryLag,
			MaxExtend:   s.timing.MaxExtend,
		}),
	}
	if !s.opts.VirtualTime {
		c.openings, c.outages, c.slowest = s.openings, s.outages, s.slowest
	}
	if scoped, ok := s.harness.(Scoped); ok {
		c.harness = scoped.ForCheck(c)
	}
	return c
}

// slowest returns the longest that the pulse has waited for an answer, or the canary for a processor, since then.
func (s *suite) slowest(from time.Time) time.Duration {
	took := s.pulse.slowest(from)
	if s.canary != nil {
		took = max(took, s.canary.Longest(from))
	}
	return took
}

// delays returns how late the machine was between two times.
func (s *suite) delays() func(from, to time.Time) time.Duration {
	if s.canary == nil {
		return nil
	}
	return s.canary.Between
}

// all runs the checks of the suite, as many side by side as is allowed, and
// returns the results in the order of the table. After the end of the context it
// starts no other check. It still reports those that have begun.
func (s *suite) all(progress func(Result)) []Result {
	var mu sync.Mutex
	l := s.launch(func(Check) bool { return true }, func(r Result) {
		mu.Lock()
		defer mu.Unlock()
		progress(r)
	})
	for i := range s.checks {
		if s.ctx.Err() != nil {
			break
		}
		l.wait(i)
	}
	l.stop()
	return l.done()
}

// selected guesses whether go test was told to run the test of this name.
func selected(name string) bool {
	f := flag.Lookup("test.run")
	return f != nil && matches(f.Value.String(), name)
}

// matches reports whether a pattern of go test -run selects a name, as far as that
// can be told without the rules for alternatives.
func matches(pattern, name string) bool {
	parts := strings.Split(name, "/")
	for i, p := range strings.Split(pattern, "/") {
		if i >= len(parts) {
			break
		}
		if ok, err := regexp.MatchString(p, parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// testPattern anchors every element of a test's name.
func testPattern(name string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^")
}

// bounds remembers how near the driver came to each bound that it declares.
type bounds struct {
	mu    sync.Mutex
	worst map[string]time.Duration
}

func (b *bounds) observe(name string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.worst == nil {
		b.worst = make(map[string]time.Duration)
	}
	b.worst[name] = max(b.worst[name], d)
}

// list returns the declared bounds beside the worst that was seen.
func (b *bounds) list(t Timing) []Bound {
	b.mu.Lock()
	defer b.mu.Unlock()
	declared := map[string]time.Duration{
		boundExpiry: t.ExpiryLag, boundWake: t.WakeLag, boundCleanup: t.CleanupBound,
	}
	var list []Bound
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		worst, seen := b.worst[name]
		list = append(list, Bound{Name: name, Declared: declared[name], Worst: worst, Seen: seen})
	}
	return list
}

// The names of the bounds, for C.observe.
const (
	boundExpiry  = "expiry-lag"
	boundWake    = "wake-lag"
	boundCleanup = "cleanup-bound"
)
