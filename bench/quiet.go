package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock/internal/compare/measure"
)

// idleAt is the part of the processors' time that an idle machine gives a process that
// wants all of it. 0.985 to 1 was seen on one that had nothing else to do, 0.9 beside a
// single compiler.
const idleAt = 0.95

// wholeAt is what a processor does at the least beside the others of what it does alone, if each has
// a core for itself. On one machine 0.92 to 1 was seen, and 0.33 to 0.79 while its host lent the cores to others.
const wholeAt = 0.8

// idlePatience is how long the machine may take to become idle.
const idlePatience = 2 * time.Minute

// awaitIdle returns when this process gets the processors, as seen by spinning on all
// of them. The load average is no such thing: it is of the minute before, and this run
// was the load. What was measured is kept in the results, the worst of a run.
func (r *run) awaitIdle(ctx context.Context) error {
	for limit := time.Now().Add(idlePatience); ; {
		share, known, did := spin(300 * time.Millisecond)
		switch {
		case share >= idleAt || r.busy:
			r.results.Idle = min(r.results.Idle, share)
			r.results.Together = leastKnown(r.results.Together, did/r.alone())
			return ctx.Err()
		case !known:
			return fmt.Errorf("whether the machine is idle cannot be told on %s: -busy measures all the same", runtime.GOOS)
		case time.Now().After(limit):
			return fmt.Errorf("the machine is busy: of its processors, this process gets %.0f%% (load average %s): -busy measures all the same", 100*share, load())
		case ctx.Err() != nil:
			return ctx.Err()
		}
		fmt.Fprintf(r.log, "%s the machine is busy (%.0f%% left), waiting\n", r.clock(), 100*share)
		time.Sleep(5 * time.Second)
	}
}

// leastKnown is the lesser of two shares, of which the first is 0 if it is not known yet.
func leastKnown(old, now float64) float64 {
	if now = min(now, 1); old == 0 {
		return now
	}
	return min(old, now)
}

// alone returns how often one processor looks at the clock in a second while the others have nothing to do: the most that
// was seen so far. Time of a processor that shares its core, or that the host gives to another machine, counts
// as this process's own, but less is done in it.
func (r *run) alone() float64 {
	r.most = max(r.most, look(50*time.Millisecond))
	return r.most
}

// look looks at the clock for so long, and returns how often a second it did.
func look(d time.Duration) float64 {
	n := 0
	for start := time.Now(); time.Since(start) < d; n++ {
	}
	return float64(n) / d.Seconds()
}

// spin keeps all processors busy and returns its share of their time, whether the
// share is known, and how often a second one of them has looked at the clock.
func spin(d time.Duration) (share float64, known bool, did float64) {
	own := []int{os.Getpid()}
	looks := make([]float64, runtime.GOMAXPROCS(0))
	before, _ := measure.CPUTime(own)
	start := time.Now()
	var all sync.WaitGroup
	for i := range looks {
		all.Go(func() { looks[i] = look(d) })
	}
	all.Wait()
	passed := time.Since(start)
	after, known := measure.CPUTime(own)
	for _, l := range looks {
		did += l / float64(len(looks))
	}
	return min(float64(after-before)/float64(passed)/float64(len(looks)), 1), known, did
}

// load returns the load averages, empty where they are not known.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}
