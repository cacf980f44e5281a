package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock/conformance/oracle"
)

// Status is what came of a check.
type Status string

// The four outcomes of a check.
const (
	Passed       Status = "passed"
	Failed       Status = "failed"       // the driver has broken the rule
	Skipped      Status = "skipped"      // a capability that it needs is absent
	Inconclusive Status = "inconclusive" // the machine was too slow to tell
)

// Result is what came of one check.
type Result struct {
	ID        string `json:"id"`
	Clause    string `json:"clause"` // that was broken, or else the one that the check protects
	Rule      string `json:"rule"`
	Mandatory bool   `json:"mandatory"`
	Status    Status `json:"status"`

	Reason    string        `json:"reason,omitempty"`    // why it did not pass
	Missing   Cap           `json:"missing,omitempty"`   // the capability for want of which it was skipped
	Timeline  []string      `json:"timeline,omitempty"`  // what the clients did, in order
	Log       []string      `json:"log,omitempty"`       // what else is worth knowing
	Setting   string        `json:"setting,omitempty"`   // unit, slack and seed it ran with
	Rerun     string        `json:"rerun,omitempty"`     // how to run it again
	Alike     []string      `json:"alike,omitempty"`     // IDs of later checks that failed in the same way
	Artifacts []string      `json:"artifacts,omitempty"` // files with the history
	Took      time.Duration `json:"took"`
	Attempts  int           `json:"attempts"` // more than 1 if it was inconclusive before
	Fired     int           `json:"fired"`    // how often a fault took effect
}

// Text is what a driver's author needs to know of a check that did not pass, over
// several lines.
func (r Result) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s (clause %s)\n", r.ID, r.Status, r.Clause)
	section(&b, "rule", r.Rule)
	section(&b, "seen", r.Reason)
	if n := len(r.Alike); n > 0 {
		section(&b, "alike", fmt.Sprintf("%s failed in the same way: %s", plural(n, "other"), strings.Join(r.Alike, ", ")))
	}
	section(&b, "timeline", r.Timeline...)
	section(&b, "log", r.Log...)
	section(&b, "setting", r.Setting)
	section(&b, "history", r.Artifacts...)
	section(&b, "rerun", r.Rerun)
	return strings.TrimSuffix(b.String(), "\n")
}

func section(b *strings.Builder, title string, lines ...string) {
	text := strings.TrimSpace(strings.Join(lines, "\n"))
	if text == "" {
		return
	}
	fmt.Fprintf(b, "  %-9s %s\n", title+":", strings.ReplaceAll(text, "\n", "\n            "))
}

// Bound is one bound of Timing and how near the driver came to it. The lag of an
// expiry is what is proven: how long after the end of a lease a probe was sent that
// was told "held". The others are what was measured, and may exceed the bound by the
// machine's slack.
type Bound struct {
	Name     string        `json:"name"`
	Declared time.Duration `json:"declared"`
	Worst    time.Duration `json:"worst"`
	Seen     bool          `json:"seen"` // false if no check has put it to the test
}

// Report is the outcome of an examination.
type Report struct {
	Backend     string      `json:"backend"`
	Caps        string      `json:"capabilities"`
	Timing      Timing      `json:"timing"`
	Calibration Calibration `json:"calibration"`
	Seed        uint64      `json:"seed"`
	Started     time.Time   `json:"started"`

	Took    time.Duration `json:"took"`
	Results []Result      `json:"results"` // in the order of the table
	Left    int           `json:"left"`    // how many checks of the suite were not chosen to run

	// Interrupted is how many chosen checks did not run, because the context of the examination has ended.
	Interrupted int     `json:"interrupted"`
	Bounds      []Bound `json:"bounds"`

	// Trouble says why machine and server could not be measured beforehand; the
	// checks ran all the same.
	Trouble string `json:"trouble,omitempty"`

	// Outage is what Options.Look has told.
	Outage Outage `json:"-"`
}

// OK reports whether no check has failed. It says nothing of how many were skipped
// or inconclusive: see Count.
func (r Report) OK() bool { return r.Count(Failed) == 0 }

// Count returns how many checks have ended with this status.
func (r Report) Count(s Status) int {
	n := 0
	for _, res := range r.Results {
		if res.Status == s {
			n++
		}
	}
	return n
}

