package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/distlock-go/distlock/internal/compare"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/servers"
)

const compareHelp = `Compare measures lock backends side by side, in alternating rounds. "distlock help
workloads" says what it measures.

Its URLs are arguments: it looks at neither DISTLOCK_URL nor a configuration file.
Without a URL it compares memory, and Redis, MySQL, Postgres, ZooKeeper and etcd as given
by DISTLOCK_REDIS_URL, DISTLOCK_MYSQL_URL, DISTLOCK_PG_URL, DISTLOCK_ZK_URL and
DISTLOCK_ETCD_URL, or in containers, or as local processes that it starts on loopback and
stops again. What cannot be had is listed with the reason; what was given and cannot be had
is an error, after the report.

It loads the servers as fast as they answer, with up to --clients clients, each with
connections of its own. On a server that was given it touches only keys with a random
prefix, two tables or a node with a random name, within the prefix, schema or node of the
URL, and removes them. MySQL and Postgres need the rights to CREATE and DROP them, Redis
that to SCAN.

Then it breaks things on purpose, unless --safety=false: holders are killed, stopped and
cut off, waiters are cancelled, servers restarted (those that it has started, never one
that was given), and it looks who holds, and who was told.

Interrupted by a signal, it stops within seconds, removes what it has made, prints what
was measured until then, and exits with 128+n; a second one ends it at once. It exits with
70 if a store broke the contract, could not be opened, a workload failed, or something
could not be removed.`

const workloadHelp = `Workloads of compare:

  bare               the least that a lock which is an entry in the store sends: its own two commands
  bare_parallel      the same for many keys at once
  solo               one lock and unlock after the other
  parallel           many names at once, by one client
  hot                many clients, one name
  handoff            from Unlock to the return of the next client's Lock
  waiting            many goroutines of one process that wait for one name
  try                all clients TryLock all names at the same moment
  arrivals           calls that begin at a rate; latency from when each was to begin
  hot_by_clients     hot, with 1, 2, 4 ... clients
  parallel_by_names  parallel, with 1, 8, 64 ... names
  failover           the holder's packets vanish: until a waiting client holds
  held               many locks held and renewed: memory, requests, losses
  traffic            requests and bytes of a lock and unlock, counted by a proxy
`

func compareCommand(signals *interrupts) *cobra.Command {
	c := compareParams{}
	var out *reportOptions
	cmd := &cobra.Command{
		Use:   "compare [url...]",
		Short: "Measure lock backends side by side",
		Long:  compareHelp,
		Example: `  distlock compare --profile quick
  distlock compare --profile checkout --rate 500 redis://localhost:6379 etcd://localhost:2379`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, urls []string) error {
			outliveReaders() // it has things to remove
			p, err := c.resolve(cmd.Flags())
			if err != nil {
				return usage(err)
			}
			if err := out.alone(cmd.Flags(), urls); err != nil {
				return usage(err)
			}
			found, err := out.report(func() (*report.Report, error) { return runCompare(cmd.Context(), urls, p, c.safety) })
			if err != nil {
				return interrupted(signals, err)
			}
			return interrupted(signals, errors.Join(out.write(cmd, found), lacking(found, out.from == "")))
		},
	}
	f := cmd.Flags()
	c.addTo(f)
	out = reportFlags(f)
	completeWords(cmd, "profile", false, profileNames()...)
	completeWords(cmd, "workloads", true, report.WorkloadIDs()...)
	return cmd
}

// lacking returns an error if a server was not measured that the environment gives or requires: a comparison without it is not
// what was asked for.
func lacking(r *report.Report, measured bool) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.Missing)) {
		if kind := servers.Kind(name); measured && (os.Getenv(kind.EnvURL()) != "" || kind.Required()) {
			errs = append(errs, fmt.Errorf("%s was not measured, although %s or DISTLOCK_REQUIRE names it", kind, kind.EnvURL()))
		}
	}
	return errors.Join(errs...)
}

func runCompare(ctx context.Context, urls []string, p report.Params, safety bool) (*report.Report, error) {
	targets, missing, closeAll, err := findTargets(ctx, urls, p.TTL)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	found, err := compare.Run(ctx, targets, p, safety, progress())
	if err != nil {
		return nil, err
	}
	found.Missing = missing
	for i, b := range found.Backends {
		if len(urls) > 0 && b.Touched != "" {
			fmt.Fprintf(stderr, "distlock: on %s touched %s\n", targets[i].URL, b.Touched)
		}
	}
	return found, nil
}

// tellEvery is how long plain lines of progress are apart: a log has no use for more.
const tellEvery = 10 * time.Second

// progress draws a bar on a terminal, and writes plain lines elsewhere. How much is done is told by time, like what is
// left: the steps are not equally long.
func progress() compare.Progress {
	start := time.Now()
	if !atTerminal() {
		return plainProgress(start)
	}
	var bar *progressbar.ProgressBar
	so := steady(start)
	return func(done, total int, what string, left time.Duration) {
		if bar == nil {
			bar = progressbar.NewOptions(100, progressbar.OptionSetWriter(os.Stderr),
				progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false), progressbar.OptionFullWidth())
		}
		bar.Describe(given.message(doing(what, left)))
		percent := 100
		if done < total {
			percent = so(left)
		}
		_ = bar.Set(percent) // a bar that cannot be drawn is no reason to stop
	}
}

func plainProgress(start time.Time) compare.Progress {
	var told time.Time
	so := steady(start)
	return func(done, total int, what string, left time.Duration) {
		if done < total && time.Since(told) >= tellEvery {
			fmt.Fprintf(stderr, "%3d%%  %s\n", so(left), doing(what, left))
			told = time.Now()
		}
	}
}

// steady returns a function that says how much of a run is over. It takes nothing back when an estimate grows.
func steady(start time.Time) func(left time.Duration) int {
	percent := 0
	return func(left time.Duration) int {
		percent = max(percent, share(time.Since(start), left))
		return percent
	}
}

// share is how much of a run is over, in per cent. It is less than 100 before the end.
func share(spent, left time.Duration) int {
	return min(99, int(100*spent/max(1, spent+left)))
}

func doing(what string, left time.Duration) string {
	if left == 0 {
		return what // nothing is known
	}
	return fmt.Sprintf("%s, about %v left", what, left.Round(time.Second))
}
