package hazard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// What the conformance suite judges already is judged by its checks, and by nothing
// else here.
var (
	exclusionChecks = []string{
		"core/exclusive", "after/expires", "pair/unlock", "cancel/race-with-grant",
		"pair/reply-lost", "stress/counter", "stress/random-history", "stress/boundary-history",
	}
	cancelChecks = []string{
		"after/leaves", "cancel/race-with-grant", "pair/left-late", "handover/woken-leaves",
	}
	orderChecks = []string{"after/order", "fair/cancelled-skipped"}
	herdChecks  = []string{"stress/herd", "wait/no-busy-loop"}
)

// doubleGrants looks for two holders at once, under load and under faults.
func doubleGrants(ctx context.Context, e *env) (report.Outcome, error) {
	return e.checked(ctx, exclusionChecks, "none seen")
}

// cancelledWaiter looks for what calls leave behind that were cancelled.
func cancelledWaiter(ctx context.Context, e *env) (report.Outcome, error) {
	return e.checked(ctx, cancelChecks, "nothing left")
}

// herd looks whether a release wakes more than the next waiter, and whether waiters ask
// again and again.
func herd(ctx context.Context, e *env) (report.Outcome, error) {
	if !e.caps.Push {
		return report.Outcome{Verdict: report.Caution, Text: "waiters poll", Detail: "says the driver"}, nil
	}
	return e.checked(ctx, herdChecks, "wakes the next alone")
}

// checked runs checks of the suite. good words the outcome if none fails.
func (e *env) checked(ctx context.Context, ids []string, good string) (report.Outcome, error) {
	admin, err := e.open(ctx, e.longTTL)
	if err != nil {
		return report.Outcome{}, err
	}
	defer release(admin)
	h := &harness{env: e, LockerInspector: conformance.LockerInspector{Admin: admin}}
	found := conformance.Verify(ctx, h.withAbilities(), &conformance.Options{
		Filter: func(k conformance.Check) bool { return slices.Contains(ids, k.ID) },
		Look:   h.look,
	})
	if ctx.Err() != nil {
		return report.Outcome{}, ctx.Err()
	}
	return judgeChecks(found, good)
}

// judgeChecks makes an outcome of what the suite has found. A check that was
// inconclusive says that the machine was too slow, or the store did not answer: without it, nothing is known.
func judgeChecks(found conformance.Report, good string) (report.Outcome, error) {
	ids := make(map[conformance.Status][]string)
	for _, r := range found.Results {
		ids[r.Status] = append(ids[r.Status], r.ID)
		if r.Status == conformance.Failed && len(ids[r.Status]) == 1 {
			reason, _, _ := strings.Cut(r.Reason, "\n")
			good = fmt.Sprintf("fails %s: %s", r.ID, reason)
		}
	}
	said := []string{"checks of the conformance suite that passed: " + strings.Join(ids[conformance.Passed], ", ")}
	for _, s := range []conformance.Status{conformance.Failed, conformance.Skipped} {
		if len(ids[s]) > 0 {
			said = append(said, string(s)+": "+strings.Join(ids[s], ", "))
		}
	}
	if skipped, passed := len(ids[conformance.Skipped]), len(ids[conformance.Passed]); skipped > 0 && len(ids[conformance.Failed]) == 0 {
		good += fmt.Sprintf(", by %d of %d checks", passed, passed+skipped)
	}
	o := report.Outcome{Verdict: report.Good, Text: good, Detail: strings.Join(said, "; ")}
	switch {
	case len(ids[conformance.Failed]) > 0:
		o.Verdict = report.Bad
	case found.Outage.Checks > 0:
		return o, found.Outage.Err()
	case len(ids[conformance.Inconclusive]) > 0:
		return o, fmt.Errorf("%w: %s", errStall, strings.Join(ids[conformance.Inconclusive], ", "))
	case len(ids[conformance.Passed]) == 0:
		return o, errors.New("none of the checks could be run")
	}
	return o, nil
}

// harness is a rig as the conformance suite takes it.
type harness struct {
	*env
	conformance.LockerInspector
}

// look asks the store with a connection that stands. A server may take only so many from one address, as ZooKeeper does: that is
// told as the clients of the checks are opened.
func (h *harness) look(ctx context.Context) error {
	_, err := distlock.Inspect(ctx, h.Admin, h.prefix+"answers")
	if errors.Is(err, distlock.ErrUnsupported) {
		return nil
	}
	return err
}

// withAbilities returns the harness with the method for a proxy, if there can be one.
func (h *harness) withAbilities() conformance.Harness {
	if h.rig.Route == nil {
		return h
	}
	return proxied{h}
}

// Open implements conformance.Harness.
func (h *harness) Open(ctx context.Context, _ *conformance.C) (distlock.Locker, error) {
	return h.rig.Open(ctx, h.longTTL)
}

// Caps implements conformance.Harness.
func (h *harness) Caps() conformance.Caps {
	caps := conformance.CapsFrom(h.Admin.(capable).Capabilities())
	caps.Inspector, caps.Proxy = conformance.Yes, conformance.No
	if h.rig.Route != nil {
		caps.Proxy = conformance.Yes
	}
	caps.Process, caps.ServerClock, caps.Failover = conformance.No, conformance.No, conformance.No
	caps.Namespaces, caps.Child = conformance.No, conformance.No
	return caps
}

// Timing implements conformance.Harness.
func (h *harness) Timing() conformance.Timing {
	return conformance.TimingFrom(h.Admin.(capable).Capabilities())
}

// proxied is a harness that can put a proxy before the server.
type proxied struct{ *harness }

// OpenVia implements conformance.Proxy.
func (h proxied) OpenVia(ctx context.Context, c *conformance.C) (distlock.Locker, netfault.Link, error) {
	route, err := h.rig.Route()
	if err != nil {
		return nil, nil, err
	}
	c.Cleanup(func() {
		if err := route.Close(); err != nil {
			c.Logf("closing the proxy: %v", err)
		}
	})
	l, err := route.Open(ctx, h.longTTL)
	return l, route.Link, err
}
