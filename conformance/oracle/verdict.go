package oracle

import "io"

// Finding is one thing that a correct lock cannot have done.
type Finding struct {
	Oracle string `json:"oracle"` // "interval", "deadline", "token" or "model"
	Clause string `json:"clause"` // of the contract, that was broken
	Name   string `json:"name"`   // of the lock
	Text   string `json:"text"`
}

// Verdict is what the oracles say of a History. It is innocent without findings.
type Verdict struct {
	Findings []Finding `json:"findings,omitempty"`

	// Inconclusive says why an oracle could not decide; empty if all could.
	Inconclusive string `json:"inconclusive,omitempty"`

	html func(io.Writer) error
}

// WriteHTML writes a picture of the history. One can step through the longest
// explanation that the model found. It does nothing if there is no picture, because
// the model had nothing to judge.
func (v *Verdict) WriteHTML(w io.Writer) error {
	if v.html == nil {
		return nil
	}
	return v.html(w)
}

// Judge asks the oracles about a history: the intervals of belief, the deadlines and
// the order of the tokens, and then the model: it also knows what answers were
// possible. The messages of the first three name the clients.
func Judge(h *History) *Verdict {
	v := JudgeRules(h)
	judgeModel(h, v)
	return v
}

// JudgeRules is Judge without the model, for a history with so much at a time that the
// search of the model would be given up.
func JudgeRules(h *History) *Verdict {
	v := new(Verdict)
	v.add(judgeIntervals(h))
	v.add(judgeDeadlines(h))
	v.add(judgeTokens(h))
	return v
}

// maxFindings is how many findings of one oracle are kept: a flaw that shows on a
// hundred names is understood from two.
const maxFindings = 2

func (v *Verdict) add(found []Finding) {
	v.Findings = append(v.Findings, found[:min(len(found), maxFindings)]...)
}
