package main

import (
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/compare/measure"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// A stack belongs to the innermost function that says what it is for: what the standard
// library does is done for its caller.
func TestPart(t *testing.T) {
	const lock = "github.com/distlock-go/distlock/redislock.(*claim).Try"
	for stack, want := range map[string]string{
		"internal/runtime/syscall/linux.Syscall6 syscall.write internal/poll.(*FD).Write github.com/redis/go-redis/v9.(*Client).Process " + lock: network,
		"runtime.futex runtime.futexwakeup runtime.wakep runtime.newproc " + lock:                                                                sched,
		"internal/runtime/syscall/linux.Syscall6 internal/runtime/syscall/linux.EpollWait runtime.netpoll runtime.findRunnable":                  sched,
		"runtime.memclrNoHeapPointers runtime.mallocgc runtime.newobject " + lock:                                                                memory,
		"runtime.lock2 runtime.(*mheap).alloc runtime.mallocgc " + lock:                                                                          memory,
		"runtime.memmove strings.Join github.com/redis/go-redis/v9.(*Client).Process " + lock:                                                    library,
		"time.Now context.WithDeadlineCause github.com/distlock-go/distlock/driver.(*Client).call github.com/distlock-go/distlock/driver.x":      engine,
		"strconv.Itoa " + lock: locking,
		"github.com/redis/rueidis/rueidislock.(*locker).try github.com/distlock-go/distlock/internal/compare/measure.solo": locking,
		"time.Now github.com/distlock-go/distlock/internal/compare/measure.solo":                                           rest,
		"time.Now": rest,
	} {
		if got := part(strings.Fields(stack)); got != want {
			t.Errorf("%s is of %q, want %q", stack, got, want)
		}
	}
}

// What a profile says of a process that does nothing but spin.
func TestReadProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cpu.prof")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		t.Fatal(err)
	}
	own := []int{os.Getpid()}
	began, known := measure.CPUTime(own)
	for start := time.Now(); ; {
		if used, _ := measure.CPUTime(own); used-began > 200*time.Millisecond || !known && time.Since(start) > time.Second {
			break
		}
	}
	pprof.StopCPUProfile()
	samples, shares, err := readProfile(path)
	if err != nil || samples == 0 {
		t.Fatalf("%d samples, %v", samples, err)
	}
	sum := 0.
	for _, share := range shares {
		sum += share
	}
	if sum < .999 || sum > 1.001 {
		t.Errorf("the shares %v add up to %v", shares, sum)
	}
}

// Each goal has a row, and one that is missed another two: where the time goes.
func TestGoalTables(t *testing.T) {
	own := &report.Backend{Name: ours, Figures: map[report.Figure]report.Series{
		report.SoloRate: {80, 70, 90}, report.ParallelRate: {150}, report.HandOff50: {.9}, report.ClientCPU("solo"): {50}, report.ServerCPU("solo"): {20}}}
	least := &report.Backend{Name: bare, Figures: map[report.Figure]report.Series{
		report.BareRate: {100, 100, 100}, report.BareParallelRate: {100}, report.ClientCPU("bare"): {40}, report.ServerCPU("bare"): {10}}}
	peer := &report.Backend{Name: "rueidislock", Figures: map[report.Figure]report.Series{report.HandOff50: {1}}}
	m := &measured{ID: "redis", Title: "Redis", Contenders: []*report.Backend{own, peer, least}, Profiles: []profiled{
		{Contender: ours, Workload: "solo", Samples: 40, Shares: map[string]float64{network: .5, engine: .5}},
		{Contender: bare, Workload: "bare", Samples: 30, Shares: map[string]float64{network: 1}},
	}}
	m.crowdOf(ours, 2).Rate, m.crowdOf("rueidislock", 2).Rate = report.Series{90}, report.Series{100}
	var b strings.Builder
	(&results{Stores: []*measured{m}}).goalTables(&b)
	for _, want := range []string{
		"| Redis, one client | ≥ 0.85 × bare commands | 0.80 | **no** |",
		"| Redis, 64 names | ≥ 1.40 × bare commands | 1.50 | yes |",
		"| Redis, hand-off p50 | ≤ 0.80 × rueidislock | 0.90 | **no** |",
		"| Redis, 2 clients on one name | ≥ 0.80 × rueidislock | 0.90 | yes |",
		"with 30 samples or more",
		"| Redis, one client: distlock | 20 | 50 | 25, 50% | 0 |",
		"| Redis, one client: bare commands | 10 | 40 | 40, 100% | 0 |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