// Result returns the result of one check.
func (r Report) Result(id string) (Result, bool) {
	i := slices.IndexFunc(r.Results, func(res Result) bool { return res.ID == id })
	if i < 0 {
		return Result{}, false
	}
	return r.Results[i], true
}

// Clause is what the checks say of one clause of the contract.
type Clause struct {
	Clause string         `json:"clause"`
	Counts map[Status]int `json:"counts"`
	Failed []string       `json:"failed,omitempty"` // IDs
}

// Clauses sums the results up by clause, in the order of the contract.
func (r Report) Clauses() []Clause {
	var list []Clause
	for _, res := range r.Results {
		i := slices.IndexFunc(list, func(c Clause) bool { return c.Clause == res.Clause })
		if i < 0 {
			i = len(list)
			list = append(list, Clause{Clause: res.Clause, Counts: make(map[Status]int)})
		}
		list[i].Counts[res.Status]++
		if res.Status == Failed {
			list[i].Failed = append(list[i].Failed, res.ID)
		}
	}
	slices.SortStableFunc(list, func(a, b Clause) int { return byContract(a.Clause, b.Clause) })
	return list
}

// Summary is the last word of an examination, in a few lines: counts, bounds that
// were approached, what it ran with, and which clauses were not examined.
func (r Report) Summary() string {
	fired := 0
	for _, res := range r.Results {
		fired += res.Fired
	}
	var b strings.Builder
	fmt.Fprintf(&b, "conformance: %s: %d passed, %d failed, %d skipped, %d inconclusive; fault fired %s; %v, %s, seed %d",
		r.Backend, r.Count(Passed), r.Count(Failed), r.Count(Skipped), r.Count(Inconclusive), plural(fired, "time"),
		r.Took.Round(time.Millisecond), r.Calibration, r.Seed)
	if first := r.readFirst(); first != "" {
		fmt.Fprintf(&b, "\n  read first: %s", first)
	}
	for _, bound := range r.Bounds {
		if bound.Seen {
			fmt.Fprintf(&b, "\n  %s: declared %v, worst seen %v", bound.Name, bound.Declared, bound.Worst.Round(time.Microsecond))
			if bound.Worst > bound.Declared {
				fmt.Fprintf(&b, " (%v more are allowed, for the machine)", r.Calibration.Slack.Round(time.Millisecond))
			}
		}
	}
	for _, res := range r.Results {
		if n := len(res.Alike); n > 0 {
			fmt.Fprintf(&b, "\n  %s: %s failed in the same way: %s", res.ID, plural(n, "other"), strings.Join(res.Alike, ", "))
		}
	}
	for _, why := range r.skips() {
		fmt.Fprintf(&b, "\n  skipped: %s", why)
	}
	for _, gap := range r.unseen() {
		fmt.Fprintf(&b, "\n  %s", gap)
	}
	if r.Trouble != "" {
		fmt.Fprintf(&b, "\n  %s", r.Trouble)
	}
	return b.String()
}

// nearest are the checks, or groups of them, that say what is wrong, where later ones see
// what follows from it: that a name is taken, kept from others and freed; that only its
// owner frees it; that each step is safe if another client comes between. Two clients
// that race, as in the rest of core/, after/ and stress/, see only that both hold.
var nearest = []string{"meta/", "core/acquire-release", "core/exclusive", "owner/", "pair/", "core/", ""}

// readFirst returns the ID of the failure that is nearest to the cause of the others, or
// "" if there are no others.
func (r Report) readFirst() string {
	if r.Count(Failed) < 2 {
		return ""
	}
	for _, beginning := range nearest {
		for _, res := range r.Results {
			if res.Status == Failed && strings.HasPrefix(res.ID, beginning) {
				return res.ID
			}
		}
	}
	return ""
}

// report gathers the results.
func (s *suite) report(done []Result) Report {
	markAlike(done)
	ran := make(map[string]bool)
	for _, r := range done {
		ran[r.ID] = true
	}
	left, cut := 0, 0
	chosen := func(id string) bool { return slices.ContainsFunc(s.checks, func(k Check) bool { return k.ID == id }) }
	for _, k := range Checks() {
		switch {
		case ran[k.ID]:
		case s.ctx.Err() != nil && chosen(k.ID):
			cut++
		default:
			left++
		}
	}
	return Report{
		Backend: s.caps.Backend, Caps: s.caps.String(), Timing: s.timing, Calibration: s.Calibration,
		Seed: s.opts.Seed, Started: s.started, Took: time.Since(s.started),
		Results: done, Left: left, Interrupted: cut, Bounds: s.bounds.list(s.timing), Trouble: s.trouble,
		Outage: s.outages.outage(),
	}
}

