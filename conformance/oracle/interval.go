package oracle

import (
	"fmt"
	"maps"
	"slices"
)

// belief is how long a holder has believed in its lock for certain.
//
// It ends at the last stamp at which Lock.Err was about to answer nil, not where the
// deadline lies or where a goroutine saw Done close: a holder that was stalled may
// have learned of its loss long before the goroutine that watches it ran. Too short an
// interval can only miss an overlap, never invent one.
type belief struct {
	grant    Event
	from, to Stamp
	proof    Event // the event that shows the belief at to
}

// beliefs collects the intervals of one name, by their start.
func beliefs(events []Event) []belief {
	holds := make(map[int]*belief)
	for _, e := range events {
		if e.acquires() && e.Outcome == OutcomeOK {
			holds[e.Hold] = &belief{grant: e, from: e.Return, to: e.Return}
		}
	}
	for _, e := range events {
		b := holds[e.Hold]
		if b == nil || e.Op != OpBelief || e.Outcome != OutcomeOK {
			continue
		}
		// H1: the belief ends at Deadline at the latest, whatever Err says.
		at := e.Call
		if end := (Stamp{At: e.Deadline}); end.before(at) {
			at = end
		}
		if b.to.before(at) {
			b.to, b.proof = at, e
		}
	}
	var all []belief
	for _, b := range holds {
		if b.from.before(b.to) {
			all = append(all, *b)
		}
	}
	slices.SortFunc(all, func(a, b belief) int {
		if a.from.before(b.from) {
			return -1
		}
		return 1
	})
	return all
}

// judgeIntervals finds two holders of one name at one instant (H1).
func judgeIntervals(h *History) []Finding {
	var found []Finding
	seen := make(map[string]bool)
	for _, f := range h.Overlaps() {
		if !seen[f.Name] { // one finding a name: what follows a double grant is noise
			seen[f.Name] = true
			found = append(found, f)
		}
	}
	return found
}

// Overlaps returns a Finding for each grant that came while another holder still
// believed that it had the name (H1), by name and in order.
func (h *History) Overlaps() []Finding {
	var found []Finding
	names := h.byName()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var last belief // of those so far, the one that lasted longest
		for i, next := range beliefs(names[name]) {
			if i > 0 && next.from.before(last.to) {
				found = append(found, Finding{"interval", "H1", name, overlapText(last, next)})
			}
			if i == 0 || last.to.before(next.to) {
				last = next
			}
		}
	}
	return found
}

func overlapText(a, b belief) string {
	end := a.to
	if b.to.before(end) {
		end = b.to
	}
	return fmt.Sprintf("two holders at once: %s and %s both held %q from %s to %s\n  %s\n    last seen to hold by %s\n  %s\n    last seen to hold by %s",
		a.grant.Client, b.grant.Client, a.grant.Name, b.from, end, a.grant, a.proof, b.grant, b.proof)
}

// judgeDeadlines finds a lock with a nil Err after its deadline (H4). The deadline was
// read after Err, and deadlines only move on, so the one that was in force when Err
// looked was no later.
func judgeDeadlines(h *History) []Finding {
	for _, e := range h.Events {
		if e.Op == OpBelief && e.Outcome == OutcomeOK && e.Call.At > e.Deadline {
			return []Finding{{"deadline", "H4", e.Name, fmt.Sprintf(
				"%s believed in its lock of %q %v after its own deadline: Err was nil when asked at %s, Deadline was %s",
				e.Client, e.Name, e.Call.At-e.Deadline, e.Call, millis(e.Deadline))}}
		}
	}
	return nil
}

// judgeTokens finds a grant without a higher token than an earlier grant, one that had
// returned before its call (F1). Grants that were in flight at the same time are
// compared for equality only.
func judgeTokens(h *History) []Finding {
	var found []Finding
	for name, events := range h.byName() {
		if text := tokenFault(events); text != "" {
			found = append(found, Finding{"token", "F1", name, text})
		}
	}
	return found
}

func tokenFault(events []Event) string {
	var grants []Event
	seen := make(map[int64]Event)
	for _, e := range events {
		if !e.acquires() || e.Outcome != OutcomeOK {
			continue
		}
		if e.Token <= 0 {
			return fmt.Sprintf("a token must be greater than zero:\n  %s", e)
		}
		if twin, ok := seen[e.Token]; ok {
			return fmt.Sprintf("token %d of %s was given out twice, to %s and to %s:\n  %s\n  %s", e.Token, Quote(e.Name), twin.Client, e.Client, twin, e)
		}
		seen[e.Token] = e
		grants = append(grants, e)
	}
	byReturn := slices.Clone(grants)
	slices.SortFunc(byReturn, func(a, b Event) int { return a.Return.Seq - b.Return.Seq })
	var top Event // the highest token of all grants that had returned
	for _, e := range grants {
		for len(byReturn) > 0 && byReturn[0].Return.before(e.Call) {
			if byReturn[0].Token > top.Token {
				top = byReturn[0]
			}
			byReturn = byReturn[1:]
		}
		if e.Token <= top.Token {
			return fmt.Sprintf("the token fell from %d to %d:\n  %s\n  %s", top.Token, e.Token, top, e)
		}
	}
	return ""
}
