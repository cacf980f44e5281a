package oracle

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// The words of the hand-made histories. Times are in milliseconds; the TTL is
// 100 ms, granted exactly, and the deadline is 1 ms before the lease ends.

func grant(client string, hold int, call, ret time.Duration, token int64) Event {
	return Event{Op: OpTry, Client: client, Name: "n", Hold: hold, Call: at(call), Return: at(ret), Outcome: OutcomeOK,
		TTL: 100 * ms, Fixed: true, Token: token, Deadline: (call + 99) * ms}
}

func renewed(e Event) Event { e.Fixed = false; return e }

func attempt(client string, hold int, call, ret time.Duration, o Outcome) Event {
	return Event{Op: OpTry, Client: client, Name: "n", Hold: hold, Call: at(call), Return: at(ret), Outcome: o, TTL: 100 * ms, Fixed: true}
}

func waits(e Event) Event { e.Op = OpLock; return e }

func unlock(client string, hold int, call, ret time.Duration, o Outcome, deadline time.Duration) Event {
	return Event{Op: OpUnlock, Client: client, Name: "n", Hold: hold, Call: at(call), Return: at(ret), Outcome: o, Deadline: deadline * ms}
}

func extend(client string, hold int, call, ret time.Duration, o Outcome, deadline time.Duration) Event {
	return Event{Op: OpExtend, Client: client, Name: "n", Hold: hold, Call: at(call), Return: at(ret), Outcome: o,
		TTL: 100 * ms, Deadline: deadline * ms}
}

func believes(client string, hold int, when time.Duration, o Outcome, deadline time.Duration) Event {
	return Event{Op: OpBelief, Client: client, Name: "n", Hold: hold, Call: at(when), Return: at(when), Outcome: o, Deadline: deadline * ms}
}

func at(n time.Duration) Stamp { return Stamp{At: n * ms} }

// handmade numbers the stamps by their time; at one time, a later event of the
// list comes later, and a return comes after the call.
func handmade(events ...Event) *History {
	var stamps []*Stamp
	for i := range events {
		stamps = append(stamps, &events[i].Call, &events[i].Return)
	}
	slices.SortStableFunc(stamps, func(a, b *Stamp) int { return cmp.Compare(a.At, b.At) })
	for i, s := range stamps {
		s.Seq = i + 1
	}
	return &History{Backend: "hand", Granularity: ms, ExpiryLag: 10 * ms, Events: events}
}

