package compare

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/place"
)

// Rig is the equipment to do harm to a target and its clients. What is nil is not
// to be had, and the hazards that need it say so.
type Rig struct {
	// Open returns a new client whose locks are to have this TTL, where the store
	// wants to know that when it connects. Nil stands for the target's Open.
	Open func(ctx context.Context, ttl time.Duration) (distlock.Locker, error)

	// Route returns a new path to the store.
	Route func() (*Route, error)

	// Child returns a command, not yet started, that runs HolderMain with a client
	// of the URL, which contains the password.
	Child func(url string) (*exec.Cmd, error)

	// URL is what such a client opens.
	URL func(ttl time.Duration) string

	// Control is power over the server.
	Control Control

	// InProcess says that the store is in this process: there is no server, no
	// network and no other process.
	InProcess bool
}

// Control is power over a server that nobody else uses.
type Control interface {
	Kill(ctx context.Context) error    // SIGKILL; returns when it is gone
	Restart(ctx context.Context) error // on the data it had; returns when it answers
}

// Route is a network path to a store. Its link counts and disturbs what all clients
// of the path send and receive.
type Route struct {
	conformance.Link
	Open  func(ctx context.Context, ttl time.Duration) (distlock.Locker, error)
	Close func() error // after the clients
}

// newRig returns what a URL alone gives: proxies, and clients of any TTL.
func newRig(s *shared) Rig {
	p := s.place
	if openurl.Scheme(p.URL("")) == "mem" {
		return Rig{InProcess: true}
	}
	r := Rig{
		Open: func(ctx context.Context, ttl time.Duration) (distlock.Locker, error) {
			l, err := backends.Open(ctx, leased(p, "", ttl))
			if err == nil {
				s.used.Store(true) // also by the routes and children that come after
			}
			return l, err
		},
		URL: func(ttl time.Duration) string { return leased(p, "", ttl) },
	}
	if addr := proxied(p); addr != "" {
		r.Route = func() (*Route, error) { return newRoute(p, addr) }
	}
	return r
}

// proxied returns the address that a proxy can stand before, or "". A scheme that is
// not known here may have any port, so the URL must name it.
func proxied(p *place.Place) string {
	if addr, err := p.Addr(); err == nil {
		return addr
	}
	u, err := openurl.Parse(p.URL(""))
	if err != nil || p.Store != "" || len(u.Hosts()) != 1 || u.HostsDefault("1")[0] != u.Hosts()[0] {
		return ""
	}
	return u.Hosts()[0]
}

func newRoute(p *place.Place, addr string) (*Route, error) {
	proxy, err := conformance.NewTCPProxy(addr, rand.Uint64())
	if err != nil {
		return nil, err
	}
	return &Route{
		Link: proxy,
		Open: func(ctx context.Context, ttl time.Duration) (distlock.Locker, error) {
			return backends.Open(ctx, leased(p, proxy.Addr(), ttl))
		},
		Close: proxy.Close,
	}, nil
}

// leased returns the URL of the place for clients whose locks are to have this TTL:
// the session of ZooKeeper must be longer, and a dead holder blocks for as long as
// that. A TTL that the URL has itself stays.
func leased(p *place.Place, via string, ttl time.Duration) string {
	return p.With("ttl", ttl.String()).URL(via)
}
