package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/openurl"
)

const checkHelp = `Check runs the conformance suite against a live deployment and says of each clause of
the contract whether it is kept. It puts load on the server, and touches there only keys
with a random prefix, two tables or a node with a random name, within the prefix, schema
or node of the URL; it removes them, also after Ctrl-C, and says so. If it cannot, it
exits with 70. It needs the rights to: on MySQL to CREATE and DROP tables, on Redis to
SCAN. Whoever does not have them names a place with the URL and says --as-is.

With --as-is it takes and frees locks where the URL says; their names begin with "conf-"
and random digits. It touches no other name, and leaves no lock. What a store keeps of a
name so that tokens never fall does stay: on Redis some hundred keys for an hour
(token_memory), on MySQL as many rows until they are swept.

What needs control of the server (to stop or restart it) is skipped; connections are
broken by a proxy on loopback, where the URL names one server without TLS.`

func checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [flags] [URL]",
		Short: "Run the conformance suite against a deployment",
		Long:  checkHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if err := cmd.Flags().Set("url", args[0]); err != nil {
					return err
				}
			}
			only, err := regexp.Compile(o.run)
			if err != nil {
				return usage(fmt.Errorf("--run: %w", err))
			}
			if o.soak < 0 {
				return usage(fmt.Errorf("--soak is %v, allowed is more than 0", o.soak))
			}
			o.only = only
			if !slices.ContainsFunc(conformance.Checks(), o.keep) {
				return usage(fmt.Errorf("--run %s matches none of the checks to run; their IDs, like \"core/exclusive\", are in docs/checks.md", o.run))
			}
			if o.artifacts == "" {
				o.artifacts = os.TempDir()
			}
			return o.check(cmd)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.asIs, "as-is", false, "check in the prefix, table or node of the URL, and not in one that is made for it and removed")
	f.BoolVar(&o.quick, "quick", false, "only the mandatory checks that disturb nobody: under half a minute")
	f.DurationVar(&o.soak, "soak", 0, "repeat the stress and fault checks, with other seeds, for this long")
	f.StringVar(&o.run, "run", "", "only checks whose ID matches the regular `expression`")
	f.StringVar(&o.json, "json", "", "also write the report to `file` as JSON (- for standard output)")
	f.StringVar(&o.junit, "junit", "", "also write the report to `file` as JUnit XML (- for standard output)")
	f.StringVar(&o.artifacts, "artifacts", "", "`directory` for the histories of failed checks (default that for temporary files)")
	addBackendFlags(cmd)
	return cmd
}

type checkOptions struct {
	asIs, quick                 bool
	soak                        time.Duration
	run, json, junit, artifacts string
	only                        *regexp.Regexp
}

func (o *checkOptions) check(cmd *cobra.Command) (err error) {
	config, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	// A report that cannot be written should be known before the minutes it takes.
	for _, name := range []string{o.json, o.junit} {
		if err := toFile(name, func(io.Writer) error { return nil }); err != nil {
			return usage(err)
		}
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
	return o.verify(cmd, newDeployment(at.Config, b.locker), b.url)
}

// verify runs the suite, once or for as long as it is to soak.
func (o *checkOptions) verify(cmd *cobra.Command, h *deployment, name string) error {
	end := time.Now().Add(o.soak)
	for {
		report := conformance.Verify(cmd.Context(), h, conformance.WithFilter(o.keep),
			conformance.WithProgress(tellResult), conformance.WithArtifacts(o.artifacts))
		if err := o.write(cmd.OutOrStdout(), report); err != nil {
			return err
		}
		switch {
		case !report.OK():
			return &exit{status: statusBusy, err: fmt.Errorf("%s: %d checks failed; this backend does not keep the contract", name, report.Count(conformance.Failed))}
		case cmd.Context().Err() != nil || !time.Now().Before(end):
			return cmd.Context().Err()
		}
	}
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
		fmt.Fprintln(os.Stderr, r.Text())
		return
	}
	fmt.Fprintf(os.Stderr, "%-8s %-3s %s (%v)\n", r.Status, r.Clause, r.ID, r.Took.Round(time.Millisecond))
}

func (o *checkOptions) write(w io.Writer, r conformance.Report) error {
	for _, c := range r.Clauses() {
		verdict := "kept"
		switch {
		case c.Counts[conformance.Failed] > 0:
			verdict = fmt.Sprintf("BROKEN by %v", c.Failed)
		case c.Counts[conformance.Passed] == 0:
			verdict = "not tested"
		}
		fmt.Fprintf(w, "%-5s %3d passed, %d failed, %d skipped, %d inconclusive: %s\n", c.Clause, c.Counts[conformance.Passed],
			c.Counts[conformance.Failed], c.Counts[conformance.Skipped], c.Counts[conformance.Inconclusive], verdict)
	}
	fmt.Fprintln(w, r.Summary())
	return errors.Join(toFile(o.json, r.WriteJSON), toFile(o.junit, r.WriteJUnit))
}

