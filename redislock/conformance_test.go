package redislock

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// sideBySide is how many checks run at once: they mostly wait.
const sideBySide = 12

func TestConformance(t *testing.T) {
	t.Parallel()
	s := servers.ForTest(t, servers.Redis)
	o := pin.Pinned(s, "fence/over-cleanup")
	o.Parallel = sideBySide
	conformance.Run(t, harness{s, client(t, s.URL())}, o)
}

// The way without wake-ups: the server's rules forbid channels, so waiters poll. The
// checks of waiting and fairness must hold all the same.
func TestConformanceWithoutWakeUps(t *testing.T) {
	t.Parallel()
	s, admin := own(t)
	must(t, admin.ACLSetUser(t.Context(), "silent", "on", ">secret", "~*", "+@all", "resetchannels").Err())
	conformance.Run(t, silentHarness{harness{s, admin}}, &conformance.Options{Parallel: sideBySide, Filter: func(c conformance.Check) bool {
		family, _, _ := strings.Cut(c.ID, "/")
		return family == "wait" || family == "fair" || c.ID == "stress/pool-starvation"
	}})
}

// silentHarness opens clients that cannot subscribe.
type silentHarness struct{ harness }

func (h silentHarness) url(addr string) string { return "redis://silent:secret@" + addr }

func (h silentHarness) Open(ctx context.Context, c *conformance.C) (distlock.Locker, error) {
	return Open(ctx, h.url(h.Addr()), nil)
}

func (h silentHarness) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	return openVia(ctx, c, h.Addr(), h.url)
}

func (h silentHarness) Caps() conformance.Caps {
	caps := h.harness.Caps()
	caps.Push = conformance.No
	return caps
}

func (h silentHarness) Timing() conformance.Timing {
	caps := new(store).Capabilities()
	caps.Push = false
	return conformance.TimingFrom(caps)
}

// harness lets the suite examine the driver on a server of its own.
type harness struct {
	*servers.Server
	admin *redis.Client
}

var (
	_ conformance.Proxy      = harness{}
	_ conformance.Process    = harness{}
	_ conformance.Inspector  = harness{}
	_ conformance.Namespaces = harness{}
	_ conformance.Child      = harness{}
)

func (h harness) Open(ctx context.Context, c *conformance.C) (distlock.Locker, error) {
	return Open(ctx, h.URL(), nil)
}

func (h harness) OpenIn(ctx context.Context, c *conformance.C, label string) (distlock.Locker, error) {
	return Open(ctx, h.URL()+"?prefix="+label, nil)
}

func (h harness) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	return openVia(ctx, c, h.Addr(), h.URLVia)
}

// openVia opens a client and has its traffic to addr pass a proxy; url returns the URL of a
// server at that address.
func openVia(ctx context.Context, c *conformance.C, addr string, url func(addr string) string) (distlock.Locker, netfault.Link, error) {
	p, err := netfault.NewTCPProxy(addr, 1)
	if err != nil {
		return nil, nil, err
	}
	c.Cleanup(func() { _ = p.Close() })
	l, err := Open(ctx, url(p.Addr()), nil)
	return l, p, err
}

func (h harness) Child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+h.URL())
	return cmd
}

func (h harness) Caps() conformance.Caps {
	caps := conformance.CapsFrom(new(store).Capabilities())
	caps.Inspector, caps.Proxy, caps.Namespaces, caps.Child = conformance.Yes, conformance.Yes, conformance.Yes, conformance.Yes
	caps.Process, caps.ServerClock, caps.Failover = conformance.No, conformance.No, conformance.No
	if h.Controlled() {
		caps.Process = conformance.Yes
	}
	return caps
}

func (h harness) Timing() conformance.Timing {
	return conformance.TimingFrom(new(store).Capabilities())
}

// Records counts what the keys of the name say, without a script of the driver.
func (h harness) Records(ctx context.Context, name string) (int, error) {
	holders, err := h.admin.Exists(ctx, keyOf(defaultPrefix, name).entry()).Result()
	if err != nil {
		return 0, err
	}
	waiters, err := h.Waiters(ctx, name)
	return int(holders) + waiters, err
}

func (h harness) Waiters(ctx context.Context, name string) (int, error) {
	n, err := h.admin.LLen(ctx, keyOf(defaultPrefix, name).queue()).Result()
	return int(n), err
}

// BlockName implements conformance.NameBlocker: another program uses the key for a
// list, so that every request for the name fails.
func (h harness) BlockName(ctx context.Context, name string) (func() error, error) {
	key := keyOf(defaultPrefix, name).entry()
	undo := func() error { return h.admin.Del(context.Background(), key).Err() }
	if err := undo(); err != nil {
		return nil, err
	}
	return undo, h.admin.RPush(ctx, key, "not a lock").Err()
}

func (h harness) Delete(ctx context.Context, name string) error {
	return h.admin.Del(ctx, keyOf(defaultPrefix, name).entry()).Err()
}
