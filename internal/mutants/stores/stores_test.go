//go:build unix

// Package stores has a newcomer's driver over four stores, right but for one operation at a time that looks in one
// step and acts in another. The suite has to fail each, in real time and over a wire: so it is apart from the mutants
// in virtual time.
package stores_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// harness is of the driver with a flaw, or none if that is empty. open opens its store.
type harness struct {
	flaw string
	open func(addr string, step func()) (cells, error)
}

// Open implements conformance.Harness.
func (h harness) Open(context.Context, *conformance.C) (distlock.Locker, error) {
	return h.via("", func() {})
}

func (h harness) via(addr string, step func()) (distlock.Locker, error) {
	c, err := h.open(addr, step)
	if err != nil {
		return nil, err
	}
	flaw, careful := strings.CutSuffix(h.flaw, careful)
	return driver.New(&store{c, flaw, careful}, nil)
}

// Caps implements conformance.Harness.
func (h harness) Caps() conformance.Caps {
	caps := conformance.CapsFrom((*store)(nil).Capabilities())
	caps.Inspector, caps.Proxy, caps.Process, caps.ServerClock = conformance.Yes, conformance.No, conformance.No, conformance.No
	caps.Failover, caps.Namespaces, caps.Child = conformance.No, conformance.No, conformance.No
	return caps
}

// Records implements conformance.Inspector.
func (h harness) Records(ctx context.Context, name string) (int, error) {
	r, err := h.record(ctx, name)
	n := 0
	for _, there := range []bool{r.held(), r.awaited()} {
		if there {
			n++
		}
	}
	return n, err
}

// Waiters implements conformance.Inspector: the first alone is in the record.
func (h harness) Waiters(ctx context.Context, name string) (int, error) {
	r, err := h.record(ctx, name)
	if !r.awaited() {
		return 0, err
	}
	return 1, err
}

// Delete implements conformance.Inspector.
func (h harness) Delete(ctx context.Context, name string) error {
	return h.with(func(c cells) error {
		text, err := c.get(ctx, name)
		if r := read(text); err == nil && r.held() {
			err = (&store{cells: c}).Break(ctx, name, r.Token)
		}
		return err
	})
}

func (h harness) record(ctx context.Context, name string) (r record, err error) {
	err = h.with(func(c cells) error {
		text, err := c.get(ctx, name)
		r = read(text)
		return err
	})
	return r, err
}

// with has f use the store as an administrator would.
func (h harness) with(f func(cells) error) error {
	c, err := h.open("", func() {})
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// Timing implements conformance.Harness.
func (h harness) Timing() conformance.Timing {
	return conformance.TimingFrom((*store)(nil).Capabilities())
}

// stepped is a harness over files that tells the suite of each step.
type stepped struct{ bare }

// OpenStepped implements conformance.Stepped.
func (h stepped) OpenStepped(_ context.Context, _ *conformance.C, step func()) (distlock.Locker, error) {
	return h.via("", step)
}

// wired is a harness with a proxy.
type wired struct {
	harness
	addr string
}

// OpenVia implements conformance.Proxy.
func (h wired) OpenVia(_ context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	p, err := netfault.NewTCPProxy(h.addr, c.Rand().Uint64())
	if err != nil {
		return nil, nil, err
	}
	c.Cleanup(func() { _ = p.Close() })
	l, err := h.via(p.Addr(), func() {})
	return l, p, err
}

// Caps implements conformance.Harness.
func (h wired) Caps() conformance.Caps {
	caps := h.harness.Caps()
	caps.Proxy = conformance.Yes
	return caps
}

// bare is a harness over files without steps, that can run a client in another process.
type bare struct {
	harness
	dir string
}

// Child implements conformance.Child.
func (h bare) Child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+h.flaw+":"+h.dir)
	return cmd
}

// Caps implements conformance.Harness.
func (h bare) Caps() conformance.Caps {
	caps := h.harness.Caps()
	caps.Child = conformance.Yes
	return caps
}

// childVariable has the flaw and the folder, for a child process.
const childVariable = "DISTLOCK_STORES_CHILD"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(childVariable); ok {
		flaw, dir, _ := strings.Cut(text, ":")
		os.Exit(conformance.ChildMain(func(context.Context) (distlock.Locker, error) { return onFolder(flaw, dir).via("", func() {}) }))
	}
	os.Exit(m.Run())
}

// place makes the harness of a driver with a flaw on a store that no other driver uses.
type place func(t *testing.T, flaw string) conformance.Harness

func onFolder(flaw, dir string) harness {
	return harness{flaw, func(_ string, step func()) (cells, error) { return files{dir, step, flaw == mutexOnly}, nil }}
}

func onSteps(t *testing.T, flaw string) conformance.Harness {
	dir := folder(t)
	return stepped{bare{onFolder(flaw, dir), dir}}
}

