package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/distlock-go/distlock/internal/compare"
)

const compareHelp = `Compare measures lock backends side by side, in alternating rounds: one lock after
the other, many names in parallel, many clients on one name, and the hand-off from
Unlock to the next waiter; the store's own bare commands beside them as the limit.

Without a URL it compares the backends it can have on this machine: memory, and
Redis, MySQL, ZooKeeper and etcd as given by DISTLOCK_REDIS_URL, DISTLOCK_MYSQL_URL,
DISTLOCK_ZK_URL and DISTLOCK_ETCD_URL, or in containers, or as local processes that
it starts on loopback and stops again. What cannot be had is listed with the reason.`

func compareCommand() *cobra.Command {
	p := compare.Params{}
	var jsonFile string
	var markdown bool
	cmd := &cobra.Command{
		Use:   "compare [url...]",
		Short: "Measure lock backends side by side",
		Long:  compareHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, urls []string) error {
			if err := p.Check(); err != nil {
				return usage(err)
			}
			report, err := runCompare(cmd.Context(), urls, p)
			if err != nil {
				return err
			}
			write := report.WriteText
			if markdown {
				write = report.WriteMarkdown
			}
			return errors.Join(write(cmd.OutOrStdout()), toFile(jsonFile, report.WriteJSON), report.Err())
		},
	}
	f := cmd.Flags()
	f.DurationVar(&p.Duration, "duration", time.Second, "of one workload on one backend in one round")
	f.IntVar(&p.Rounds, "rounds", 3, "how often the backends take turns")
	f.IntVar(&p.Clients, "clients", 16, "clients that fight for one name")
	f.IntVar(&p.Names, "names", 64, "names locked in parallel")
	// 20 s: the longest that ZooKeeper takes with its default ticks is about 24 s.
	f.DurationVar(&p.TTL, "ttl", 20*time.Second, "TTL of the locks")
	f.StringVar(&jsonFile, "json", "", "also write the report, with every round, to `file` (- for standard output)")
	f.BoolVar(&markdown, "markdown", false, "print the table as Markdown")
	return cmd
}

func runCompare(ctx context.Context, urls []string, p compare.Params) (*compare.Report, error) {
	targets, missing, closeAll, err := findTargets(ctx, urls)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	report, err := compare.Run(ctx, targets, p, progress(os.Stderr))
	if err != nil {
		return nil, err
	}
	report.Missing = missing
	return report, nil
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

// progress draws a bar on a terminal, and writes plain lines elsewhere.
func progress(w *os.File) func(compare.Step) {
	if !term.IsTerminal(int(w.Fd())) {
		last := ""
		return func(s compare.Step) {
			if s.Doing != last {
				fmt.Fprintf(w, "%3d%%  %s\n", 100*s.Done/s.Total, s.Doing)
				last = s.Doing
			}
		}
	}
	var bar *progressbar.ProgressBar
	return func(s compare.Step) {
		if bar == nil {
			bar = progressbar.NewOptions(s.Total, progressbar.OptionSetWriter(io.Writer(w)),
				progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false), progressbar.OptionFullWidth())
		}
		bar.Describe(fmt.Sprintf("%s, about %v left", s.Doing, s.Left.Round(time.Second)))
		_ = bar.Set(s.Done) // a bar that cannot be drawn is no reason to stop
	}
}
