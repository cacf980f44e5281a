package conformance

import (
	"fmt"
	"slices"
)

// outcome is what came of one scene.
type outcome string

const (
	passedBy   outcome = "B had the name in between"
	toldBefore outcome = "A needed no more for its answer"
	blocked    outcome = "A kept B from going on"
	notReached outcome = "A had none"
)

// tellOutcomes logs which requests had which outcome, after text. The check is inconclusive if B has never passed A.
func (c *C) tellOutcomes(text string, seen map[outcome][]int) {
	for _, o := range []outcome{passedBy, toldBefore, blocked, notReached} {
		if ks := seen[o]; len(ks) > 0 {
			slices.Sort(ks)
			text += fmt.Sprintf("; %s: %v", o, ks)
		}
	}
	c.Logf("%s", text)
	if len(seen[passedBy]) == 0 {
		c.Inconclusivef("A could not be stopped, nor B pass it: %s", text)
	}
}

// over lets A end its operation, and ends what A holds.
func (s *pairScene) over(o outcome) outcome {
	s.gate.release()
	s.gate.heal()
	if !s.c.within(s.told, patience+s.c.Slack()) {
		s.c.breach("A4", "%s by A has not returned %v after A could go on", s.op.what, patience)
	}
	for _, h := range []*lease{s.held, s.got} {
		if h != nil {
			_ = h.unlock() // ErrLost where it was
		}
	}
	return o
}
