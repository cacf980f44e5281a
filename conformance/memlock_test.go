package conformance_test

import (
	"context"
	"sync"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/conformance/virtual"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// TestMemlock examines the reference driver in virtual time. What it skips needs
// processes, a clock of its own or a wire. Under -race, which makes it ten times slower, it sees a sample of the situations.
func TestMemlock(t *testing.T) {
	conformance.Run(t, memory{}, &conformance.Options{VirtualTime: true, Sample: conformance.RaceEnabled, Skips: skipped})
}

// TestMemlockRealTime examines it by the clock of the machine, as drivers on servers
// are: in virtual time nothing is late, and nothing is measured. The checks that must
// run alone, one after the other, are left to virtual time.
func TestMemlockRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 45 s")
	}
	together := func(c conformance.Check) bool { return !c.Alone }
	conformance.Run(t, memory{}, &conformance.Options{Filter: together, Parallel: 64, Skips: skipped})
}

var skipped = []string{
	"core/cross-process",         // no other process can have the store
	"pair/processes",             //
	"pair/herd-processes",        //
	"pair/stopped-process",       //
	"owner/twin-processes",       //
	"expiry/killed-holder",       //
	"lost/paused-client",         //
	"expiry/server-clock-judges", // store and clients read one clock
	"fault/paused-server-short",  //
	"fault/paused-server-long",   //
	"fault/killed-server",        // there is no server to pause or kill
	"fault/failover",             //
	"isolate/stuck-server",       // there is one store
	// the store keeps nothing that could be swept
	"sweep/held", "sweep/tokens", "sweep/beside-traffic", "sweep/exact", "sweep/waited-only", "pair/sweep",
	"fault/fragmented", // a call cannot come in pieces
}

// memory is the harness for memlock. Outside of checks it has no stores.
type memory struct{ stores *stores }

// stores are those of one check, by namespace.
type stores struct {
	mu    sync.Mutex
	m     map[string]*memlock.Store
	stuck virtual.Stuck
}

var (
	_ conformance.Scoped     = memory{}
	_ conformance.Proxy      = memory{}
	_ conformance.Inspector  = memory{}
	_ conformance.Namespaces = memory{}

	_ conformance.NameBlocker = memory{}
)

func (s *stores) get(namespace string) *memlock.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m[namespace] == nil {
		s.m[namespace] = memlock.NewStore(&memlock.StoreOptions{Intercept: s.stuck.Intercept})
	}
	return s.m[namespace]
}

func (h memory) BlockName(_ context.Context, name string) (func() error, error) {
	return h.stores.stuck.Block(func(n string) bool { return n == name }), nil
}

func (memory) ForCheck(*conformance.C) conformance.Harness {
	return memory{&stores{m: make(map[string]*memlock.Store)}}
}

func (h memory) Open(context.Context, *conformance.C) (distlock.Locker, error) {
	return memlock.New(h.stores.get(""), nil)
}

func (h memory) OpenIn(_ context.Context, _ *conformance.C, namespace string) (distlock.Locker, error) {
	return memlock.New(h.stores.get(namespace), nil)
}

func (h memory) OpenVia(context.Context, *conformance.C) (distlock.Locker, netfault.Link, error) {
	link := virtual.NewLink()
	l, err := driver.New(link.Driver(memlock.NewDriver(h.stores.get(""))), nil)
	return l, link, err
}

func (memory) capabilities() driver.Capabilities {
	return memlock.NewDriver(memlock.NewStore(nil)).Capabilities()
}

func (h memory) Caps() conformance.Caps {
	caps := conformance.CapsFrom(h.capabilities())
	caps.Inspector, caps.Proxy, caps.Namespaces = conformance.Yes, conformance.Yes, conformance.Yes
	caps.Process, caps.ServerClock, caps.Failover, caps.Child = conformance.No, conformance.No, conformance.No, conformance.No
	return caps
}

func (h memory) Timing() conformance.Timing { return conformance.TimingFrom(h.capabilities()) }

// admin is a client that no check knows of.
func (h memory) admin() *memlock.Locker {
	l, err := memlock.New(h.stores.get(""), nil)
	if err != nil {
		panic(err) // without options there is nothing to be wrong
	}
	return l
}

func (h memory) Records(ctx context.Context, name string) (int, error) {
	st, err := h.admin().Inspect(ctx, name)
	n := st.Waiters
	if st.Held {
		n++
	}
	return n, err
}

func (h memory) Waiters(ctx context.Context, name string) (int, error) {
	st, err := h.admin().Inspect(ctx, name)
	return st.Waiters, err
}

func (h memory) Delete(ctx context.Context, name string) error {
	return distlock.Break(ctx, h.admin(), name, 0)
}
