package mutants

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/conformance/virtual"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// harness implements conformance.Harness and the optional interfaces that make
// sense within one process.
type harness struct {
	design
	world *world // of one check; nil outside of checks
}

var (
	_ conformance.Scoped      = (*harness)(nil)
	_ conformance.Proxy       = (*harness)(nil)
	_ conformance.Inspector   = (*harness)(nil)
	_ conformance.ServerClock = (*harness)(nil)

	_ conformance.NameBlocker   = (*harness)(nil)
	_ conformance.ServerBlocker = (*harness)(nil)
)

// store is what memlock's driver can do, directly or behind a link.
type store interface {
	driver.Driver
	driver.Inspector
	driver.Breaker
}

// world is the store of one check and what all its clients share besides.
type world struct {
	memory *memlock.Store
	mem    store // over it, or of its own

	mu      sync.Mutex
	clients int
	ahead   time.Duration // the server's clock before those of the clients
	tables  bool          // the tables of the driver exist
	entries map[string]*entry
	floor   int64 // no token of what was swept is higher
	stuck   virtual.Stuck
	blocked sync.Map // the names that are stuck

	sweeping atomic.Bool // a client sweeps, of a store that one at a time may
}

// entry is what a flaw needs to know of a name, beyond what memlock keeps.
type entry struct {
	owner   string // of the last grant
	former  string // the last that was released
	holder  string // of the last grant, and its TTL
	ttl     time.Duration
	granted time.Time // when that was
	client  *env      // of the last grant
	faults  int       // that its link had seen then
	expires time.Time // of the last grant, as it was first set
	ended   bool      // the last grant was released
	seen    bool      // the occasion on which a generated mutant goes wrong
	token   int64
	queue   []*claim
	subs    []chan struct{}
}

// env is one client in a world.
type env struct {
	*world
	design
	link *virtual.Link
	c    *conformance.C // nil outside of checks
	id   int            // counts the clients from 1

	closing atomic.Bool  // Close has been called
	failed  atomic.Bool  // a request had no answer
	many    atomic.Int64 // the grants
	mine    sync.Map     // the names that it holds, where that matters
}

func (d design) newWorld() *world {
	w := &world{entries: make(map[string]*entry)}
	w.memory = memlock.NewStore(&memlock.StoreOptions{Intercept: w.stuck.Intercept})
	w.mem = memlock.NewDriver(w.memory).(store)
	if d.store != nil {
		w.mem = d.store()
	}
	if d.async {
		w.mem = &asynchronous{primary: w.mem}
	}
	return w
}

// with calls f with the entry of a name, and exclusive access to it.
func (w *world) with(name string, f func(e *entry)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[name]
	if e == nil {
		e = &entry{ended: true}
		w.entries[name] = e
	}
	f(e)
}

// ForCheck implements conformance.Scoped.
func (h *harness) ForCheck(*conformance.C) conformance.Harness {
	return &harness{design: h.design, world: h.newWorld()}
}

// Open implements conformance.Harness.
func (h *harness) Open(ctx context.Context, c *conformance.C) (distlock.Locker, error) {
	l, _, err := h.OpenVia(ctx, c)
	return l, err
}

// OpenVia implements conformance.Proxy.
func (h *harness) OpenVia(_ context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	e := h.newEnv(h.world, c)
	client, err := driver.New(h.newDriver(e), nil)
	if err != nil {
		return nil, nil, err
	}
	if h.locker != nil {
		return h.locker(e, client), e.link, nil
	}
	return client, e.link, nil
}

func (h *harness) newEnv(w *world, c *conformance.C) *env {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clients++
	return &env{world: w, design: h.design, link: virtual.NewLink(), c: c, id: w.clients}
}

func (h *harness) newDriver(e *env) driver.Driver {
	if h.driver != nil {
		return h.driver(e)
	}
	return e.inside(flaw{})
}

func (h *harness) capabilities() driver.Capabilities {
	return h.newDriver(h.newEnv(h.newWorld(), nil)).Capabilities()
}

// Caps implements conformance.Harness.
func (h *harness) Caps() conformance.Caps {
	caps := conformance.CapsFrom(h.capabilities())
	caps.Inspector, caps.Proxy, caps.ServerClock = conformance.Yes, conformance.Yes, conformance.Yes
	caps.Failover = conformance.Yes
	caps.Process, caps.Namespaces, caps.Child = conformance.No, conformance.No, conformance.No
	if h.spaces {
		caps.Namespaces = conformance.Yes
	}
	if h.caps != nil {
		h.caps(&caps)
	}
	return caps
}

// Timing implements conformance.Harness.
func (h *harness) Timing() conformance.Timing {
	t := conformance.TimingFrom(h.capabilities())
	if h.timing != nil {
		h.timing(&t)
	}
	return t
}

// Jump implements conformance.ServerClock. The bubble has one clock, so what moves
// is what separates it from the clients', for those drivers that look at theirs.
func (h *harness) Jump(_ context.Context, d time.Duration) error {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	h.world.ahead += d
	return nil
}

// status asks the store directly, whatever the driver under examination would say.
func (h *harness) status(ctx context.Context, name string) (distlock.Status, error) {
	return h.world.mem.Inspect(ctx, h.stored(name))
}

// Records implements conformance.Inspector.
func (h *harness) Records(ctx context.Context, name string) (int, error) {
	st, err := h.status(ctx, name)
	n := st.Waiters
	if st.Held {
		n++
	}
	return n, err
}

// Waiters implements conformance.Inspector.
func (h *harness) Waiters(ctx context.Context, name string) (int, error) {
	if h.waiters != nil {
		return h.waiters(h.world, name), nil
	}
	st, err := h.status(ctx, name)
	return st.Waiters, err
}

// Delete implements conformance.Inspector.
func (h *harness) Delete(ctx context.Context, name string) error {
	return remove(ctx, h.world.mem, h.stored(name))
}

// remove ends whatever hold there is on a name; ErrLost if there is none.
func remove(ctx context.Context, mem store, name string) error {
	st, err := mem.Inspect(ctx, name)
	if err != nil {
		return err
	}
	return mem.Break(ctx, name, st.Token)
}
