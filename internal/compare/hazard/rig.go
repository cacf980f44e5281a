package hazard

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/sandbox"
)

// Rig is the equipment to do harm to a backend and its clients. What is nil is not to be
// had, and the hazards that need it say so.
type Rig struct {
	// Open returns a new client for locks of this TTL: some stores want to know it when
	// they are connected to. It must not be nil.
	Open func(ctx context.Context, ttl time.Duration) (distlock.Locker, error)

	// Route returns a new path to the store.
	Route func() (*Route, error)

	// Child returns a command, not yet started, that runs HolderMain with a client of the URL. The URL contains
	// the password.
	Child func(url string) (*exec.Cmd, error)

	// URL is what such a client opens.
	URL func(ttl time.Duration) string

	// Control is power over the server.
	Control Control

	// InProcess says that the store is in this process: there is no server, no
	// network and no other process.
	InProcess bool

	// ZooKeeper says that the store is one: the plan gives it more time.
	ZooKeeper bool
}

// Control is power over a server that nobody else uses.
type Control interface {
	Kill(ctx context.Context) error    // SIGKILL; returns when it is gone
	Restart(ctx context.Context) error // on the data it had; returns when it answers
}

// Route is a network path to a store. Its link counts and disturbs what all clients
// of the path send and receive.
type Route struct {
	netfault.Link
	Open  func(ctx context.Context, ttl time.Duration) (distlock.Locker, error)
	Close func() error // after the clients
}

// NewRig returns what a URL alone gives: proxies, and clients of any TTL. used is called
// when something of the sandbox may have come to be.
func NewRig(box *sandbox.Sandbox, used func()) Rig {
	r := Rig{
		ZooKeeper: box.Store == "zk",
		Open: func(ctx context.Context, ttl time.Duration) (distlock.Locker, error) {
			l, err := backends.Open(ctx, leased(box, "", ttl))
			if err == nil {
				used() // also by the routes and children that come after
			}
			return l, err
		},
	}
	if openurl.Scheme(box.URL("")) == "mem" {
		r.InProcess = true
		return r
	}
	r.URL = func(ttl time.Duration) string { return leased(box, "", ttl) }
	if addr := addrOf(box); addr != "" {
		r.Route = func() (*Route, error) { return newRoute(box, addr) }
	}
	return r
}

// addrOf returns the address that a proxy can stand before, or "". An unknown scheme may have any port, so the
// URL must name it.
func addrOf(box *sandbox.Sandbox) string {
	if addr, err := box.Addr(); err == nil {
		return addr
	}
	u, err := openurl.Parse(box.URL(""))
	if err != nil || box.Store != "" || len(u.Hosts()) != 1 || u.HostsDefault("1")[0] != u.Hosts()[0] {
		return ""
	}
	return u.Hosts()[0]
}

func newRoute(box *sandbox.Sandbox, addr string) (*Route, error) {
	proxy, err := netfault.NewTCPProxy(addr, rand.Uint64())
	if err != nil {
		return nil, err
	}
	return &Route{
		Link: proxy,
		Open: func(ctx context.Context, ttl time.Duration) (distlock.Locker, error) {
			return backends.Open(ctx, leased(box, proxy.Addr(), ttl))
		},
		Close: proxy.Close,
	}, nil
}

// leased returns the URL of the sandbox for clients with locks of this TTL. The session of ZooKeeper must be
// longer, and a dead holder blocks for as long as that. A TTL in the URL itself stays.
func leased(box *sandbox.Sandbox, via string, ttl time.Duration) string {
	return box.With("ttl", ttl.String()).URL(via)
}
