package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/distlock-go/distlock/internal/compare"
)

// reportOptions say where a comparison goes to, and what it is held against.
type reportOptions struct {
	json, csv, html, from string
	markdown              bool
	baseline              string
	tolerance             float64
	failOnRegression      bool

	old *compare.Report // the baseline, or nil
}

func reportFlags(f *pflag.FlagSet) *reportOptions {
	o := &reportOptions{}
	f.StringVar(&o.json, "json", "", "also write the report, with every round, to `file` (- for standard output)")
	f.StringVar(&o.csv, "csv", "", "also write every value, one a row, to `file` (- for standard output)")
	f.StringVar(&o.html, "html", "", "also write a page with charts, complete in one `file` (- for standard output)")
	f.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	f.StringVar(&o.from, "from", "", "measure nothing: read the report of an earlier --json from `file`")
	f.StringVar(&o.baseline, "baseline", "", "tell what has changed since the report of an earlier --json in `file`")
	f.Float64Var(&o.tolerance, "tolerance", 0.2, "with --baseline, the `part` by which a median may change without being told")
	f.BoolVar(&o.failOnRegression, "fail-on-regression", false, "with --baseline, exit with status 70 if something got worse")
	return o
}

// report returns what measure finds, or the report of --from. What cannot be
// written or compared afterwards is refused before anything is measured.
func (o *reportOptions) report(p compare.Params, measure func() (*compare.Report, error)) (*compare.Report, error) {
	if err := o.check(); err != nil {
		return nil, usage(err)
	}
	var saved *compare.Report
	if o.from != "" {
		var err error
		if saved, err = readReport(o.from); err != nil {
			return nil, usage(fmt.Errorf("--from: %w", err))
		}
		p = saved.Params
	}
	if o.baseline != "" {
		var err error
		if o.old, err = readReport(o.baseline); err == nil {
			err = compare.Comparable(o.old.Params, p)
		}
		if err != nil {
			return nil, usage(fmt.Errorf("--baseline: %w", err))
		}
	}
	if o.failOnRegression && p.Rounds < compare.MinRounds {
		return nil, usage(fmt.Errorf("--fail-on-regression needs %d rounds to tell a change from noise, not %d", compare.MinRounds, p.Rounds))
	}
	if saved != nil {
		return saved, nil
	}
	return measure()
}

func (o *reportOptions) check() error {
	stdout := 0
	for _, name := range []string{o.json, o.csv, o.html} {
		if name == "-" {
			stdout++
		}
	}
	switch {
	case stdout > 1:
		return errors.New("only one of --json, --csv and --html can go to standard output")
	case o.failOnRegression && o.baseline == "":
		return errors.New("--fail-on-regression needs --baseline")
	case !(o.tolerance >= 0 && o.tolerance <= 10):
		return fmt.Errorf("--tolerance is %v, allowed are 0 to 10", o.tolerance)
	}
	return nil
}

// write prints the report and writes it wherever else it was asked for. What one
// file cannot take, the others still get.
func (o *reportOptions) write(cmd *cobra.Command, r *compare.Report) error {
	errs := []error{toFile(o.json, r.WriteJSON), toFile(o.csv, r.WriteCSV), toFile(o.html, r.WriteHTML)}
	out := cmd.OutOrStdout()
	if o.json == "-" || o.csv == "-" || o.html == "-" {
		out = io.Discard // a program reads it: the tables would be in its way
	}
	write := r.WriteText
	switch {
	case o.markdown:
		write = r.WriteMarkdown
	case colours(out):
		write = r.WriteTerminal
	}
	errs = append(errs, write(out))
	if o.old != nil {
		errs = append(errs, o.changes(out, r))
	}
	return errors.Join(append(errs, r.Err())...)
}

// changes prints what differs from the baseline.
func (o *reportOptions) changes(w io.Writer, r *compare.Report) error {
	diff, err := compare.Since(o.old, r, o.tolerance)
	if err != nil {
		return err
	}
	write := diff.WriteText
	switch {
	case o.markdown:
		write = diff.WriteMarkdown
	case colours(w):
		write = diff.WriteTerminal
	}
	if err := write(w); err != nil {
		return err
	}
	if n := diff.Regressions(); n > 0 && o.failOnRegression {
		return &exit{status: statusFailed, err: fmt.Errorf("%d regressions since %s", n, o.baseline)}
	}
	return nil
}

// colours reports whether w is a terminal that takes them (see no-color.org).
func colours(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

func readReport(name string) (*compare.Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := compare.ReadReport(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// toFile writes to a file, or to standard output if it is called "-", or nowhere if
// it has no name.
func toFile(name string, write func(io.Writer) error) error {
	switch name {
	case "":
		return nil
	case "-":
		return write(os.Stdout)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