// deployment is a backend behind a URL, as a harness for the suite.
type deployment struct {
	config backends.Config
	admin  distlock.Locker
	caps   distlock.Capabilities
	host   string // for a proxy; empty if there can be none
}

// capable is implemented by every Locker that has a Client inside.
type capable interface{ Capabilities() distlock.Capabilities }

// defaultPorts are those of the schemes that a proxy can stand before.
var defaultPorts = map[string]string{"redis": "6379", "mysql": "3306", "zk": "2181", "etcd": "2379"}

func newDeployment(c backends.Config, admin distlock.Locker) *deployment {
	d := &deployment{config: c, admin: admin}
	if l, ok := admin.(capable); ok {
		d.caps = l.Capabilities()
	}
	d.host = soleAddress(c.URL)
	return d
}

// soleAddress returns the one address that clients of a URL connect to, or "" if a
// proxy before it would not carry them: with TLS, several hosts or a cluster.
func soleAddress(rawURL string) string {
	parsed, err := openurl.Parse(rawURL)
	if err != nil {
		return ""
	}
	port, ok := defaultPorts[parsed.Scheme()]
	u, err := url.Parse(rawURL)
	if !ok || err != nil || u.Query().Has("tls") || u.Query().Has("cluster") || u.Query().Has("master") {
		return ""
	}
	if hosts := parsed.HostsDefault(port); len(hosts) == 1 {
		return hosts[0]
	}
	return ""
}

// Open implements conformance.Harness.
func (d *deployment) Open(ctx context.Context, _ *conformance.C) (distlock.Locker, error) {
	return d.config.Open(ctx)
}

// OpenVia implements conformance.Proxy.
func (d *deployment) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, conformance.Link, error) {
	p, err := conformance.NewTCPProxy(d.host, c.Rand().Uint64())
	if err != nil {
		return nil, nil, err
	}
	c.Cleanup(func() {
		if err := p.Close(); err != nil {
			c.Logf("closing the proxy: %v", err)
		}
	})
	u, err := url.Parse(d.config.URL)
	if err != nil {
		return nil, nil, errors.New("the URL cannot be parsed")
	}
	u.Host = p.Addr()
	config := d.config
	config.URL = u.String()
	l, err := config.Open(ctx)
	return l, p, err
}

// childVariable makes this program the child process of a check.
const childVariable = "DISTLOCK_CHECK_CHILD"

// Child implements conformance.Child.
func (d *deployment) Child() *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self)
	// In the environment, not among the arguments, which everybody may read.
	cmd.Env = append(os.Environ(), childVariable+"=1", backends.EnvURL+"="+d.config.URL)
	return cmd
}

// isChild runs the child process of a check, if this is one.
func isChild() (status int, child bool) {
	if os.Getenv(childVariable) == "" {
		return 0, false
	}
	return conformance.ChildMain(func(ctx context.Context) (distlock.Locker, error) {
		c, err := backends.FromEnv()
		if err != nil {
			return nil, err
		}
		return c.Open(ctx)
	}), true
}

// Caps implements conformance.Harness.
func (d *deployment) Caps() conformance.Caps {
	caps := conformance.CapsFrom(d.caps)
	caps.Inspector, caps.Child = conformance.Yes, conformance.Yes
	caps.Process, caps.ServerClock, caps.Failover = conformance.No, conformance.No, conformance.No
	caps.Namespaces, caps.Proxy = conformance.No, conformance.No
	if d.host != "" {
		caps.Proxy = conformance.Yes
	}
	if d.config.URL[:4] == "mem:" {
		caps.Child = conformance.No // its store is in this process
	}
	return caps
}

// Timing implements conformance.Harness.
func (d *deployment) Timing() conformance.Timing { return conformance.TimingFrom(d.caps) }

// Records implements conformance.Inspector.
func (d *deployment) Records(ctx context.Context, name string) (int, error) {
	st, err := distlock.Inspect(ctx, d.admin, name)
	n := max(st.Waiters, 0)
	if st.Held {
		n++
	}
	return n, err
}

// Waiters implements conformance.Inspector.
func (d *deployment) Waiters(ctx context.Context, name string) (int, error) {
	st, err := distlock.Inspect(ctx, d.admin, name)
	return st.Waiters, err
}

// Delete implements conformance.Inspector.
func (d *deployment) Delete(ctx context.Context, name string) error {
	if err := distlock.Break(ctx, d.admin, name); !errors.Is(err, distlock.ErrLost) {
		return err
	}
	return nil // nobody held it
}
