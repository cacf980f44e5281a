package zklock

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// childURL is where a process that the suite starts finds the server.
const childURL = "DISTLOCK_ZKLOCK_CHILD_URL"

// suiteSession is the session time-out of the suite's clients. Where a holder dies,
// the checks wait for the end of it, but they want TTLs of four units, 8 s.
const suiteSession = 13 * time.Second

func suiteOptions() *Options {
	return &Options{SessionTimeout: suiteSession, TickTime: tick}
}

func TestConformance(t *testing.T) {
	s, admin := server(t), connect(t)
	l, err := Open(t.Context(), s.URL(), suiteOptions())
	if err != nil {
		t.Fatal(err)
	}
	caps := l.Capabilities()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, harness{s, admin, caps}, pin.Pinned(s, "fence/over-cleanup"))
}

// harness lets the suite examine the driver on the server of the package. It stops and
// kills that, so no other test runs meanwhile.
type harness struct {
	*servers.Server
	admin *zk.Conn
	caps  driver.Capabilities
}

var (
	_ conformance.Proxy      = harness{}
	_ conformance.Process    = harness{}
	_ conformance.Inspector  = harness{}
	_ conformance.Namespaces = harness{}
	_ conformance.Child      = harness{}
)

func (h harness) Open(ctx context.Context, c *conformance.C) (distlock.Locker, error) {
	return Open(ctx, h.URL(), suiteOptions())
}

func (h harness) OpenIn(ctx context.Context, c *conformance.C, label string) (distlock.Locker, error) {
	o := suiteOptions()
	o.Prefix = "/" + encode(label)
	return Open(ctx, h.URL(), o)
}

func (h harness) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	p, err := netfault.NewTCPProxy(h.Addr(), 1)
	if err != nil {
		return nil, nil, err
	}
	c.Cleanup(func() { _ = p.Close() })
	l, err := Open(ctx, h.URLVia(p.Addr()), suiteOptions())
	return l, p, err
}

func (h harness) Child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+h.URL())
	return cmd
}

func (h harness) Caps() conformance.Caps {
	caps := conformance.CapsFrom(h.caps)
	caps.Inspector, caps.Proxy, caps.Namespaces, caps.Child = conformance.Yes, conformance.Yes, conformance.Yes, conformance.Yes
	caps.Process, caps.ServerClock, caps.Failover = conformance.No, conformance.No, conformance.No
	if h.Controlled() {
		caps.Process = conformance.Yes
	}
	return caps
}

func (h harness) Timing() conformance.Timing { return conformance.TimingFrom(h.caps) }

// suiteOfNew is the environment variable that has the whole suite run on New.
const suiteOfNew = "DISTLOCK_ZK_SUITE_OF_NEW"

// TestConformanceOfNew: one session, which is the user's and outlives the Locker, has all
// locks of a client. Most of the code is that of Open, so by default this is a slice of
// the suite: what fails, is given up or is closed.
func TestConformanceOfNew(t *testing.T) {
	s := server(t)
	h := onSessions{harness{s, connect(t), driver.Capabilities{}}, t, 8 * time.Second}
	o := &conformance.Options{Filter: func(k conformance.Check) bool {
		return k.ID == "fault/long-outage" || k.Mandatory && slices.Contains([]string{"core", "cancel", "close"}, k.Group())
	}}
	if os.Getenv(suiteOfNew) != "" {
		h.session, o.Filter = suiteSession, nil
	}
	l, err := h.openOn(t.Context(), t.Cleanup, s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	h.caps = l.Capabilities()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, h, o)
}

// onSessions lets the suite examine New on connections of its own.
type onSessions struct {
	harness
	t       *testing.T
	session time.Duration
}

func (h onSessions) Open(ctx context.Context, c *conformance.C) (distlock.Locker, error) {
	return h.openOn(ctx, c.Cleanup, h.Addr())
}

func (h onSessions) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	p, err := netfault.NewTCPProxy(h.Addr(), 1)
	if err != nil {
		return nil, nil, err
	}
	c.Cleanup(func() { _ = p.Close() })
	l, err := h.openOn(ctx, c.Cleanup, p.Addr())
	return l, p, err
}

func (h onSessions) openOn(ctx context.Context, cleanUp func(func()), addr string) (*Locker, error) {
	d := &lastDial{}
	conn, events, err := zk.Connect([]string{addr}, h.session, zk.WithLogger(debugLog{}), inOrder(), zk.WithDialer(d.dial))
	if err != nil {
		return nil, err
	}
	cleanUp(func() {
		d.end()
		testkit.Until(h.t, "the connection ends", func() bool {
			return conn.State() == zk.StateDisconnected || conn.State() == zk.StateConnecting
		})
		conn.Close()
	})
	for conn.State() != zk.StateHasSession {
		select {
		case <-events:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return New(conn, &Options{TickTime: tick})
}

// lastDial ends the TCP connection of a user's client before that is closed. A CreateContainer may be
// under way then, for a name that is being cleaned up; see session.endContainers for why
// it must not see the client closed.
type lastDial struct {
	mu    sync.Mutex
	conn  net.Conn
	ended bool
}

func (d *lastDial) dial(network, addr string, limit time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, limit)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && d.ended {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	d.conn = conn
	return conn, err
}

func (d *lastDial) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

func (h onSessions) Caps() conformance.Caps {
	caps := h.harness.Caps()
	caps.Child, caps.Namespaces = conformance.No, conformance.No // they are those of Open
	return caps
}

// queue lists the claims on a name, first come, first.
func (h harness) queue(name string) ([]node, error) {
	if _, err := h.admin.Sync(DefaultPrefix); err != nil {
		return nil, err
	}
	children, _, err := h.admin.Children(DefaultPrefix + "/" + encode(name))
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return queueOf(children), err
}

func (h harness) Records(ctx context.Context, name string) (int, error) {
	queue, err := h.queue(name)
	return len(queue), err
}

func (h harness) Waiters(ctx context.Context, name string) (int, error) {
	queue, err := h.queue(name)
	return max(len(queue)-1, 0), err
}

// BlockName implements conformance.NameBlocker: nobody may touch the node of the name.
func (h harness) BlockName(_ context.Context, name string) (func() error, error) {
	path := DefaultPrefix + "/" + encode(name)
	if err := h.admin.AddAuth("digest", []byte("conformance:secret")); err != nil {
		return nil, err
	}
	ours := zk.DigestACL(zk.PermAll, "conformance", "secret")
	_, err := h.admin.SetACL(path, ours, -1)
	if errors.Is(err, zk.ErrNoNode) {
		_, err = h.admin.Create(path, nil, 0, ours)
	}
	return func() error {
		_, err := h.admin.SetACL(path, zk.WorldACL(zk.PermAll), -1)
		if errors.Is(err, zk.ErrNoNode) { // removed, being empty
			err = nil
		}
		return err
	}, err
}

func (h harness) Delete(ctx context.Context, name string) error {
	queue, err := h.queue(name)
	if err != nil || len(queue) == 0 {
		return err
	}
	return h.admin.Delete(DefaultPrefix+"/"+encode(name)+"/"+queue[0].name, -1)
}
