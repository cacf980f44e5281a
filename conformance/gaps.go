package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Gap is a kind of situation in which an examination has not looked at some clauses of
// the contract.
type Gap struct {
	Clauses   []string `json:"clauses"`   // in the order of the contract
	Situation string   `json:"situation"` // "where requests and replies are lost or late"
	Why       string   `json:"why"`       // "the harness has no proxy"
	Checks    []string `json:"checks"`    // the IDs of the checks that did not run
}

// String is the gap in one line: "H1, H5 where …: not examined (7 checks), the harness has no proxy".
func (g Gap) String() string {
	return fmt.Sprintf("%s %s: not examined (%s), %s", strings.Join(g.Clauses, ", "), g.Situation, plural(len(g.Checks), "check"), g.Why)
}

// capSteps is no declaration: it is there with the interface Stepped or with a proxy.
const capSteps Cap = "steps"

// unexamined says what is not seen without a capability, in words for "H1 …".
var unexamined = []struct {
	cap       Cap
	situation string
	why       string
}{
	{capSteps, "between two steps of one operation", "the harness has neither Stepped nor a proxy"},
	{capProxy, "where requests or replies are lost, late or cut off", "the harness has no proxy"},
	{capChild, "between processes, and where one is killed or stopped", "the harness has no child"},
	{capProcess, "where the server is stopped, killed or restarted", "the harness has no process"},
	{capServerClock, "where the clock of the server jumps", "the harness has no server-clock"},
	{capFailover, "over a failover", "the harness has no failover"},
	{capInspector, "in what the store keeps", "the harness has no inspector"},
	{capNamespaces, "between namespaces", "the harness has no namespaces"},
	{capFair, "as to the order of waiters", "the driver does not promise fair"},
	{capPush, "as to wake-ups", "the driver does not promise push"},
	{capDurable, "over a restart of the server", "the driver does not promise durable"},
	{capQuorum, "over the loss of a server", "the driver does not promise quorum"},
}

// Gaps says which clauses were not examined in which situations, because a capability is
// absent. A driver conforms to what was examined, and to no more.
func (r Report) Gaps() []Gap {
	var gaps []Gap
	for _, kind := range unexamined {
		g := Gap{Situation: kind.situation, Why: kind.why}
		for _, res := range r.Results {
			if res.Status != Skipped || res.Missing != kind.cap {
				continue
			}
			g.Checks = append(g.Checks, res.ID)
			if !slices.Contains(g.Clauses, res.Clause) {
				g.Clauses = append(g.Clauses, res.Clause)
			}
		}
		slices.SortFunc(g.Clauses, byContract)
		if len(g.Checks) > 0 {
			gaps = append(gaps, g)
		}
	}
	return gaps
}

// byContract orders clauses as the contract does: acquiring, holding, expiry, …; "meta" last.
func byContract(a, b string) int {
	const order = "AHEIFNWOCXm"
	if d := strings.IndexByte(order, a[0]) - strings.IndexByte(order, b[0]); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// notRun says of an examination that was interrupted what is missing.
func (r Report) notRun() string {
	return plural(r.Interrupted, "check") + " did not run, of those that were chosen"
}

// unseen is what a summary says of everything that was not examined.
func (r Report) unseen() []string {
	var lines []string
	for _, g := range r.Gaps() {
		lines = append(lines, g.String())
	}
	var none, open []string
	for _, c := range r.Clauses() {
		if c.Counts[Passed]+c.Counts[Failed] == 0 {
			none = append(none, c.Clause)
		}
	}
	for _, res := range r.Results {
		if res.Status == Inconclusive {
			open = append(open, res.ID)
		}
	}
	if len(none) > 0 {
		lines = append(lines, fmt.Sprintf("%s: not examined at all", strings.Join(none, ", ")))
	}
	if len(open) > 0 {
		lines = append(lines, fmt.Sprintf("inconclusive, so not examined: %s", strings.Join(open, ", ")))
	}
	if r.Interrupted > 0 {
		lines = append(lines, "interrupted: "+r.notRun())
	}
	if r.Left > 0 {
		were := "were"
		if r.Left == 1 {
			were = "was"
		}
		lines = append(lines, fmt.Sprintf("%s of the suite %s not chosen to run: what is protected there was not examined", plural(r.Left, "check"), were))
	}
	return lines
}
