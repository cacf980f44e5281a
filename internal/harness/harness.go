// Package harness is the conformance harness for drivers of real servers: it starts
// the server, puts proxies in front of it, and runs the test binary as a child
// process. What is left for the test of a driver is to say how a client is opened,
// and, better than asking the driver itself, how to look into its store:
//
//	func TestMain(m *testing.M) { harness.Main(m, open) }
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, harness.New(t, servers.Redis, open), nil)
//	}
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
)

// Open opens a client on the server at rawURL. In a namespace, which may be empty,
// it must not meet clients of another.
type Open func(ctx context.Context, rawURL, namespace string) (distlock.Locker, error)

// childVariable tells the test binary that it is a child process, and where the
// server is.
const childVariable = "DISTLOCK_CHILD_URL"

var mainCalled atomic.Bool

// Main is the TestMain of a package that uses New: it runs the tests, or is the
// child process of one. After the tests it calls after, which may close what they
// shared; an error of its fails the run.
func Main(m *testing.M, open Open, after ...func() error) {
	if url := os.Getenv(childVariable); url != "" {
		os.Exit(conformance.ChildMain(func(ctx context.Context) (distlock.Locker, error) { return open(ctx, url, "") }))
	}
	mainCalled.Store(true)
	code := m.Run()
	for _, f := range after {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Store is what the suite examines: one server, or several that keep a store together.
type Store struct {
	Servers []*servers.Server // which the suite stops, kills and restarts, all of them at a time
	Addrs   []string          // where clients look for the store
	URL     func(addrs ...string) string

	// Found says that clients only ask there for the addresses of the servers. Then no
	// proxy carries their traffic.
	Found bool
}

// Harness implements conformance.Harness and all of its optional interfaces but
// ServerClock and Failover. A type that embeds it may look into the store in a better way.
type Harness struct {
	*servers.Server // the first
	conformance.LockerInspector
	store Store
	url   string
	open  Open
	caps  driver.Capabilities
}

var (
	_ conformance.Harness    = (*Harness)(nil)
	_ conformance.Proxy      = (*Harness)(nil)
	_ conformance.Process    = (*Harness)(nil)
	_ conformance.Inspector  = (*Harness)(nil)
	_ conformance.Namespaces = (*Harness)(nil)
	_ conformance.Child      = (*Harness)(nil)
)

// New starts a server for the test and returns the harness on it. The test is
// skipped if there is no server to be had, unless DISTLOCK_REQUIRE names it.
func New(t *testing.T, kind servers.Kind, open Open) *Harness {
	t.Helper()
	return On(t, servers.ForTest(t, kind), open)
}

// On returns the harness on a server that the test has started.
func On(t *testing.T, s *servers.Server, open Open) *Harness {
	t.Helper()
	return OnStore(t, Store{
		Servers: []*servers.Server{s},
		Addrs:   s.Addrs(),
		URL:     func(addrs ...string) string { return s.URLVia(strings.Join(addrs, ",")) },
	}, open)
}

// OnStore returns the harness on a store that the test has started.
func OnStore(t *testing.T, store Store, open Open) *Harness {
	t.Helper()
	if !mainCalled.Load() {
		t.Fatal("harness: the package needs func TestMain(m *testing.M) { harness.Main(m, open) }")
	}
	h := &Harness{Server: store.Servers[0], store: store, url: store.URL(store.Addrs...), open: open}
	var err error
	if h.Admin, err = open(t.Context(), h.url, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Admin.Close(); err != nil {
			t.Error(err)
		}
	})
	d, ok := h.Admin.(interface {
		Capabilities() driver.Capabilities
	})
	if !ok {
		t.Fatalf("harness: %T does not tell its Capabilities", h.Admin)
	}
	h.caps = d.Capabilities()
	return h
}

// Open implements conformance.Harness.
func (h *Harness) Open(ctx context.Context, _ *conformance.C) (distlock.Locker, error) {
	return h.open(ctx, h.url, "")
}

// OpenIn implements conformance.Namespaces.
func (h *Harness) OpenIn(ctx context.Context, _ *conformance.C, namespace string) (distlock.Locker, error) {
	return h.open(ctx, h.url, namespace)
}

// OpenVia implements conformance.Proxy, with a proxy before each server.
func (h *Harness) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	all, addrs, err := Via(c, h.store.Addrs)
	if err != nil {
		return nil, nil, err
	}
	l, err := h.open(ctx, h.store.URL(addrs...), "")
	return l, all, err
}

// Child implements conformance.Child.
func (h *Harness) Child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+h.url)
	return cmd
}

// Pause implements conformance.Process.
func (h *Harness) Pause(ctx context.Context) error { return h.all(ctx, (*servers.Server).Pause) }

// Resume implements conformance.Process.
func (h *Harness) Resume(ctx context.Context) error { return h.all(ctx, (*servers.Server).Resume) }

// Kill implements conformance.Process.
func (h *Harness) Kill(ctx context.Context) error { return h.all(ctx, (*servers.Server).Kill) }

// Restart implements conformance.Process.
func (h *Harness) Restart(ctx context.Context) error { return h.all(ctx, (*servers.Server).Restart) }

// all does the same with all servers, side by side: where a majority decides, one server
// is not ready before others are.
func (h *Harness) all(ctx context.Context, f func(*servers.Server, context.Context) error) error {
	errs := make([]error, len(h.store.Servers))
	var all sync.WaitGroup
	for i, s := range h.store.Servers {
		all.Go(func() { errs[i] = f(s, ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Caps implements conformance.Harness.
func (h *Harness) Caps() conformance.Caps {
	caps := conformance.CapsFrom(h.caps)
	caps.Inspector, caps.Proxy, caps.Namespaces, caps.Child = conformance.Yes, conformance.Yes, conformance.Yes, conformance.Yes
	caps.Process, caps.ServerClock, caps.Failover = conformance.No, conformance.No, conformance.No
	if h.Controlled() { // a server given by URL is somebody else's
		caps.Process = conformance.Yes
	}
	if h.store.Found {
		caps.Proxy = conformance.No
	}
	return caps
}

// Timing implements conformance.Harness.
func (h *Harness) Timing() conformance.Timing { return conformance.TimingFrom(h.caps) }

// clockCheck is the one that needs power over the server's clock.
const clockCheck = "expiry/server-clock-judges"

// OnClock returns the options of a run on a server of servers.ClockedForTest: those
// checks that need it, none of which may be skipped.
func OnClock() *conformance.Options {
	return &conformance.Options{
		Filter: func(k conformance.Check) bool { return k.ID == clockCheck },
		Skips:  []string{},
	}
}

// Pinned returns the options that pin which checks are skipped on a server that
// this process controls: besides those of the driver, the two that need power over
// the server's clock, and the one that needs a second server. On a server given by URL more are skipped, and none pinned.
func Pinned(s *servers.Server, skips ...string) *conformance.Options {
	if !s.Controlled() {
		return nil
	}
	skips = append(skips, clockCheck, "fault/failover")
	// What goes over a TCP proxy shares connections, and there is one server.
	skips = append(skips, "isolate/hung-request", "isolate/hung-renewal", "isolate/stuck-server",
		"fault/repeated-request", "fault/repeated-release", "fault/never-returns")
	if slices.Contains(skips, "sweep/held") { // the driver is no Sweeper
		for _, k := range conformance.Checks() {
			if k.Group() == "sweep" || k.ID == "pair/sweep" {
				skips = append(skips, k.ID)
			}
		}
	}
	return &conformance.Options{Skips: skips}
}
