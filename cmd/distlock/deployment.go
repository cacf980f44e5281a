package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
)

// deployment is a backend behind a URL, as a harness for the suite.
type deployment struct {
	conformance.LockerInspector

	config backends.Config
	caps   driver.Capabilities
	host   string // for a proxy; empty if there can be none
}

// capable is implemented by every Locker that has a Client inside.
type capable interface{ Capabilities() driver.Capabilities }

// defaultPorts are those of the schemes that a proxy can stand before.
var defaultPorts = map[string]string{"redis": "6379", "mysql": "3306", "postgres": "5432", "postgresql": "5432", "zk": "2181", "etcd": "2379"}

func newDeployment(c backends.Config, admin distlock.Locker) *deployment {
	d := &deployment{config: c, LockerInspector: conformance.LockerInspector{Admin: admin}}
	if l, ok := admin.(capable); ok {
		d.caps = l.Capabilities()
	}
	d.host = soleAddress(c.URL)
	return d
}

// soleAddress returns the one address that clients of a URL connect to. It is "" if a
// proxy before it would not carry them: with TLS, several hosts or a cluster.
func soleAddress(rawURL string) string {
	parsed, err := openurl.Parse(rawURL)
	if err != nil {
		return ""
	}
	port, ok := defaultPorts[parsed.Scheme()]
	u, err := url.Parse(rawURL)
	if !ok || err != nil || u.Query().Has("tls") && u.Query().Get("tls") != "off" || u.Query().Has("cluster") || u.Query().Has("master") {
		return ""
	}
	if hosts := parsed.HostsDefault(port); len(hosts) == 1 {
		return hosts[0]
	}
	return ""
}

// harness returns what the suite examines: with the abilities that there are, and no
// method for any other. A check may try out every method that it finds.
func (d *deployment) harness() conformance.Harness {
	proxied, forks := d.host != "", openurl.Scheme(d.config.URL) != "mem" // the store of mem is in this process
	switch {
	case proxied && forks:
		return struct {
			*deployment
			behindProxy
			inChild
		}{d, behindProxy{d}, inChild{d}}
	case proxied:
		return behindProxy{d}
	case forks:
		return inChild{d}
	}
	return d
}

// behindProxy is a deployment with connections that can be led through a proxy.
type behindProxy struct{ *deployment }

// inChild is a deployment that can be reached from another process.
type inChild struct{ *deployment }

// Open implements conformance.Harness.
func (d *deployment) Open(ctx context.Context, _ *conformance.C) (distlock.Locker, error) {
	return d.config.Open(ctx)
}

// look asks the store with a connection that stands, and with a new client: a server has room for so many connections.
func (d *deployment) look(ctx context.Context) error {
	if _, err := distlock.Inspect(ctx, d.Admin, "conf-watch"); err != nil && !errors.Is(err, distlock.ErrUnsupported) {
		return err
	}
	client, err := d.config.Open(ctx)
	if err != nil {
		return err
	}
	_ = client.Close() // it holds nothing
	return nil
}

// OpenVia implements conformance.Proxy.
func (d behindProxy) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	p, err := netfault.NewTCPProxy(d.host, c.Rand().Uint64())
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

// childVariable makes this program the child process of a check. It has the configuration, as JSON: what a file says is
// not in the environment.
const childVariable = "DISTLOCK_CHECK_CHILD"

// Child implements conformance.Child.
func (d inChild) Child() *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	config, err := json.Marshal(d.config)
	if err != nil {
		panic(err) // it has texts and numbers only
	}
	cmd := exec.Command(self)
	// In the environment: everybody may read the arguments.
	cmd.Env = append(os.Environ(), childVariable+"="+string(config))
	return cmd
}

// isChild runs the child process of a check, if this is one.
func isChild() (status int, child bool) {
	config := os.Getenv(childVariable)
	if config == "" {
		return 0, false
	}
	return conformance.ChildMain(func(ctx context.Context) (distlock.Locker, error) {
		var c backends.Config
		if err := json.Unmarshal([]byte(config), &c); err != nil {
			return nil, err
		}
		return openPatiently(ctx, c)
	}), true
}

// openPatiently opens a client, if need be once the server has room for one again. A child cannot tell the suite that
// there was none.
func openPatiently(ctx context.Context, c backends.Config) (distlock.Locker, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for retry := (driver.Retry{}); ; {
		l, err := c.Open(ctx)
		if err == nil || retry.Pause(ctx) != nil {
			return l, err
		}
	}
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
	if openurl.Scheme(d.config.URL) == "mem" {
		caps.Child = conformance.No
	}
	return caps
}

// Timing implements conformance.Harness.
func (d *deployment) Timing() conformance.Timing { return conformance.TimingFrom(d.caps) }
