package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/distlock-go/distlock/internal/compare/render"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// reportOptions say where the report of a comparison comes from and goes to.
type reportOptions struct {
	json, html, from string
	markdown         bool
}

func reportFlags(f *pflag.FlagSet) *reportOptions {
	o := &reportOptions{}
	f.StringVar(&o.json, "json", "", "also write the report, with every round, to `file` (- for standard output)")
	f.StringVar(&o.html, "html", "", "also write a page with charts, complete in one `file` (- for standard output)")
	f.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	f.StringVar(&o.from, "from", "", "measure nothing: read the report of an earlier --json from `file`")
	return o
}

// alone refuses what --from would leave out.
func (o *reportOptions) alone(f *pflag.FlagSet, urls []string) (err error) {
	if o.from == "" {
		return nil
	}
	if len(urls) > 0 {
		return errors.New("--from measures nothing: it excludes URLs")
	}
	f.Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"from", "json", "html", "markdown"}, f.Name) {
			err = fmt.Errorf("--from measures nothing: it excludes --%s", f.Name)
		}
	})
	return err
}

// report returns what measure finds, or the report of --from. What cannot be written
// afterwards is refused before anything is measured.
func (o *reportOptions) report(measure func() (*report.Report, error)) (*report.Report, error) {
	if o.json == "-" && o.html == "-" {
		return nil, usage(errors.New("only one of --json and --html can go to standard output"))
	}
	if o.from != "" {
		saved, err := readReport(o.from)
		if err != nil {
			return nil, usage(fmt.Errorf("--from: %w", err))
		}
		return saved, nil
	}
	if err := tryFiles(o.json, o.html); err != nil {
		return nil, usage(err)
	}
	r, err := measure()
	if err != nil {
		return nil, err
	}
	r.Mask(given.data)
	return r, nil
}

// write prints the report and writes it wherever else it was asked for. What one
// file cannot take, the others still get.
func (o *reportOptions) write(cmd *cobra.Command, r *report.Report) error {
	errs := []error{
		toFile(o.json, func(w io.Writer) error { return render.JSON(w, r) }),
		toFile(o.html, func(w io.Writer) error { return render.HTML(w, r) }),
	}
	out := cmd.OutOrStdout()
	if o.json == "-" || o.html == "-" {
		out = io.Discard // a program reads it: the tables would be in its way
	}
	shown := o.show(out, r)
	for i, name := range []string{o.json, o.html} { // last, where it is not missed
		if errs[i] == nil {
			tellFile(name)
		}
	}
	return errors.Join(append(errs, shown, render.Err(r))...)
}

// show prints the report for a reader of the terminal, or of what comes instead of it.
func (o *reportOptions) show(out io.Writer, r *report.Report) error {
	columns, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		columns = 0 // it is no terminal
	}
	switch {
	case o.markdown:
		return render.Markdown(out, r)
	case colours(out):
		return render.Terminal(painted, r, columns)
	}
	return render.Text(out, r, columns)
}

// tellFile says where a report has been written, if to a file.
func tellFile(name string) {
	if name == "" || name == "-" {
		return
	}
	if whole, err := filepath.Abs(name); err == nil {
		name = whole
	}
	say("the report is in %s", name)
}

// colours reports whether w is a terminal that takes them (see no-color.org).
func colours(w io.Writer) bool {
	out := w == io.Writer(stdout) || w == io.Writer(painted)
	return out && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(os.Stdout.Fd()))
}

func readReport(name string) (*report.Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := report.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.Mask(given.data)
	return r, nil
}

// tryFiles returns an error if toFile could not write to one of the names. What is in them stays.
func tryFiles(names ...string) error {
	var errs []error
	for _, name := range names {
		if name != "" && name != "-" {
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
			if err == nil {
				err = f.Close()
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// toFile writes to a file, or to standard output if it is called "-", or nowhere if it has no name. It touches the file
// once all is known: what was there before is not lost by a text that cannot be made.
func toFile(name string, write func(io.Writer) error) error {
	switch name {
	case "":
		return nil
	case "-":
		return write(stdout)
	}
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o666)
}
