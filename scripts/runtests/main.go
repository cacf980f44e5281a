// Command runtests is "make test": it builds the test programs of this module and of the modules nested in it, and runs
// several of them side by side. A test of a lock mostly waits, for a lease to end or a server to start. The processors
// would be idle half of the time if one package followed another. What only computes (the compiler, and tests in virtual
// time) has the lowest priority, so that tests in real time are not late for it.
//
// The programs are built one batch after another, so that no package is compiled by two go commands at once. A batch
// runs while the next one is built. The output of a program appears when it has ended, in one piece, and only if it failed,
// was inconclusive, or -v asks for it. A table at the end names what took how long and what failed.
//
//	go run ./scripts/runtests [flags] [./redislock ./integrations/... ]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	goCommand string
	side      int // programs side by side
	parallel  int
	race      bool
	short     bool
	verbose   bool
	light     bool
	run, skip string
	keep      string                           // folder for what stays for the next run; or nothing stays
	free      func(dir string) (uint64, error) // what is left of the disk, in bytes
	temp      string                           // the TMPDIR of the tests, if not that of this process
	timeout   time.Duration
	patterns  []string
	out       io.Writer
}

func main() {
	var o options
	flag.StringVar(&o.goCommand, "go", "go", "the go `command`")
	flag.IntVar(&o.side, "p", max(2, runtime.NumCPU()), "test programs side by side, besides those in virtual time")
	flag.IntVar(&o.parallel, "parallel", 6, "tests side by side in one program")
	flag.BoolVar(&o.race, "race", true, "build with the race detector")
	flag.BoolVar(&o.short, "short", false, "pass -short")
	flag.BoolVar(&o.verbose, "v", false, "pass -v, and show the output of what passed")
	flag.BoolVar(&o.light, "light", false, "only packages whose tests need no store and no store's client, without the mutants")
	flag.StringVar(&o.run, "run", "", "only the tests that match this `regexp`")
	flag.StringVar(&o.skip, "skip", "", "no tests that match this `regexp`")
	flag.StringVar(&o.keep, "keep", keepDefault(), "`folder` in which programs stay for the next run; if empty, none do")
	remove := flag.Bool("clean", false, "only remove the programs of this checkout that were kept")
	flag.DurationVar(&o.timeout, "timeout", 15*time.Minute, "for one program")
	flag.Parse()
	o.patterns, o.out, o.free = flag.Args(), os.Stdout, freeSpace
	if os.Getenv("TMPDIR") == "" {
		o.temp = memoryFolder()
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	go stopWithMake(ctx, stop)
	run := runAll
	if *remove {
		run = func(context.Context, options) (bool, error) { return true, clean(o) }
	}
	ok, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// keepDefault is in the cache of the user, beside the etcd that is built for the tests.
func keepDefault() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "distlock", "programs")
}

// runAll returns whether all programs passed. The error is about what kept it from running them.
func runAll(ctx context.Context, o options) (bool, error) {
	began := time.Now()
	parts, err := findParts(ctx, o)
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "runtests-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	k, err := openKept(o)
	switch {
	case err == nil:
		defer k.lock.Close()
	case o.keep != "":
		fmt.Fprintln(o.out, "the programs of this run are not kept:", err)
	}
	if k != nil && len(o.patterns) == 0 && (o.race || o.light) {
		k.prune(parts)
	}

	ready := make(chan *part, len(parts)) // never blocks the builder
	building := make(chan time.Duration, 1)
	go func() {
		buildAll(ctx, o, k, work, parts, ready)
		close(ready)
		building <- time.Since(began)
	}()
	runBuilt(ctx, o, ready)
	built := <-building
	runAgain(ctx, o, parts)
	if ctx.Err() != nil {
		return false, fmt.Errorf("interrupted after %s", time.Since(began).Round(time.Second))
	}
	return summary(o.out, parts, built, time.Since(began)), nil
}
