package zklock

import (
	"cmp"
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

// suiteSession is the session timeout of the suite's clients. Where a holder dies,
// the checks wait for the end of it, but they want TTLs of four units, 8 s.
const suiteSession = 13 * time.Second

func suiteOptions() *Options {
	return &Options{SessionTimeout: suiteSession, TickTime: tick}
}

// TestConformance has the checks that leave the server alone. Those that stop or kill it
// run beside them, on another one: see TestConformanceAlone.
func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, server(t), func(k conformance.Check) bool { return !k.Alone })
}

func TestConformanceAlone(t *testing.T) {
	t.Parallel()
	conform(t, servers.ForTest(t, servers.ZooKeeper), func(k conformance.Check) bool { return k.Alone })
}

// conform examines Open by the checks that filter selects.
func conform(t *testing.T, s *servers.Server, filter func(conformance.Check) bool) {
	l, err := Open(t.Context(), s.URL(), suiteOptions())
	testkit.Must(t, err)
	caps := l.Capabilities()
	testkit.Must(t, l.Close())
	o := cmp.Or(pin.Pinned(s, "sweep/held"), &conformance.Options{})
	o.Filter = filter
	pin.Run(t, harness{s, connectTo(t, s.Addr()), caps}, o)
}

// harness lets the suite examine Open.
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
	t.Parallel()
	s := servers.ForTest(t, servers.ZooKeeper)
	h := onSessions{harness{s, connectTo(t, s.Addr()), driver.Capabilities{}}, t, 8 * time.Second}
	o := &conformance.Options{Parallel: 6, Filter: func(k conformance.Check) bool {
		return k.ID == "fault/long-outage" || slices.Contains(untilClosed, k.ID) ||
			k.Mandatory && slices.Contains([]string{"core", "cancel", "close"}, k.Group())
	}}
	if os.Getenv(suiteOfNew) != "" {
		h.session, o = suiteSession, nil
	}
	l, err := h.openOn(t.Context(), t.Cleanup, s.Addr())
	testkit.Must(t, err)
	h.caps = l.Capabilities()
	testkit.Must(t, l.Close())
	pin.Run(t, h, o)
}

// untilClosed lists the checks of what is left of a client after Close. A connection of
// the user is left, and says that it is alive. So they count once that is closed, too.
var untilClosed = []string{"auto/stops-on-close", "leak/goroutines", "leak/connections"}

// onSessions lets the suite examine New on connections of its own.
type onSessions struct {
	harness
	t       *testing.T
	session time.Duration
}

func (h onSessions) Open(ctx context.Context, c *conformance.C) (distlock.Locker, error) {
	return h.openFor(ctx, c, h.Addr())
}

func (h onSessions) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	p, err := netfault.NewTCPProxy(h.Addr(), 1)
	if err != nil {
		return nil, nil, err
	}
	c.Cleanup(func() { _ = p.Close() })
	l, err := h.openFor(ctx, c, p.Addr())
	return l, p, err
}

func (h onSessions) openFor(ctx context.Context, c *conformance.C, addr string) (distlock.Locker, error) {
	if !slices.Contains(untilClosed, c.ID()) {
		return h.openOn(ctx, c.Cleanup, addr)
	}
	w := &withConnection{}
	l, err := h.openOn(ctx, func(end func()) { w.end = sync.OnceFunc(end); c.Cleanup(w.end) }, addr)
	w.Locker = l
	return w, err
}

// withConnection is a Locker that takes the user's connection with it.
type withConnection struct {
	*Locker
	end func()
}

func (w *withConnection) Close() error {
	defer w.end()
	return w.Locker.Close()
}

func (h onSessions) openOn(ctx context.Context, cleanUp func(func()), addr string) (*Locker, error) {
	d := &lastDial{}
	conn, err := dial(ctx, addr, h.session, d.dial)
	if err != nil {
		return nil, err
	}
	cleanUp(func() {
		d.end()
		testkit.Until(h.t, "the connection ends", func() bool {
			return conn.State() == zk.StateDisconnected || conn.State() == zk.StateConnecting
		})
		conn.Close(time.Second)
	})
	return New(conn.Conn, &Options{TickTime: tick})
}

// lastDial ends the TCP connection of a user's client before that is closed. A CreateContainer may be
// under way then, for a name that is being cleaned up; see wire.Conn.CreateContainer for why
// it must not see the client closed.
type lastDial struct {
	mu    sync.Mutex
	conn  net.Conn
	ended bool
}

func (d *lastDial) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	d.conn = conn
	return conn, nil
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
