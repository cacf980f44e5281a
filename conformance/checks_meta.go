package conformance

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

func metaChecks() []Check {
	return []Check{
		{ID: "meta/caps-declared", Clause: "meta", Mandatory: true, Run: capsDeclared,
			Rule: "the harness declares every capability as present or absent, and has the interface of each that is present"},
		{ID: "meta/timing-declared", Clause: "meta", Mandatory: true, Run: timingDeclared,
			Rule: "the harness declares bounds that can be judged by"},
		{ID: "meta/driver-agrees", Clause: "meta", Mandatory: true, Run: driverAgrees,
			Rule: "what the harness declares is what the driver itself declares"},
		{ID: "meta/clients-independent", Clause: "meta", Mandatory: true, Run: clientsIndependent,
			Rule: "two clients of the harness share nothing: closing one does not touch the other"},
		{ID: "meta/inspector-as-declared", Clause: "meta", Mandatory: true, Run: inspectorAsDeclared,
			Rule: "Inspect, List, Break and Sweep either work or return ErrUnsupported and change nothing, whatever the holder and its token"},
	}
}

func capsDeclared(c *C) {
	var faults []string
	for _, cs := range c.harness.Caps().all() {
		if cs.support == 0 {
			faults = append(faults, fmt.Sprintf("%s is not declared: set it to Yes or No in Caps", cs.cap))
			continue
		}
		// To declare one absent that the harness has is no lie: this run has no use
		// for it.
		if has, known := implements(c.harness, cs.cap); known && !has && cs.support == Yes {
			faults = append(faults, fmt.Sprintf("%s is declared present, but the harness does not implement its interface", cs.cap))
		}
	}
	if c.harness.Caps().Backend == "" {
		faults = append(faults, "Backend is empty: reports need a name for the driver")
	}
	if len(faults) > 0 {
		c.Failf("%s", strings.Join(faults, "\n"))
	}
}

func timingDeclared(c *C) {
	t := c.timing
	var faults []string
	for _, b := range []struct {
		name  string
		bound time.Duration
		least time.Duration
	}{
		{"MinTTL", t.MinTTL, 1},
		{"TTLGranularity", t.TTLGranularity, 1},
		{"ExpiryLag", t.ExpiryLag, 0}, // none is a bound, too
		{"WakeLag", t.WakeLag, 1},
		{"CleanupBound", t.CleanupBound, 1},
	} {
		if b.bound < b.least {
			faults = append(faults, fmt.Sprintf("%s is %v: declare a bound of at least %v (see TimingFrom)", b.name, b.bound, b.least))
		}
	}
	if t.TTLGranularity > 0 && t.MinTTL%t.TTLGranularity != 0 {
		faults = append(faults, fmt.Sprintf("MinTTL %v is no multiple of TTLGranularity %v", t.MinTTL, t.TTLGranularity))
	}
	if t.MaxExtend != 0 && t.MaxExtend < 1 {
		faults = append(faults, fmt.Sprintf("MaxExtend is %v: Extend must be able to give a lock its own TTL again, so declare 1 at least, or 0 for no bound", t.MaxExtend))
	}
	if len(faults) > 0 {
		c.Failf("%s", strings.Join(faults, "\n"))
	}
}

func driverAgrees(c *C) {
	a := c.open("A")
	d, ok := a.locker.(interface {
		Capabilities() driver.Capabilities
	})
	if !ok {
		return // a Locker of another kind than driver.New makes declares nothing
	}
	said, caps, t := d.Capabilities(), c.harness.Caps(), c.timing
	own := CapsFrom(said)
	var faults []string
	differ := func(what string, harness, driver any) {
		if harness != driver {
			faults = append(faults, fmt.Sprintf("%s: the harness says %v, the driver's Capabilities say %v", what, harness, driver))
		}
	}
	differ("Backend", caps.Backend, own.Backend)
	differ("Fair", caps.Fair, own.Fair)
	differ("Push", caps.Push, own.Push)
	differ("Durable", caps.Durable, own.Durable)
	differ("Quorum", caps.Quorum, own.Quorum)
	differ("MinTTL", t.MinTTL, TimingFrom(said).MinTTL)
	differ("MaxTTL", t.MaxTTL, TimingFrom(said).MaxTTL)
	differ("TTLGranularity", t.TTLGranularity, TimingFrom(said).TTLGranularity)
	differ("MaxExtend", t.MaxExtend, said.MaxExtend)
	differ("ExpiryLag", t.ExpiryLag, said.ExpiryLag)
	if said.Durability < driver.Volatile || said.Durability > driver.Quorum {
		faults = append(faults, "Durability is not declared by the driver: set one of the classes")
	}
	if len(faults) > 0 {
		c.Failf("%s", strings.Join(faults, "\n"))
	}
}

