// Command bench measures distlock and other lock libraries for Go side by side: in
// one run, on the same servers, in turn. "make bench" runs it; -h lists the flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: go run . [flags]
       go run . -scale [-locks N] [-hold D]
       go run . -render results.json

Measures distlock and its peers on servers that it starts, with the durability that
they have by default, and writes the figures as JSON. It waits until the machine is
idle, and gives up if that does not come: figures of a busy machine say little.
-scale holds very many locks for long on each store, and has very many wait, and writes that
beside the other figures. It does not wait until the machine is idle.
-render writes the pages that are made of a file, unless it is of a busy machine. Ctrl-C
ends a run without a result.

`

// settings are what the command line asks for.
type settings struct {
	stores   []store
	rounds   int
	duration time.Duration
	patience time.Duration // of each job, see there
	quick    bool
	busy     bool
	scale    scaleSettings
	profiles string // folder; empty for none
	out      string // empty: a part of the whole, or of a busy machine, only printed
	into     string // folder of the pages
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		if err := child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == helperFlag {
		if err := help(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := command(os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1)
	}
}

func command(args []string, out io.Writer) error {
	s, render, err := parse(args)
	if err != nil {
		return err
	}
	if render != "" {
		r, err := readResults(render)
		if err != nil {
			return err
		}
		return r.write(s.into)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &run{settings: s, results: newResults(args), log: os.Stderr, began: time.Now()}
	r.results.Params = r.params()
	if err := r.measure(ctx); err != nil {
		return err
	}
	if s.out != "" {
		if err := r.results.save(s.out); err != nil {
			return err
		}
	}
	_, err = out.Write(append(r.results.page(), r.results.details()...))
	return err
}

// write writes the pages and their figures into a folder, once all of them are made.
func (r *results) write(folder string) error {
	files, err := r.files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// measure measures what is asked for, and keeps of the file what is not.
func (r *run) measure(ctx context.Context) error {
	old, err := readResults(r.out)
	switch {
	case r.settings.scale.on && r.out == "":
		return r.scale(ctx)
	case r.settings.scale.on && err != nil:
		return err
	case r.settings.scale.on:
		r.results = old
		return r.scale(ctx)
	case err == nil:
		r.results.Scale = old.Scale
	}
	part := err == nil && len(r.settings.stores) < len(stores)
	if err = r.everything(ctx); err == nil && part {
		r.results = old.with(r.results)
	}
	return err
}

func parse(args []string) (s settings, render string, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	only := f.String("only", "", "`stores` to measure, with commas between: "+strings.Join(storeIDs(), ", ")+"; all by default. The page is printed, and no file written unless -out names one; there they replace those of an earlier run")
	f.IntVar(&s.rounds, "rounds", 3, "how often the contenders take turns")
	f.DurationVar(&s.duration, "duration", time.Second, "how long one of them is measured in one round; hand-off three times as long")
	f.BoolVar(&s.quick, "quick", false, "two short rounds, a tenth of the locks and no curves, into quick.json: some minutes")
	f.BoolVar(&s.busy, "busy", false, "measure although the machine is busy: the figures are printed, and no file is written unless -out names one")
	f.BoolVar(&s.scale.on, "scale", false, "only what is very large, into the results of an earlier run: about half an hour")
	f.IntVar(&s.scale.locks, "locks", 100_000, "how many `locks` -scale holds on each store; 0 leaves those figures as they are")
	f.DurationVar(&s.scale.hold, "hold", 10*time.Minute, "how long -scale holds them")
	f.StringVar(&s.profiles, "profiles", "", "write a profile of the processors of each contender and workload into this `folder`, for go tool pprof")
	f.StringVar(&s.out, "out", "", "`file` of the results: results.json, or quick.json with -quick, by default")
	f.StringVar(&render, "render", "", "write the pages made of this `file` of results, and do nothing else")
	f.StringVar(&s.into, "into", "../docs/reports", "the `folder` that -render writes into")
	if err := f.Parse(args); err != nil {
		return s, "", err
	}
	if f.NArg() > 0 {
		return s, "", fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if s.quick {
		s.rounds, s.duration = 2, 250*time.Millisecond
	}
	if s.profiles != "" {
		if s.profiles, err = filepath.Abs(s.profiles); err != nil {
			return s, "", err
		}
	}
	if s.rounds < 1 || s.rounds > 100 {
		return s, "", fmt.Errorf("-rounds is %d, allowed are 1 to 100", s.rounds)
	}
	if s.duration < 50*time.Millisecond || s.duration > time.Minute {
		return s, "", fmt.Errorf("-duration is %v, allowed are 50ms to 1m", s.duration)
	}
	if s.scale.locks < 0 || s.scale.hold < time.Second {
		return s, "", fmt.Errorf("-locks is %d and -hold %v, allowed are 0 and 1s at the least", s.scale.locks, s.scale.hold)
	}
	if s.stores, err = chosen(*only); err != nil {
		return s, "", err
	}
	if s.out == "" && *only == "" && !s.busy {
		s.out = map[bool]string{false: "results.json", true: "quick.json"}[s.quick]
	}
	return s, render, nil
}

func storeIDs() []string {
	var ids []string
	for _, st := range stores {
		ids = append(ids, st.id)
	}
	return ids
}

func chosen(only string) ([]store, error) {
	if only == "" {
		return stores, nil
	}
	var some []store
	for id := range strings.SplitSeq(only, ",") {
		i := slices.Index(storeIDs(), id)
		if i < 0 {
			return nil, fmt.Errorf("-only: %q is not one of %s", id, strings.Join(storeIDs(), ", "))
		}
		some = append(some, stores[i])
	}
	return some, nil
}
