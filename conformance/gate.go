package conformance

import (
	"context"
	"sync"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
)

// Stepped is implemented by a harness for a store without a network: files, or a value in
// the process. It lets the suite stop a client between two steps of one operation, go
// through the life of the name with another client, and let the first go on, for every
// step. It has no capability of its own: a harness that is a Proxy has no need of it.
type Stepped interface {
	// OpenStepped is Open for a client that calls step before each primitive step of its
	// store: before a file is opened, read, written, renamed or removed, a map looked at or
	// changed, a lock taken. step returns when the client may go on, minutes later if need be,
	// or never called back if it is called by nobody. It is safe for concurrent use. Other
	// clients may block meanwhile on what this one holds, a flock or a mutex, except that in
	// virtual time nobody may block on a mutex.
	OpenStepped(ctx context.Context, c *C, step func()) (distlock.Locker, error)
}

// gate stops a client in the midst of an operation.
type gate interface {
	hold(k int)    // what the client does or sends from the k-th time on waits
	reached() bool // reports whether that was the case
	release()      // lets go what waits
	heal()         // makes the client as good as new; after release
}

// openGated returns a client that can be stopped, by its steps or by its wire.
func (c *C) openGated(who string) (*client, gate) {
	if s, ok := c.harness.(Stepped); ok {
		g := &stepGate{open: make(chan struct{})}
		close(g.open)
		p := c.openWith(who, func(ctx context.Context) (distlock.Locker, netfault.Link, error) {
			l, err := s.OpenStepped(ctx, c, g.step)
			return l, nil, err
		})
		return p, g
	}
	if _, ok := can[Proxy](c, capProxy); !ok {
		c.lacks(capSteps, "the harness has neither Stepped nor a proxy")
	}
	p := c.openVia(who)
	return p, &wireGate{link: p.link}
}

// stepGate stops a client at a step of its store.
type stepGate struct {
	mu    sync.Mutex
	left  int // steps until the gate closes; 0 is not armed
	hit   bool
	open  chan struct{} // closed unless the gate is
	count int
}

// step is what the store calls.
func (g *stepGate) step() {
	g.mu.Lock()
	g.count++
	if g.left > 0 {
		if g.left--; g.left == 0 {
			g.hit, g.open = true, make(chan struct{})
		}
	}
	open := g.open
	g.mu.Unlock()
	<-open
}

func (g *stepGate) hold(k int) { g.set(func() { g.left, g.hit = k, false }) }

func (g *stepGate) reached() (hit bool) { g.set(func() { hit = g.hit }); return hit }

// steps counts those that were begun.
func (g *stepGate) steps() (n int) { g.set(func() { n = g.count }); return n }

func (g *stepGate) release() {
	g.set(func() {
		g.left = 0
		select {
		case <-g.open:
		default:
			close(g.open)
		}
	})
}

func (g *stepGate) heal() {}

func (g *stepGate) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// wireGate stops a client at a request. What it sends afterwards is lost: a repetition, or
// word that nobody waits for the answer any more, would hide what the request alone does.
type wireGate struct {
	link   netfault.Link
	before int
	hit    bool
}

func (g *wireGate) hold(k int) {
	g.before = g.link.Fired()
	g.link.HoldRequest(k)
}

func (g *wireGate) reached() bool {
	if !g.hit && g.link.Fired() > g.before {
		g.hit = true
		g.link.Drop(true, false)
	}
	return g.hit
}

func (g *wireGate) release() { g.link.Release() }

func (g *wireGate) heal() { g.link.Heal() }
