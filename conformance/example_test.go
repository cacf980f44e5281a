package conformance_test

import (
	"context"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/memlock"
)

// The README has this, letter by letter but for the upper case of Test.

func testConformance(t *testing.T) { conformance.Run(t, harness{memlock.NewStore(nil)}, nil) }

// harness tells the suite about a driver. This one has nothing but locks: no proxy, no server to kill.
type harness struct{ store *memlock.Store }

func (h harness) Open(context.Context, *conformance.C) (distlock.Locker, error) {
	return memlock.New(h.store, nil)
}

func (h harness) Caps() conformance.Caps {
	return conformance.Caps{
		Backend: "memory", Fair: conformance.Yes, Push: conformance.Yes, Durable: conformance.No, Quorum: conformance.No,
		Inspector: conformance.No, Proxy: conformance.No, Process: conformance.No, ServerClock: conformance.No,
		Failover: conformance.No, Namespaces: conformance.No, Child: conformance.No,
	}
}

func (h harness) Timing() conformance.Timing {
	return conformance.TimingFrom(memlock.NewDriver(h.store).Capabilities())
}

func ExampleRun() {
	var _ func(*testing.T) = testConformance
}
