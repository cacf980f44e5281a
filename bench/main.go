// Command bench measures distlock and other lock libraries for Go side by side: in
// one run, on the same servers, in turn. "make bench" runs it; -h lists the flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/bench/result"
	"github.com/distlock-go/distlock/bench/work"
	"github.com/distlock-go/distlock/internal/servers"
)

const usage = `usage: go run . [flags]
       go run . -render results.json

Measures distlock and its peers on servers that it starts, prints ratios, and
writes the figures as JSON. With -only, -rows or -who, rows that are measured
replace those in the file and others stay, so that a run can be done in pieces.
-render writes the page that is made of a file to the standard output, with
misses.md beside it as the explanation of goals that were missed. Ctrl-C ends a
run with what it has.

`

// settings are what the command line asks for.
type settings struct {
	backends []servers.Kind
	rows     []string // all if empty
	who      []string // contenders; all if empty
	rounds   int
	duration time.Duration
	quick    bool
	out      string
	profiles string
	command  []string
	commit   string
	afresh   bool // everything is measured: nothing of an older file stays
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == work.ChildFlag {
		if err := work.Child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := command(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1)
	}
}

func command(args []string) error {
	s, render, err := parse(args)
	if err != nil {
		return err
	}
	if render != "" {
		return page(os.Stdout, render)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	results, err := result.Open(s.out, s.afresh)
	if err != nil {
		return err
	}
	r := &run{settings: s, results: results, log: os.Stderr, began: time.Now()}
	err = r.everything(ctx)
	result.Table(os.Stdout, results, s.backends)
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "bench: interrupted; what was measured is in", s.out)
		os.Exit(130)
	}
	return err
}

// page renders a file of results.
func page(w io.Writer, path string) error {
	r, err := result.Read(path)
	if err != nil {
		return err
	}
	misses, err := os.ReadFile(filepath.Join(filepath.Dir(path), "misses.md"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return result.Page(w, r, string(misses))
}

func parse(args []string) (s settings, render string, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
		var ids []string
		for _, r := range work.Rows {
			ids = append(ids, r.ID)
		}
		fmt.Fprintln(f.Output(), "\nrows:", strings.Join(ids, " "))
	}
	only := f.String("only", "", "`backends` to measure, with commas between: redis, mysql, zk, etcd; all by default")
	rows := f.String("rows", "", "`rows` to measure, with commas between; a name ending in * stands for all that begin so")
	who := f.String("who", "", "`contenders` to measure, by their full names, with semicolons between; goals that need others are then not judged")
	f.IntVar(&s.rounds, "rounds", 5, "how often the contenders take turns in what is timed")
	f.DurationVar(&s.duration, "duration", 400*time.Millisecond, "how long one of them is measured in one round; some rows take a multiple")
	f.BoolVar(&s.quick, "quick", false, "two short rounds, not the largest rows, and no profiles unless -profiles asks for them: a few minutes")
	f.StringVar(&s.out, "out", "", "`file` of the results: results.json, or quick.json with -quick, by default")
	f.StringVar(&s.profiles, "profiles", "", "`folder` to keep the profiles in that the page sums up")
	f.StringVar(&render, "render", "", "write the page made of this `file` of results, and do nothing else")
	if err := f.Parse(args); err != nil {
		return s, "", err
	}
	if f.NArg() > 0 {
		return s, "", fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if s.quick {
		s.rounds, s.duration = 2, 300*time.Millisecond
	}
	if s.out == "" {
		s.out = "results.json"
		if s.quick {
			s.out = "quick.json"
		}
	}
	s.afresh = *only == "" && *rows == "" && *who == ""
	s.command, s.commit = args, commit()
	if s.backends, err = chosen(*only); err != nil {
		return s, "", err
	}
	if *rows != "" {
		s.rows = strings.Split(*rows, ",")
	}
	if *who != "" {
		s.who = strings.Split(*who, ";")
	}
	return s, render, s.check()
}

func chosen(only string) ([]servers.Kind, error) {
	if only == "" {
		return servers.Kinds, nil
	}
	var kinds []servers.Kind
	for name := range strings.SplitSeq(only, ",") {
		if !slices.Contains(servers.Kinds, servers.Kind(name)) {
			return nil, fmt.Errorf("-only: %q is not one of %v", name, servers.Kinds)
		}
		kinds = append(kinds, servers.Kind(name))
	}
	return kinds, nil
}

func (s *settings) check() error {
	switch {
	case s.rounds < 1 || s.rounds > 100:
		return fmt.Errorf("-rounds is %d, allowed are 1 to 100", s.rounds)
	case s.duration < 50*time.Millisecond || s.duration > time.Minute:
		return fmt.Errorf("-duration is %v, allowed are 50ms to 1m", s.duration)
	}
	for _, name := range s.who {
		if !slices.ContainsFunc(peers.All, func(c peers.Contender) bool { return c.Name == name }) {
			return fmt.Errorf("-who: no contender is called %q", name)
		}
	}
	for _, pattern := range s.rows {
		if !slices.ContainsFunc(work.Rows, func(r work.Row) bool { return matches(pattern, r.ID) }) {
			return fmt.Errorf("-rows: no row is called %q; -h lists them", pattern)
		}
	}
	return nil
}

// wants reports whether the row is to be measured.
func (s *settings) wants(row work.Row) bool {
	if len(s.rows) == 0 {
		return !s.quick || !row.Slow
	}
	return slices.ContainsFunc(s.rows, func(pattern string) bool { return matches(pattern, row.ID) })
}

// contenders returns who takes the row.
func (s *settings) contenders(row work.Row, backend servers.Kind) []peers.Contender {
	return slices.DeleteFunc(row.For(backend), func(c peers.Contender) bool {
		return len(s.who) > 0 && !slices.Contains(s.who, c.Name)
	})
}

func matches(pattern, id string) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(id, start)
	}
	return pattern == id
}
