package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// buildAll builds batch after batch and hands on each program. One that could not be built has its error as its result.
func buildAll(ctx context.Context, o options, k *kept, work string, parts []*part, ready chan<- *part) {
	for n := 0; ; n++ {
		var batch []*part
		for _, p := range parts {
			if p.batch == n {
				batch = append(batch, p)
			}
		}
		if len(batch) == 0 || ctx.Err() != nil {
			return
		}
		said := buildBatch(ctx, o, k, filepath.Join(work, fmt.Sprint(n)), n, batch)
		for _, p := range batch {
			if _, err := os.Stat(p.program); err != nil {
				p.result = result{failed: true, output: said, tests: []string{"it does not build"}}
				said = []byte("see above\n")
			}
			ready <- p
		}
	}
}

// buildBatch returns what the go command said. What cannot be kept is built as if nothing ever was.
func buildBatch(ctx context.Context, o options, k *kept, dir string, n int, batch []*part) []byte {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return []byte(err.Error())
	}
	for _, p := range batch {
		p.program = p.in(dir)
		p.log = p.program + ".log"
	}
	if k != nil {
		batch = k.build(ctx, o, n, batch)
	}
	if len(batch) == 0 {
		return nil
	}
	said, _ := compile(ctx, o, dir, batch, nil)
	return said
}

// compile leaves go vet to "make lint". Nobody debugs these programs, so they have no symbols; for the compiler, GOFLAGS in
// the Makefile say so. The go command inherits the lock, if there is one. It has not ended by itself where it was killed, with
// ctx or for want of memory: then any program may be half a copy.
func compile(ctx context.Context, o options, dir string, batch []*part, lock *os.File) (said []byte, ended bool) {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}
	if batch[0].race {
		args = append(args, "-race")
	}
	for _, p := range batch {
		args = append(args, p.pkg)
	}
	cmd := background(ctx, o.goCommand, args...)
	cmd.Dir = batch[0].module
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
	}
	said, err := cmd.CombinedOutput()
	if err != nil {
		said = fmt.Appendf(said, "%s %s: %v\n", o.goCommand, strings.Join(args, " "), err)
	}
	return said, cmd.ProcessState != nil && cmd.ProcessState.Exited()
}

// background is a command that leaves the processors to the tests that watch the clock. Not by more than
// ten: at nineteen, beside the busy loops of somebody else, it got one processor second in thirty.
func background(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nice", append([]string{"-n", "10", name}, args...)...)
}

// result is what became of a program.
type result struct {
	failed  bool
	passed  []string // tests
	skipped int      // those that were skipped for a reason of their own
	took    time.Duration
	cpu     time.Duration // its own, and that of the servers that it started and waited for
	output  []byte
	tests   []string // that failed, without those that failed because one within them did
	unsure  []string // tests that were inconclusive, failed or skipped
}

// runBuilt runs the programs, some side by side, and reports each as it ends. Those in virtual time run one after another
// beside the others. Those that mostly wait come last, and one more of them runs at a time.
func runBuilt(ctx context.Context, o options, ready <-chan *part) {
	var workers sync.WaitGroup
	var mu sync.Mutex
	work := func(p *part) {
		if !p.failed && ctx.Err() == nil {
			p.result = runOne(ctx, o, p)
		}
		if len(p.unsure) == 0 && !p.kept {
			_ = os.Remove(p.program) // they are large
		}
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			report(o.out, o, p)
		}
		p.output = nil
	}
	timed, idle, light := make(chan *part, cap(ready)), make(chan *part, cap(ready)), make(chan *part, cap(ready))
	inTurn := func(queues ...<-chan *part) {
		for _, queue := range queues {
			for p := range queue {
				work(p)
			}
		}
	}
	for range o.side {
		workers.Go(func() { inTurn(timed, light) })
	}
	workers.Go(func() { inTurn(idle, light) })
	for p := range ready {
		switch {
		case p.idle:
			idle <- p
		case p.light:
			light <- p
		default:
			timed <- p
		}
	}
	close(timed)
	close(idle)
	close(light)
	workers.Wait()
}

func runOne(ctx context.Context, o options, p *part) result {
	timeout := o.timeout
	if p.idle {
		timeout *= 2 // it gives way to all others, and what else the machine has to do
	}
	args := append([]string{"-test.paniconexit0", "-test.v", "-test.count=1", "-test.timeout=" + timeout.String(),
		fmt.Sprintf("-test.parallel=%d", o.parallel)}, p.args...)
	if o.short {
		args = append(args, "-test.short")
	}
	if o.run != "" {
		args = append(args, "-test.run="+o.run)
	}
	if o.skip != "" {
		args = append(args, "-test.skip="+o.skip)
	}
	// A file, not a pipe: whatever outlives the program and has its output open does not keep us.
	log, err := os.Create(p.log)
	if err != nil {
		return result{failed: true, output: []byte(err.Error())}
	}
	defer os.Remove(log.Name())
	defer log.Close()
	command := exec.CommandContext
	if p.idle {
		command = background
	}
	cmd := command(ctx, p.program, args...)
	cmd.Dir = p.dir
	// A program with the race detector sleeps for a second at its end, and so does each child process of the tests.
	// Nor is it told how the user's own Postgres is to be reached.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") })
	cmd.Env = append(env, "PWD="+p.dir, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	if o.temp != "" {
		cmd.Env = append(cmd.Env, "TMPDIR="+o.temp)
	}
	cmd.Stdout, cmd.Stderr = log, log
	// Its servers die with it, by the kernel.
	began := time.Now()
	err = cmd.Run()
	r := result{failed: err != nil, took: time.Since(began)}
	if cmd.ProcessState != nil {
		r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	text, readErr := os.ReadFile(log.Name())
	if readErr != nil {
		text = []byte(readErr.Error())
	}
	r.read(text, o.verbose)
	if err != nil {
		r.output = fmt.Appendf(r.output, "%v\n", err)
	}
	return r
}

// read takes out of the output of -v what a reader wants: all of it, or what was said by tests that failed or were inconclusive.
func (r *result) read(text []byte, all bool) {
	r.judge(text)
	switch {
	case all || r.failed && len(r.tests) == 0:
		r.output = text
	case r.failed || len(r.unsure) > 0:
		r.output = excerpt(text, slices.Concat(r.tests, r.unsure))
	}
}
