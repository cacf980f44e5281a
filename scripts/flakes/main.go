// Command flakes runs the tests of one package many times, every other time beside two busy loops, and tells which test
// failed how often. The test program is built once. Each round has a seed of its own, which the conformance suite and
// the chaos tests take. After the first round it says how long the rest will take.
//
//	go run ./scripts/flakes [-rounds 10] [-run regexp] ./redislock
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// busyLoops compete with the tests in every other round.
const busyLoops = 2

type options struct {
	goCommand, pkg, run string
	rounds, parallel    int
	race, short         bool
	limit               time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.goCommand, "go", "go", "the go `command`")
	flag.StringVar(&o.run, "run", "", "only the tests that match this `regexp`")
	flag.IntVar(&o.rounds, "rounds", 10, "how often")
	flag.IntVar(&o.parallel, "parallel", 6, "tests side by side, as in make test")
	flag.BoolVar(&o.race, "race", true, "build with the race detector")
	flag.BoolVar(&o.short, "short", false, "pass -short")
	flag.DurationVar(&o.limit, "limit", time.Hour, "no round begins later than this after the first")
	flag.Parse()
	o.pkg = flag.Arg(0)
	if flag.NArg() != 1 || o.rounds < 1 {
		fmt.Fprintln(os.Stderr, "usage: flakes [flags] PACKAGE; -rounds is at least 1; see -help")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	failed, err := search(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "flakes:", err)
	}
	if failed > 0 || err != nil {
		os.Exit(1)
	}
}

// round is one run of the tests.
type round struct {
	seed   int
	busy   bool
	took   time.Duration
	failed []string // tests; or one line on a program that failed as a whole
}

// search returns in how many rounds something failed.
func search(ctx context.Context, o options) (int, error) {
	logs, err := os.MkdirTemp("", "flakes-")
	if err != nil {
		return 0, err
	}
	program, dir, err := build(ctx, o, logs)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	var rounds []round
	for seed := 1; seed <= o.rounds; seed++ {
		if time.Since(began) > o.limit {
			fmt.Printf("the limit of %s is over after %d of %d rounds\n", o.limit, len(rounds), o.rounds)
			break
		}
		r, err := runRound(ctx, o, program, dir, logs, seed)
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted in round %d", seed)
		}
		if err != nil {
			tell(rounds)
			return 0, err
		}
		rounds = append(rounds, r)
		if seed == 1 && o.rounds > 1 {
			rest := time.Duration(o.rounds-1) * r.took
			fmt.Printf("%d more rounds will take %s or more, up to twice as long beside the busy loops; none begins after %s\n",
				o.rounds-1, rest.Round(time.Second), o.limit)
		}
	}
	_ = os.Remove(program)
	failed := tell(rounds)
	if failed == 0 {
		return 0, os.RemoveAll(logs)
	}
	fmt.Println("the output of the rounds that failed is in", logs)
	return failed, nil
}

// build returns the test program and the folder to run it in.
func build(ctx context.Context, o options, logs string) (program, dir string, err error) {
	program = filepath.Join(logs, "flakes.test")
	args := []string{"test", "-c", "-vet=off", "-o", program}
	if o.race {
		args = append(args, "-race")
	}
	// In its folder, since the package may be one of a nested module.
	if dir, err = filepath.Abs(o.pkg); err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, o.goCommand, append(args, ".")...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("building the tests of %s: %w\n%s", o.pkg, err, out)
	}
	if _, err := os.Stat(program); err != nil {
		return "", "", fmt.Errorf("%s has no tests", o.pkg)
	}
	return program, dir, nil
}

// runRound keeps the output if something failed. The even rounds are beside busy loops.
func runRound(ctx context.Context, o options, program, dir, logs string, seed int) (round, error) {
	r := round{seed: seed, busy: seed%2 == 0}
	if r.busy {
		defer beBusy()()
	}
	args := []string{"-test.v", "-test.count=1", "-test.timeout=20m", "-test.paniconexit0", fmt.Sprintf("-test.parallel=%d", o.parallel), "-test.run=" + o.run}
	if o.short {
		args = append(args, "-test.short")
	}
	log, err := os.Create(filepath.Join(logs, fmt.Sprintf("round-%d.log", seed)))
	if err != nil {
		return r, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PWD="+dir,
		fmt.Sprintf("DISTLOCK_CONFORMANCE_SEED=%d", seed), fmt.Sprintf("DISTLOCK_CHAOS_SEED=%d", seed))
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	failure := cmd.Run()
	r.took = time.Since(began)
	text, err := os.ReadFile(log.Name())
	if err != nil || ctx.Err() != nil {
		return r, err
	}
	word := "ok"
	if failure != nil {
		r.failed = failedTests(text)
		if len(r.failed) == 0 {
			r.failed = []string{"(no test: " + failure.Error() + ")"}
		}
		word = "FAIL " + strings.Join(r.failed, ", ")
	} else if err := os.Remove(log.Name()); err != nil {
		return r, err
	}
	beside := ""
	if r.busy {
		beside = fmt.Sprintf(", beside %d busy loops", busyLoops)
	}
	fmt.Printf("round %d (seed %d%s): %.1f s %s\n", seed, seed, beside, r.took.Seconds(), word)
	return r, nil
}

// beBusy starts the loops and returns what ends them. They are goroutines: they cannot outlive this process.
func beBusy() (stop func()) {
	before := runtime.GOMAXPROCS(runtime.NumCPU() + busyLoops) // so that they do not keep this program from its work
	var over atomic.Bool
	for range busyLoops {
		go func() {
			for !over.Load() {
			}
		}()
	}
	return func() {
		over.Store(true)
		runtime.GOMAXPROCS(before)
	}
}

// failedTests names the tests that failed, without those that failed only because one within them did.
func failedTests(text []byte) []string {
	var names []string
	for line := range bytes.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

// tell prints which test failed how often, and returns in how many rounds something failed.
func tell(rounds []round) int {
	type record struct {
		quiet, busy int
		seeds       []string
	}
	tests := map[string]*record{}
	failed, quiet, busy := 0, 0, 0
	for _, r := range rounds {
		if r.busy {
			busy++
		} else {
			quiet++
		}
		if len(r.failed) > 0 {
			failed++
		}
		for _, name := range r.failed {
			t := tests[name]
			if t == nil {
				t = &record{}
				tests[name] = t
			}
			if t.seeds = append(t.seeds, fmt.Sprint(r.seed)); r.busy {
				t.busy++
			} else {
				t.quiet++
			}
		}
	}
	fmt.Printf("%d rounds, %d of them beside busy loops: something failed in %d\n", len(rounds), busy, failed)
	byCount := func(a, b string) int {
		return cmp.Or(len(tests[b].seeds)-len(tests[a].seeds), strings.Compare(a, b))
	}
	for _, name := range slices.SortedFunc(maps.Keys(tests), byCount) {
		t := tests[name]
		fmt.Printf("%s: failed in %d of %d quiet rounds and %d of %d busy ones, seeds %s\n",
			name, t.quiet, quiet, t.busy, busy, strings.Join(t.seeds, " "))
	}
	return failed
}
