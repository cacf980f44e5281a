package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/compare/render"
)

const checkHelp = `Check runs the conformance suite against a live deployment and says of each clause of
the contract whether it is kept. It loads the server, and takes a hundred
connections at times, a few more on MySQL. It touches only keys with a random prefix,
two tables or a node with a random name, within the prefix, schema or node of the URL,
and removes them, also after Ctrl-C. If it cannot, it exits with 70.
For that it needs the right to CREATE and DROP tables (MySQL, Postgres) or to SCAN (Redis).
Without it, name a place with the URL and say --as-is.
On ZooKeeper, where a check takes as long as the sessions, it asks for ttl=2s and
session_timeout=8s if no TTL is given.

With --as-is it takes and frees locks where the URL says, only on names that begin with
"conf-" and random digits, and leaves no lock. What keeps tokens from falling stays: on
Redis some hundred keys for an hour (token_memory), on MySQL and Postgres as many rows until
they are swept.

What needs control of the server is skipped. Connections are broken by a proxy on
loopback, where the URL names one server without TLS. A check that fails while the store
does not answer, or has no room for a client, or while a login takes more than a second,
is inconclusive, unless two holders or a token that fell were seen; if none has failed
otherwise, the exit status is 69. It is 70 if the store answers, but no check has passed.

For --chaos see "distlock help chaos".`

func checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [flags] [URL]",
		Short: "Run the conformance suite against a deployment",
		Long:  checkHelp,
		Args:  atMostOne("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			outliveReaders() // it has things to remove
			if err := o.flags(len(args) == 1 && cmd.Flags().Changed("url")); err != nil {
				return usage(err)
			}
			if len(args) == 1 {
				if err := cmd.Flags().Set("url", args[0]); err != nil {
					return err
				}
			}
			only, err := regexp.Compile(o.run)
			if err != nil {
				return usage(fmt.Errorf("--run: %w", err))
			}
			if err := o.readFaults(cmd); err != nil {
				return usage(err)
			}
			o.only = only
			if !slices.ContainsFunc(conformance.Checks(), o.keep) {
				return usage(fmt.Errorf("--run %s matches none of the checks to run; their IDs, like \"core/exclusive\", are listed at https://github.com/distlock-go/distlock/blob/main/docs/reports/checks.md", o.run))
			}
			if o.artifacts == "" {
				o.artifacts = os.TempDir()
			}
			return o.check(cmd)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.asIs, "as-is", false, "check in the prefix, table or node of the URL, and not in one made for it and removed")
	f.BoolVar(&o.quick, "quick", false, "only the mandatory checks that disturb nobody: one to five minutes")
	f.IntVar(&o.parallel, "parallel", 2, "how many checks run side by side: more end sooner, and take more connections")
	f.DurationVar(&o.soak, "soak", 0, "repeat the stress and fault checks, with other seeds, for this long")
	f.DurationVar(&o.chaos, "chaos", 0, "instead of the suite, lock for this long while the commands of --faults break the store")
	f.StringVar(&o.faultFile, "faults", "", "YAML `file` with the faults of --chaos, each with name, break and mend")
	f.Uint64Var(&o.seed, "seed", 1, "of the order and length of the faults of --chaos")
	f.BoolVar(&o.strict, "strict", false, "exit with 70 if a check is inconclusive and none has failed")
	f.StringVar(&o.run, "run", "", "only checks with an ID that matches the regular `expression`")
	f.StringVar(&o.json, "json", "", "also write the report to `file` as JSON (- for standard output)")
	f.StringVar(&o.junit, "junit", "", "also write the report to `file` as JUnit XML (- for standard output)")
	f.StringVar(&o.artifacts, "artifacts", "", "`directory` for the histories of failed checks (default that for temporary files)")
	addBackendFlags(cmd)
	return cmd
}

type checkOptions struct {
	asIs, quick, strict         bool
	parallel                    int
	soak                        time.Duration
	run, json, junit, artifacts string
	only                        *regexp.Regexp

	chaos     time.Duration
	faultFile string
	faults    []faultCommands
	seed      uint64
}

func (o *checkOptions) check(cmd *cobra.Command) (err error) {
	config, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	// A report that cannot be written should be known before the minutes it takes.
	if err := tryFiles(o.json, o.junit); err != nil {
		return usage(err)
	}
	at, err := settle(cmd.Context(), config, o.asIs)
	if err != nil {
		return err
	}
	b, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { err = at.leave(err) }()
	defer closeTelling(b.locker)
	where := "names under a random prefix"
	if at.what != "" {
		where = at.what
	}
	say("checking %s; only %s are touched", b.url, where)
	if o.chaos > 0 {
		return o.breakIt(cmd, at.Config, b)
	}
	return o.verify(cmd, newDeployment(at.Config, b.locker), b)
}