func onFiles(t *testing.T, flaw string) conformance.Harness {
	dir := folder(t)
	return bare{onFolder(flaw, dir), dir}
}

// folder is in memory where there is such a place: a rename on a disk waits for what others write there.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "files")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// over returns a place on a server.
func over(s *servers.Server, open func(rawURL, space string) (cells, error)) place {
	return func(t *testing.T, flaw string) conformance.Harness {
		space := fmt.Sprintf("s%x", rand.Uint64())
		return wired{harness{flaw, func(addr string, _ func()) (cells, error) {
			if addr == "" {
				return open(s.URL(), space)
			}
			return open(s.URLVia(addr), space)
		}}, s.Addr()}
	}
}

// allVariable is the environment variable that, as "all", has each driver examined on all stores. Without it each is on
// one of them, by chance, and the one that is right as well, by group pair/ alone.
const allVariable = "DISTLOCK_LOOK_THEN_ACT"

var all = os.Getenv(allVariable) == "all"

// TestLookThenAct: a driver that looks in one request or step and acts in another fails the mandatory check of that
// operation, and the first line of the failure says so.
func TestLookThenAct(t *testing.T) {
	places := places(t)
	names := slices.Sorted(maps.Keys(places))
	first := rand.IntN(len(names))
	for i, flaw := range flaws {
		_, operation, _ := strings.Cut(flaw, "/")
		for j, name := range names {
			if !all && (first+i)%len(names) != j {
				continue
			}
			t.Run(name+"/"+operation, func(t *testing.T) {
				t.Parallel()
				mustBeCaught(t, places[name](t, operation), flaw)
			})
		}
	}
}

// mutexOnly is the flaw of files that are swapped under a mutex of the process.
const mutexOnly = "MutexOnly"

// TestMutexOnly: a driver that is atomic in its process, and in no other.
func TestMutexOnly(t *testing.T) {
	t.Parallel()
	mustBeCaught(t, onSteps(t, mutexOnly), "pair/processes")
}

// mustBeCaught demands that a check fails on the driver.
func mustBeCaught(t *testing.T, h conformance.Harness, check string) {
	t.Helper()
	switch r := examine(t, h, func(k conformance.Check) bool { return k.ID == check }).Results[0]; {
	case r.Status == conformance.Inconclusive:
		testkit.Inconclusivef(t, "%s", r.Text())
	case !caught(r):
		t.Errorf("SURVIVED: %s", r.Text())
	}
}

// caught reports whether a mandatory check has failed and says in the first line what is wrong.
func caught(r conformance.Result) bool {
	line, _, _ := strings.Cut(r.Reason, "\n")
	return r.Status == conformance.Failed && r.Mandatory && strings.Contains(line, "looks in one step and acts in another")
}

// TestRight: the same driver without a flaw passes.
func TestRight(t *testing.T) {
	places := places(t)
	names := slices.Sorted(maps.Keys(places))
	if !all {
		names = []string{names[rand.IntN(len(names))]}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range examine(t, places[name](t, ""), func(k conformance.Check) bool { return all || k.Group() == "pair" }).Results {
				if r.Status == conformance.Failed {
					t.Errorf("accused: %s", r.Text())
				}
			}
		})
	}
}

// TestWithoutSteps: over files, without a word from the store of its steps, such a driver is caught by chance. A run that it passes
// says that what lies between two steps was not examined.
func TestWithoutSteps(t *testing.T) {
	if !all {
		t.Skipf("takes minutes: %s is not all", allVariable)
	}
	for _, flaw := range flaws {
		_, operation, _ := strings.Cut(flaw, "/")
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			report := examine(t, onFiles(t, operation), func(k conformance.Check) bool { return k.Group() == "pair" })
			if slices.ContainsFunc(report.Results, caught) {
				t.Log("caught")
			} else if !slices.ContainsFunc(report.Gaps(), func(g conformance.Gap) bool { return strings.Contains(g.Situation, "between two steps") }) {
				t.Errorf("it has passed, and the report does not say what was not examined:\n%s", report.Summary())
			}
		})
	}
}

func examine(t *testing.T, h conformance.Harness, filter func(conformance.Check) bool) conformance.Report {
	report := conformance.Verify(t.Context(), h, &conformance.Options{Artifacts: t.TempDir(), Filter: filter})
	if len(report.Results) == 0 {
		t.Fatal("no check was run")
	}
	return report
}

func places(t *testing.T) map[string]place {
	return map[string]place{
		"files": onSteps,
		"redis": over(servers.ForTest(t, servers.Redis), openKeys),
		"mysql": over(servers.ForTest(t, servers.MySQL), openRows),
		"etcd":  over(servers.ForTest(t, servers.Etcd), openTree),
	}
}