var innocent = map[string]*History{
	"one after the other": handmade(
		grant("A", 1, 0, 5, 1), believes("A", 1, 20, OutcomeOK, 99), unlock("A", 1, 20, 25, OutcomeOK, 99), grant("B", 2, 26, 30, 2)),
	"granted as the lease ends": handmade(
		grant("A", 1, 0, 5, 1), grant("B", 2, 95, 100, 2)),
	"held within the lag": handmade(
		grant("A", 1, 0, 5, 1), attempt("B", 2, 114, 120, OutcomeHeld)),
	"unlock without an answer frees the name": handmade(
		grant("A", 1, 0, 5, 1), unlock("A", 1, 10, 20, OutcomeUnknown, 99), grant("B", 2, 15, 18, 2)),
	"unlock without an answer does not": handmade(
		grant("A", 1, 0, 5, 1), unlock("A", 1, 10, 20, OutcomeUnknown, 99), attempt("B", 2, 50, 51, OutcomeHeld), grant("B", 3, 95, 101, 2)),
	"attempt without an answer holds": handmade(
		attempt("A", 1, 0, 5, OutcomeUnknown), attempt("B", 2, 50, 51, OutcomeHeld)),
	"attempt without an answer is undone": handmade(
		attempt("A", 1, 0, 5, OutcomeUnknown), grant("B", 2, 6, 7, 2)),
	"attempt without an answer takes effect late": handmade(
		grant("A", 1, 0, 5, 1), attempt("B", 2, 6, 9, OutcomeUnknown), unlock("A", 1, 20, 22, OutcomeOK, 99), attempt("C", 3, 30, 31, OutcomeHeld)),
	"lost after the deadline, before the end of the lease": handmade(
		grant("A", 1, 0, 5, 1), unlock("A", 1, 99, 99, OutcomeLost, 99), grant("B", 2, 99, 100, 2)),
	"extended by a request that arrives after its holder has given up": handmade(
		grant("A", 1, 0, 5, 1), extend("A", 1, 97, 99, OutcomeLost, 99), attempt("B", 2, 215, 216, OutcomeHeld)),
	"lost before the deadline, out of caution": handmade(
		grant("A", 1, 0, 5, 1), extend("A", 1, 90, 91, OutcomeLost, 99), attempt("B", 2, 92, 93, OutcomeHeld)),
	"unlocked twice, the second time long after": handmade(
		grant("A", 1, 0, 5, 1), unlock("A", 1, 10, 11, OutcomeOK, 99), grant("B", 2, 12, 13, 2), unlock("A", 1, 14, 15, OutcomeOK, 99),
		attempt("C", 3, 16, 17, OutcomeHeld)),
	"lost to another": handmade(
		grant("A", 1, 0, 5, 1), grant("B", 2, 100, 104, 2), extend("A", 1, 105, 106, OutcomeLost, 99), unlock("B", 2, 110, 111, OutcomeOK, 199)),
	"extended": handmade(
		grant("A", 1, 0, 5, 1), extend("A", 1, 80, 82, OutcomeOK, 179), attempt("B", 2, 150, 151, OutcomeHeld), grant("B", 3, 180, 181, 2)),
	"extended without an answer": handmade(
		grant("A", 1, 0, 5, 1), extend("A", 1, 80, 82, OutcomeUnknown, 99), attempt("B", 2, 170, 171, OutcomeHeld), grant("B", 3, 172, 181, 2)),
	"renewed in the background": handmade(
		renewed(grant("A", 1, 0, 5, 1)), attempt("B", 2, 500, 501, OutcomeHeld), believes("A", 1, 600, OutcomeOK, 690),
		unlock("A", 1, 600, 610, OutcomeOK, 690), grant("B", 3, 605, 609, 2)),
	"given up early by a holder that knows": handmade(
		renewed(grant("A", 1, 0, 5, 1)), believes("A", 1, 30, OutcomeOK, 130), believes("A", 1, 60, OutcomeLost, 130), grant("B", 2, 50, 59, 2)),
	"freed by Close, then unlocked": handmade(
		grant("A", 1, 0, 5, 1), believes("A", 1, 6, OutcomeOK, 99), grant("B", 2, 10, 12, 2), believes("A", 1, 12, OutcomeRefused, 99),
		unlock("A", 1, 13, 14, OutcomeOK, 99), attempt("C", 3, 15, 16, OutcomeHeld)),
	"held by another process": handmade(
		Event{Op: "child lock", Client: "child", Name: "n", Call: at(0), Return: at(5), Outcome: OutcomeOK, Token: 1},
		attempt("B", 1, 10, 11, OutcomeHeld)),
	"held by somebody in the queue": handmade(
		waits(grant("A", 1, 0, 50, 2)), grant("B", 2, 0, 5, 1), unlock("B", 2, 10, 20, OutcomeOK, 99), attempt("C", 3, 30, 31, OutcomeHeld)),
	"tokens of attempts that cross": handmade(
		grant("A", 1, 0, 50, 1), unlock("A", 1, 51, 52, OutcomeOK, 99), grant("B", 2, 40, 60, 7)),
	"stale holder stops at its deadline": handmade(
		grant("A", 1, 0, 5, 1), grant("B", 2, 100, 104, 2), believes("A", 1, 104, OutcomeLost, 99), believes("B", 2, 105, OutcomeOK, 199)),
}

