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

// idlePatience is how long the machine may take to become idle.
const idlePatience = 2 * time.Minute

// awaitIdle returns when this process gets the processors, as seen by spinning on all
// of them. The load average is no such thing: it is of the minute before, and this run
// was the load. What was measured is kept in the results, the worst of a run.
func (r *run) awaitIdle(ctx context.Context) error {
	for limit := time.Now().Add(idlePatience); ; {
		share, known := spin(300 * time.Millisecond)
		switch {
		case share >= idleAt || r.busy:
			r.results.Idle = min(r.results.Idle, share)
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

// spin keeps all processors busy and returns its share of their time, and whether the
// share is known.
func spin(d time.Duration) (share float64, known bool) {
	own := []int{os.Getpid()}
	n := runtime.GOMAXPROCS(0)
	before, _ := measure.CPUTime(own)
	start := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for time.Since(start) < d {
			}
		})
	}
	all.Wait()
	passed := time.Since(start)
	after, known := measure.CPUTime(own)
	return min(float64(after-before)/float64(passed)/float64(n), 1), known
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
