package conformance_test

import (
	"cmp"
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/conformance/virtual"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// far is a harness for a driver that keeps the contract, of a store that is far away or busy.
type far struct {
	memory
	takes       time.Duration // what each request takes
	requests    int           // of a call, one after the other
	connections int           // of a client, each with one request at a time
	polls       bool          // it keeps no queue, and tells nobody of a release
}

func (h far) ForCheck(c *conformance.C) conformance.Harness {
	h.memory = h.memory.ForCheck(c).(memory)
	return h
}

func (h far) Open(ctx context.Context, c *conformance.C) (distlock.Locker, error) {
	l, _, err := h.OpenVia(ctx, c)
	return l, err
}

func (h far) OpenVia(context.Context, *conformance.C) (distlock.Locker, netfault.Link, error) {
	link := virtual.NewLink()
	below := link.Driver(memlock.NewDriver(h.stores.get(""))).(linked)
	l, err := driver.New(&farDriver{below, h, link, make(chan struct{}, h.connections)}, nil)
	return l, link, err
}

func (h far) capabilities() driver.Capabilities {
	caps := h.memory.capabilities()
	caps.Fair, caps.Push = caps.Fair && !h.polls, caps.Push && !h.polls
	return caps
}

func (h far) Caps() conformance.Caps {
	caps, by := h.memory.Caps(), conformance.CapsFrom(h.capabilities())
	caps.Fair, caps.Push, caps.Namespaces = by.Fair, by.Push, conformance.No
	return caps
}

func (h far) Timing() conformance.Timing { return conformance.TimingFrom(h.capabilities()) }

// linked is memlock's driver behind a link.
type linked interface {
	driver.Driver
	driver.Inspector
	driver.Breaker
	io.Closer
}

// farDriver is the driver of a client.
type farDriver struct {
	linked
	far
	link  *virtual.Link
	conns chan struct{}
}

// ask makes a call: some requests, of which the last does it.
func (d *farDriver) ask(ctx context.Context, last func() error) error {
	for range d.requests - 1 {
		if err := d.request(ctx, func() error { return d.link.Do(ctx, func() {}, nil) }); err != nil {
			return err
		}
	}
	return d.request(ctx, last)
}

func (d *farDriver) request(ctx context.Context, send func() error) error {
	select {
	case d.conns <- struct{}{}:
		defer func() { <-d.conns }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := send()
	select {
	case <-time.After(d.takes):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *farDriver) Capabilities() driver.Capabilities { return d.capabilities() }

func (d *farDriver) Claim(r driver.Request) driver.Claim {
	r.NoWait = r.NoWait || d.polls
	return &farClaim{d.linked.Claim(r), d}
}

func (d *farDriver) Renew(ctx context.Context, batch []driver.Renewal) {
	inner := make([]driver.Renewal, len(batch))
	for i, r := range batch {
		inner[i] = driver.Renewal{Claim: r.Claim.(*farClaim).Claim, TTL: r.TTL}
	}
	unheard := d.ask(ctx, func() error { d.linked.Renew(ctx, inner); return nil })
	for i, r := range inner {
		batch[i].Answer(r.Grant, cmp.Or(unheard, r.Err))
	}
}

type farClaim struct {
	driver.Claim
	d *farDriver
}

func (c *farClaim) Try(ctx context.Context) (g driver.Grant, err error) {
	err = c.d.ask(ctx, func() (err error) { g, err = c.Claim.Try(ctx); return err })
	return g, err
}

func (c *farClaim) Wait(ctx context.Context) error {
	if !c.d.polls {
		return c.Claim.Wait(ctx)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (c *farClaim) Release(ctx context.Context) error {
	return c.d.ask(ctx, func() error { return c.Claim.Release(ctx) })
}

// TestFar: no check accuses a right driver because its store is slow, or because it sends several requests, nor leaves it in
// doubt. Without a list of checks, all look at it.
func TestFar(t *testing.T) {
	const slow = 300 * time.Millisecond
	for name, by := range map[string]struct {
		far
		slack  time.Duration
		checks []string
	}{
		"slow": {far: far{takes: slow, requests: 1, connections: 100}},
		"slow, on a slow machine": {far: far{takes: slow, requests: 1, connections: 100}, slack: 160 * slow,
			checks: []string{"fault/black-hole"}},
		"one connection": {far: far{takes: 60 * time.Millisecond, requests: 1, connections: 1, polls: true},
			checks: []string{"stress/pool-starvation", "expiry/mass-expiry", "list/many"}},
		"one slow connection": {far: far{takes: slow, requests: 1, connections: 1, polls: true},
			checks: []string{"close/frees-held", "handover/many-names", "names/scripts", "stress/pool-starvation"}},
		"several requests": {far: far{takes: time.Millisecond, requests: 4, connections: 100, polls: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := conformance.Options{VirtualTime: true, Sample: true, Seed: 1, Slack: by.slack, Artifacts: t.TempDir(),
				Filter: func(k conformance.Check) bool {
					if by.checks == nil && (testing.Short() || conformance.RaceEnabled) {
						return slices.Contains(accused, k.ID)
					}
					return by.checks == nil || slices.Contains(by.checks, k.ID)
				}}
			for _, r := range conformance.CollectFar(t, by.far, &o) {
				if r.Status == conformance.Failed || r.Status == conformance.Inconclusive {
					t.Errorf("a right driver is accused: %s", r.Text())
				}
			}
		})
	}
}

// accused are checks that were wrong about such drivers. A short run, and one that is slow, has these.
var accused = []string{
	"owner/same-client-stale", "names/scripts", "wait/no-busy-loop", "renew/boundary", "auto/stops-on-unlock", "auto/stops-on-close",
	"batch/others-unmoved", "batch/late-request", "batch/counted-from-request", "handover/deadline", "fault/latency", "leak/goroutines",
	"sweep/tokens",
}