var guilty = map[string]struct {
	h      *History
	oracle string
	clause string
	text   string
}{
	"granted before the end of the lease": {handmade(
		grant("A", 1, 0, 5, 1), grant("B", 2, 90, 99, 2)), "model", "H1", "before the lease of the holder can have ended"},
	"both believe": {handmade(
		grant("A", 1, 0, 5, 1), grant("B", 2, 10, 15, 2), believes("A", 1, 16, OutcomeOK, 99), believes("B", 2, 17, OutcomeOK, 109)),
		"interval", "H1", `A and B both held "n" from 15.000ms to 16.000ms`},
	"both believe, found through a third": {handmade(
		grant("A", 1, 0, 5, 1), grant("B", 2, 100, 105, 2), grant("C", 3, 106, 107, 3),
		believes("B", 2, 108, OutcomeOK, 199), believes("C", 3, 109, OutcomeOK, 205)), "interval", "H1", "B and C both held"},
	"an attempt without an answer excuses no double grant": {handmade(
		grant("A", 1, 0, 5, 1), attempt("B", 2, 6, 8, OutcomeUnknown), grant("C", 3, 10, 12, 2)), "model", "H1", "before the lease"},
	"a lost extension does not shorten": {handmade(
		grant("A", 1, 0, 5, 1), extend("A", 1, 50, 52, OutcomeUnknown, 99), grant("B", 2, 90, 95, 2)), "model", "H1", "before the lease"},
	"held though free": {handmade(
		grant("A", 1, 0, 5, 1), unlock("A", 1, 10, 12, OutcomeOK, 99), attempt("B", 2, 13, 14, OutcomeHeld)), "model", "A6", "which was free"},
	"held after the lease": {handmade(
		grant("A", 1, 0, 5, 1), attempt("B", 2, 150, 151, OutcomeHeld)), "model", "E1", "whose lease must have ended"},
	"unlocked what another had": {handmade(
		grant("A", 1, 0, 5, 1), grant("B", 2, 100, 101, 2), unlock("A", 1, 102, 103, OutcomeOK, 99)), "model", "H6", "somebody else had taken over"},
	"unlocked twice, freeing another's": {handmade(
		grant("A", 1, 0, 5, 1), unlock("A", 1, 10, 11, OutcomeOK, 99), grant("B", 2, 12, 13, 2), unlock("A", 1, 14, 15, OutcomeOK, 99),
		grant("C", 3, 16, 17, 3)), "model", "H1", "before the lease"},
	"extended after unlock": {handmade(
		grant("A", 1, 0, 5, 1), unlock("A", 1, 10, 11, OutcomeOK, 99), extend("A", 1, 12, 13, OutcomeOK, 112)), "model", "H5", "had been released"},
	"extended what another had": {handmade(
		grant("A", 1, 0, 5, 1), grant("B", 2, 100, 101, 2), extend("A", 1, 102, 103, OutcomeOK, 199)), "model", "H5", "somebody else had taken over"},
	"extended after the end": {handmade(
		grant("A", 1, 0, 5, 1), extend("A", 1, 150, 151, OutcomeOK, 250)), "model", "H5", "whose lease must have ended"},
	"held for longer than an extension after which its holder had given up": {handmade(
		grant("A", 1, 0, 5, 1), extend("A", 1, 97, 99, OutcomeLost, 99), attempt("B", 2, 240, 241, OutcomeHeld)), "model", "E1", "whose lease must have ended"},
	"lost though held": {handmade(
		grant("A", 1, 0, 5, 1), unlock("A", 1, 10, 11, OutcomeLost, 99)), "model", "H6", "which it still had"},
	"a lock renewed is taken away": {handmade(
		renewed(grant("A", 1, 0, 5, 1)), believes("A", 1, 300, OutcomeOK, 390), grant("B", 2, 310, 320, 2)), "model", "H1", "before the lease"},
	"token repeated": {handmade(
		grant("A", 1, 0, 5, 7), unlock("A", 1, 10, 11, OutcomeOK, 99), grant("B", 2, 12, 13, 7)), "token", "F1", "given out twice"},
	"token fell": {handmade(
		grant("A", 1, 0, 5, 7), unlock("A", 1, 10, 11, OutcomeOK, 99), grant("B", 2, 12, 13, 3)), "token", "F1", "fell from 7 to 3"},
	"token fell, says the model": {handmade(
		grant("A", 1, 0, 5, 7), unlock("A", 1, 10, 11, OutcomeOK, 99), grant("B", 2, 12, 13, 3)), "model", "F1", "not above the last"},
	"token is nothing": {handmade(grant("A", 1, 0, 5, 0)), "token", "F1", "greater than zero"},
	"believes after its deadline": {handmade(
		grant("A", 1, 0, 5, 1), believes("A", 1, 120, OutcomeOK, 99)), "deadline", "H4", "21ms after its own deadline"},
}

func TestJudge(t *testing.T) {
	for name, h := range innocent {
		if v := Judge(h); len(v.Findings) > 0 || v.Inconclusive != "" {
			t.Errorf("%s: accused: %+v", name, *v)
		}
	}
	for name, c := range guilty {
		v := Judge(c.h)
		if !slices.ContainsFunc(v.Findings, func(f Finding) bool {
			return f.Oracle == c.oracle && f.Clause == c.clause && strings.Contains(f.Text, c.text)
		}) {
			t.Errorf("%s: oracle %q does not say %q, but: %+v", name, c.oracle, c.text, v.Findings)
		}
	}
}

// TestJudgeOffline: a saved history gets the same verdict, and a picture.
func TestJudgeOffline(t *testing.T) {
	h := guilty["unlocked what another had"].h
	var file, page bytes.Buffer
	if _, err := h.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	back, err := ReadHistory(&file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h, back) {
		t.Fatalf("read back %+v, wrote %+v", back, h)
	}
	v, w := Judge(h), Judge(back)
	if !reflect.DeepEqual(v.Findings, w.Findings) {
		t.Errorf("judged %v, then %v", v.Findings, w.Findings)
	}
	if err := w.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "Unlock") {
		t.Errorf("the picture has %d bytes and does not show Unlock, error %v", page.Len(), err)
	}
	if _, err := ReadHistory(strings.NewReader("{\"backend\":\"x\"}\n{\"op\":7}")); err == nil || !strings.Contains(err.Error(), "event 1") {
		t.Errorf("a broken history reads with error %v", err)
	}
}

// TestJudgeGivesUp: where too many outcomes are unknown, the model says so, and in
// bounded time.
func TestJudgeGivesUp(t *testing.T) {
	var events []Event
	for i := range time.Duration(40) {
		events = append(events, attempt("A", int(i)+1, i, i+1, OutcomeUnknown))
	}
	events = append(events, grant("B", 99, 50, 51, 1), grant("C", 100, 52, 53, 2))
	v := Judge(handmade(events...))
	if v.Inconclusive == "" || len(v.Findings) != 0 {
		t.Errorf("verdict %+v, want an inconclusive one", *v)
	}
}
