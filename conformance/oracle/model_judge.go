package oracle

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// judgeModel checks every name of the history and adds what it finds to v.
func judgeModel(h *History, v *Verdict) {
	names := h.byName()
	var found []Finding
	defer func() { v.add(found) }()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		m := &leaseModel{h: h}
		ops := m.operations(names[name])
		if len(ops) == 0 || slices.ContainsFunc(names[name], Event.foreign) {
			continue
		}
		model := m.porcupine()
		result, info := porcupine.CheckOperationsVerbose(model, ops, 0)
		gaveUp, illegal := m.steps > stepLimit, false
		if gaveUp {
			v.Inconclusive = fmt.Sprintf("the model gave up on %q after %d steps over %d operations: too many unknown outcomes at a time",
				name, stepLimit, len(ops))
		} else if illegal = result == porcupine.Illegal; illegal {
			clause, text := m.explain(ops, info)
			found = append(found, Finding{"model", clause, name, text})
		}
		// The picture is of the first name at fault, or of any if none is.
		if v.html == nil || illegal && len(found) == 1 {
			v.html = func(w io.Writer) error {
				m.steps = 0 // the picture replays the model
				return porcupine.Visualize(model, info, w)
			}
		}
	}
}

// operations turns the events of one name into what the checker takes. It is
// given the order of the stamps in place of their time: they say the same, but
// the order also tells events apart that fell on one reading of the clock.
func (m *leaseModel) operations(events []Event) []porcupine.Operation {
	lives := lifetimes(events)
	end := 0
	for _, e := range events {
		end = max(end, e.Return.Seq+1)
	}
	lanes := make(map[string][]int) // by client: until when each of its lines is taken
	ids := make(map[string]int)     // of client and lane
	var ops []porcupine.Operation
	unlocked := make(map[int]bool)
	for _, e := range events {
		if e.Op == OpBelief || e.Outcome == OutcomeRefused {
			continue
		}
		if e.Op == OpUnlock {
			// One that comes after another, or after Close, repeats the answer
			// of that and does nothing.
			if unlocked[e.Hold] || lives[e.Hold].closed {
				continue
			}
			unlocked[e.Hold] = true
		}
		if excused(e, events) {
			continue
		}
		in := leaseInput{Event: e, ret: e.Return.At, life: lives[e.Hold]}
		ret := e.Return.Seq
		if e.Outcome == OutcomeUnknown {
			in.ret, ret = forever, end
		}
		lane := 0
		for lane < len(lanes[e.Client]) && lanes[e.Client][lane] >= e.Call.Seq {
			lane++
		}
		if lane == len(lanes[e.Client]) {
			lanes[e.Client] = append(lanes[e.Client], 0)
		}
		lanes[e.Client][lane] = ret
		key := fmt.Sprint(e.Client, "/", lane)
		if _, ok := ids[key]; !ok {
			ids[key] = len(ids)
		}
		ops = append(ops, porcupine.Operation{ClientId: ids[key], Input: in, Call: int64(e.Call.Seq), Return: int64(ret)})
	}
	return ops
}

// excused reports whether "held" may have been the answer to e although nobody
// held the name: somebody else was about to take it or stood in the queue for it.
// Such an answer is always right, changes nothing and need not be explained.
func excused(e Event, events []Event) bool {
	if e.Outcome != OutcomeHeld {
		return false
	}
	for _, o := range events {
		if e.Return.before(o.Call) {
			return false // as do all that follow
		}
		if o.acquires() && o.Hold != e.Hold && o.Call.before(e.Return) && e.Call.before(o.Return) {
			return true
		}
	}
	return false
}

// explain names an operation that no order of the others can explain: the one that
// returned first among those outside of the longest explanation. The clause is the one
// that its answer breaks.
func (m *leaseModel) explain(ops []porcupine.Operation, info porcupine.LinearizationInfo) (clause, text string) {
	var longest []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	m.steps = 0
	states := map[leaseState]bool{{}: true}
	explained := make(map[int64]bool)
	for _, op := range longest {
		next := make(map[leaseState]bool)
		for s := range states {
			after, _ := m.step(s, op.Input.(leaseInput))
			for _, s := range after {
				next[s] = true
			}
		}
		states = next
		explained[op.Call] = true
	}
	var culprit *porcupine.Operation
	for i := range ops {
		if !explained[ops[i].Call] && (culprit == nil || ops[i].Return < culprit.Return) {
			culprit = &ops[i]
		}
	}
	if culprit == nil {
		return "H1", "the model rejects the history" // cannot be: the longest explanation would be complete
	}
	in := culprit.Input.(leaseInput)
	var b strings.Builder
	fmt.Fprintf(&b, "impossible answer: %s", in.Event)
	for s := range states {
		if _, reason := m.step(s, in); reason != "" {
			clause = broken(in.Op, reason)
			fmt.Fprintf(&b, "\n  %s: %s", reason, s)
		}
	}
	b.WriteString("\n  what led there:")
	for _, op := range longest[max(0, len(longest)-4):] {
		fmt.Fprintf(&b, "\n    %s", op.Input.(leaseInput).Event)
	}
	return cmp.Or(clause, "H1"), b.String()
}

// broken returns the clause that an impossible answer breaks.
func broken(op Op, reason string) string {
	switch {
	case reason == tooEarly:
		return "H1"
	case reason == tokenFell:
		return "F1"
	case reason == heldThoughFree:
		return "A6"
	case reason == heldTooLong:
		return "E1"
	case op == OpUnlock:
		return "H6"
	}
	return "H5"
}