// verify runs the suite, once or for as long as it is to soak.
func (o *checkOptions) verify(cmd *cobra.Command, d *deployment, b *backend) error {
	end := time.Now().Add(o.soak)
	for doubts := 0; ; {
		report := conformance.Verify(cmd.Context(), d.harness(), &conformance.Options{Filter: o.keep, Artifacts: o.artifacts, Parallel: o.parallel,
			Look: d.look, Progress: tellResult})
		doubts += report.Count(conformance.Inconclusive)
		text := cmd.OutOrStdout()
		if o.json == "-" || o.junit == "-" {
			text = stderr // the document is alone on standard output
		}
		if err := o.write(text, report); err != nil {
			return err
		}
		switch {
		case !report.OK():
			return &exit{status: statusBusy, err: fmt.Errorf("%s: %s failed; this backend does not keep the contract", b.url, render.Plural(report.Count(conformance.Failed), "check"))}
		case report.Outage.Checks > 0 && cmd.Context().Err() == nil:
			err := report.Outage.Err()
			if report.Outage.Last != nil {
				err = fmt.Errorf("%w; --parallel 1 takes fewer connections", err)
			}
			return b.failed(err)
		case cmd.Context().Err() == nil && report.Count(conformance.Passed) == 0:
			return &exit{status: statusFailed, err: fmt.Errorf("%s: no check has passed, so nothing is known of this backend; see the lines above", b.url)}
		case cmd.Context().Err() != nil:
			return cmd.Context().Err()
		case time.Now().Before(end):
		case o.strict && doubts > 0:
			return &exit{status: statusFailed, err: fmt.Errorf("%s: %s inconclusive, see the lines above", b.url, render.Plural(doubts, "check"))}
		default:
			return nil
		}
	}
}

// flags refuses those that do not go together, or are out of range.
func (o *checkOptions) flags(twoURLs bool) error {
	switch {
	case o.json == "-" && o.junit == "-":
		return errors.New("only one of --json and --junit can go to standard output")
	case o.soak > 0 && (o.json == "-" || o.junit == "-"):
		return errors.New("--soak makes a report for each round, and only one can go to standard output: name a file, which has the last")
	case twoURLs:
		return errors.New("the argument URL and --url exclude each other")
	case o.parallel < 1:
		return fmt.Errorf("--parallel is %d, allowed is 1 or more", o.parallel)
	case o.soak > 0 && o.quick:
		return errors.New("--soak and --quick exclude each other: --soak repeats the stress and fault checks")
	case o.soak < 0:
		return fmt.Errorf("--soak is %v, allowed is more than 0", o.soak)
	}
	return nil
}

func (o *checkOptions) keep(k conformance.Check) bool {
	switch {
	case !o.only.MatchString(k.ID):
		return false
	case o.soak > 0:
		return k.Group() == "stress" || k.Group() == "fault"
	case o.quick:
		return k.Mandatory && !k.Alone
	}
	return true
}

// tellResult is the progress: a line for every check as it ends, and all there is
// to know of one that did not pass.
func tellResult(r conformance.Result) {
	if r.Status == conformance.Failed || r.Status == conformance.Inconclusive {
		fmt.Fprintln(stderr, r.Text())
		return
	}
	why := ""
	if r.Reason != "" {
		why = ": " + r.Reason
	}
	fmt.Fprintf(stderr, "%-8s %-3s %s (%v)%s\n", r.Status, r.Clause, r.ID, r.Took.Round(time.Millisecond), why)
}

func (o *checkOptions) write(w io.Writer, r conformance.Report) error {
	var text strings.Builder
	for _, c := range r.Clauses() {
		verdict := "kept"
		switch {
		case c.Counts[conformance.Failed] > 0:
			verdict = fmt.Sprintf("BROKEN by %v", c.Failed)
		case c.Counts[conformance.Passed] == 0:
			verdict = "not tested"
		}
		fmt.Fprintf(&text, "%-4s %-44s %3d passed, %d failed, %d skipped, %d inconclusive: %s\n", c.Clause, clauseTitles[c.Clause], c.Counts[conformance.Passed],
			c.Counts[conformance.Failed], c.Counts[conformance.Skipped], c.Counts[conformance.Inconclusive], verdict)
	}
	fmt.Fprintln(&text, r.Summary())
	_, err := io.WriteString(w, text.String())
	return errors.Join(err, toFile(o.json, r.WriteJSON), toFile(o.junit, r.WriteJUnit))
}