func clientsIndependent(c *C) {
	a, b := c.open("A"), c.open("B")
	if reflect.ValueOf(a.locker).Comparable() && a.locker == b.locker {
		c.Failf("two calls to Open returned the same Locker; each must be a client of its own")
	}
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()))
	b.mustBeBusy(name, h)
	if err := b.close(); err != nil {
		c.Failf("B, which holds nothing, was closed: %v", err)
	}
	third := c.open("C")
	third.mustBeBusy(name, h)
	if err := h.Err(); err != nil && c.now() < h.closing() {
		c.Failf("A lost its lock when B was closed: %v", err)
	}
	other := a.mustTry(c.Name("y"), "which is fresh, by a client that must not mind the end of another", distlock.TTL(c.long()))
	other.free()
	h.free()
}

func inspectorAsDeclared(c *C) {
	a := c.open("A")
	name := c.Name("x")
	h := a.mustTry(name, "which is fresh", distlock.TTL(c.long()), distlock.Holder("somebody"))
	ctx, cancel := c.patiently()
	defer cancel()

	st, err := a.inspect(ctx, name)
	_, listErr := a.listed(ctx, c.Name(""))
	absent := errors.Is(err, distlock.ErrUnsupported) && errors.Is(listErr, distlock.ErrUnsupported)
	switch declared := c.harness.Caps().Inspector == Yes; {
	case absent && !declared:
	case err != nil || listErr != nil:
		c.Failf("Inspect returned %s and List %s: a driver has both or none, and both where the harness declares an inspector", describe(err), describe(listErr))
	case !st.Held || st.Name != name || st.Holder != "somebody" || st.Token != h.Token():
		c.Failf("A holds %q as somebody with token %d, but Inspect says %+v", name, h.Token(), st)
	}

	// Nobody has been idle for a year, so a sweep that works finds nothing of ours.
	if _, err := a.sweepIdle(ctx, 365*24*time.Hour); err != nil && !errors.Is(err, distlock.ErrUnsupported) {
		c.Failf("Sweep returned neither nil nor ErrUnsupported: %v", err)
	}
	c.open("B").mustBeBusy(name, h)
	c.mustBreakAlways(a, h)
}

// mustBreakAlways demands that Break is either supported or not, whatever the holder and its token.
func (c *C) mustBreakAlways(a *client, h *lease) {
	c.unjudged("a lock is broken, whose holder may believe in it for a renewal period")
	ctx, cancel := c.patiently()
	defer cancel()
	free := a.breakHold(ctx, c.Name("free"), h.Token())
	answers := map[string]error{
		"of a name that is free":         free,
		"with another token":             a.breakHold(ctx, h.Name(), h.Token()+1),
		"with the token of who holds it": a.breakHold(ctx, h.Name(), h.Token()),
		"with that token once more":      a.breakHold(ctx, h.Name(), h.Token()),
	}
	unsupported := 0
	for _, err := range answers {
		if errors.Is(err, distlock.ErrUnsupported) {
			unsupported++
		}
	}
	switch {
	case unsupported != 0 && unsupported != len(answers):
		c.Failf("Break is supported at some times and not at others: %v", answers)
	case unsupported == 0 && !errors.Is(free, distlock.ErrLost):
		c.Failf("Break of a name that nobody holds returned %s; it must be ErrLost, or ErrUnsupported", describe(free))
	}
	_ = h.unlock()
}
