package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/distlock-go/distlock/internal/compare"
)

const compareHelp = `Compare measures lock backends side by side, in alternating rounds:

  bare               the store's own commands that no lock can do without: the limit
  solo               one lock and unlock after the other
  parallel           many names at once, by one client
  hot                many clients, one name
  handoff            from Unlock to the return of the next client's Lock
  waiting            many goroutines of one process that wait for one name
  try                all clients TryLock all names at the same moment
  arrivals           calls that begin at a rate; latency from when each was to begin
  hot_by_clients     hot, with 2, 4, 8 ... clients
  parallel_by_names  parallel, with 1, 8, 64 ... names
  failover           the holder's packets vanish: until a waiting client holds
  held               many locks held and renewed: memory, requests, losses
  traffic            requests and bytes of a lock and unlock, counted by a proxy

Without a URL it compares the backends it can have on this machine: memory, and
Redis, MySQL, ZooKeeper and etcd as given by DISTLOCK_REDIS_URL, DISTLOCK_MYSQL_URL,
DISTLOCK_ZK_URL and DISTLOCK_ETCD_URL, or in containers, or as local processes that
it starts on loopback and stops again. What cannot be had is listed with the reason.

On a server that was given it touches only keys with a random prefix, two tables or a
node with a random name, within the prefix, schema or node of the URL; it removes them
and says so. MySQL needs the rights to CREATE and DROP them.

Then it has go wrong what can: holders are killed, stopped and cut off, waiters are
cancelled, servers restarted (those that it has started, never one that was given), and
it looks who holds, and who was told. --safety=false leaves that out.

Interrupted by a signal, it stops within seconds, removes what it has made, prints what
was measured until then, and exits with 128+n: 130 after Ctrl-C. It exits with 70 if a
workload failed, or if something could not be removed.
`

func compareCommand(signals *interrupts) *cobra.Command {
	c := compareParams{}
	var out *reportOptions
	cmd := &cobra.Command{
		Use:   "compare [url...]",
		Short: "Measure lock backends side by side",
		Long:  compareHelp + "\n" + profileHelp(),
		Example: `  distlock compare --profile quick
  distlock compare --profile checkout --rate 500 redis://localhost:6379 etcd://localhost:2379`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, urls []string) error {
			p, err := c.resolve(cmd.Flags())
			if err != nil {
				return usage(err)
			}
			report, err := out.report(p, func() (*compare.Report, error) { return runCompare(cmd.Context(), urls, p, c.safety) })
			if err != nil {
				return interrupted(signals, err)
			}
			return interrupted(signals, out.write(cmd, report))
		},
	}
	f := cmd.Flags()
	c.addTo(f)
	out = reportFlags(f)
	return cmd
}

func runCompare(ctx context.Context, urls []string, p compare.Params, safety bool) (*compare.Report, error) {
	targets, missing, closeAll, err := findTargets(ctx, urls, p.TTL)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	report, err := compare.Run(ctx, targets, p, progress(os.Stderr))
	if err != nil {
		return nil, err
	}
	report.Missing = missing
	compare.Describe(ctx, report, targets)
	if safety {
		compare.Hazards(ctx, report, targets, progress(os.Stderr))
	}
	compare.Clean(targets, report)
	for i, b := range report.Backends {
		if len(urls) > 0 && b.Touched != "" {
			fmt.Fprintf(os.Stderr, "distlock: on %s touched %s\n", targets[i].URL, b.Touched)
		}
	}
	return report, nil
}

// progress draws a bar on a terminal, and writes plain lines elsewhere.
func progress(w *os.File) func(compare.Step) {
	if !term.IsTerminal(int(w.Fd())) {
		last := ""
		return func(s compare.Step) {
			if s.Doing != last && s.Done < s.Total {
				fmt.Fprintf(w, "%3d%%  %s\n", 100*s.Done/s.Total, doing(s))
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
		bar.Describe(doing(s))
		_ = bar.Set(s.Done) // a bar that cannot be drawn is no reason to stop
	}
}

func doing(s compare.Step) string {
	if s.Left == 0 {
		return s.Doing // nothing is known
	}
	return fmt.Sprintf("%s, about %v left", s.Doing, s.Left.Round(time.Second))
}