// maxTimeline bounds the printed lines; the file has all operations.
const maxTimeline = 40

// result turns a check that has ended into its result.
func (s *suite) result(c *C) Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := Result{
		ID: c.check.ID, Clause: c.check.Clause, Rule: c.check.Rule, Mandatory: c.check.Mandatory,
		Status: c.status, Reason: c.shorten(c.reason), Missing: c.missing, Log: c.shortenAll(c.logs),
	}
	if r.Status == Failed {
		r.Clause = c.blamed()
	}
	for _, p := range c.clients {
		if p.link != nil {
			r.Fired += p.link.Fired()
		}
	}
	if r.Status == "" {
		r.Status = Passed
	}
	if r.Status == Failed && s.ctx.Err() != nil {
		r.Status, r.Reason = Inconclusive, "the examination was interrupted: "+r.Reason
	}
	if r.Status == Passed || r.Status == Skipped {
		return r
	}
	h := c.recorder.History()
	r.Timeline = c.shortenAll(timeline(concerned(h.Events, r.Reason)))
	r.Setting = fmt.Sprintf("%s; seed %d", c.cal, c.seed)
	r.Rerun = s.rerun(r.ID)
	if r.Status == Failed && len(h.Events) > 0 {
		r.Artifacts = s.save(r.ID, h)
	}
	return r
}

// concerned leaves the events on those names that a reason quotes, or all if it
// quotes none.
func concerned(events []oracle.Event, reason string) (kept []oracle.Event, others int) {
	for _, e := range events {
		if strings.Contains(reason, oracle.Quote(e.Name)) {
			kept = append(kept, e)
		}
	}
	if len(kept) == 0 {
		return events, 0
	}
	return kept, len(events) - len(kept)
}

// timeline describes what happened. Of events that only repeat each other, as when
// a client polls, the first and the last are shown; of very many, the middle is
// left out.
func timeline(events []oracle.Event, others int) []string {
	slices.SortStableFunc(events, func(a, b oracle.Event) int { return a.Call.Seq - b.Call.Seq })
	var lines []string
	for i := 0; i < len(events); {
		same := 1
		for i+same < len(events) && repeats(events[i+same], events[i]) {
			same++
		}
		lines = append(lines, events[i].String())
		if same > 2 {
			lines = append(lines, fmt.Sprintf("  … %d more with this outcome …", same-2))
		}
		if same > 1 {
			lines = append(lines, events[i+same-1].String())
		}
		i += same
	}
	if cut := len(lines) - maxTimeline; cut > 0 {
		const head = maxTimeline / 4
		lines = slices.Replace(lines, head, head+cut, fmt.Sprintf("… %d more lines …", cut))
	}
	if others > 0 {
		lines = append(lines, fmt.Sprintf("(and %d operations on other names, which are in the history)", others))
	}
	return lines
}

// repeats reports whether e is the same operation as f, with the same outcome, but
// for the time.
func repeats(e, f oracle.Event) bool {
	return e.Client == f.Client && e.Op == f.Op && e.Name == f.Name && e.Outcome == f.Outcome && e.Outcome != oracle.OutcomeOK
}

// save writes the history of a failed check to files, and returns their names, or
// why there are none.
func (s *suite) save(id string, h *oracle.History) []string {
	dir, err := s.artifacts()
	if err != nil {
		return []string{fmt.Sprintf("not saved: %v", err)}
	}
	base := filepath.Join(dir, strings.ReplaceAll(id, "/", "-"))
	var b, html strings.Builder
	_, _ = h.WriteTo(&b)                 // a Builder cannot fail
	_ = oracle.Judge(h).WriteHTML(&html) // likewise
	names := []string{base + ".jsonl"}
	if err := os.WriteFile(names[0], []byte(b.String()), 0o600); err != nil {
		return []string{fmt.Sprintf("not saved: %v", err)}
	}
	if html.Len() > 0 {
		if err := os.WriteFile(base+".html", []byte(html.String()), 0o600); err == nil {
			names = append(names, base+".html")
		}
	}
	return names
}

// plural is a count with what is counted.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
