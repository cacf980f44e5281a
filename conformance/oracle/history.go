package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

// Op says what an Event of a History was.
type Op string

// The kinds of events.
const (
	OpLock   Op = "Lock"
	OpTry    Op = "TryLock"
	OpExtend Op = "Extend"
	OpUnlock Op = "Unlock"
	// OpBelief is a look at Lock.Err: right after a grant, when a rival has been
	// granted the name, and right before Extend and Unlock. It is what the interval
	// oracle lives by: if Err was nil at a stamp, the lock was believed held from its
	// grant up to that stamp, whatever came later.
	OpBelief Op = "Err"
)

// Outcome is what an operation answered, as far as the answer can be trusted.
type Outcome string

// The outcomes. Only Held and Lost are definite refusals: after any other error
// the store may have done what was asked, now or later.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeHeld    Outcome = "held"
	OutcomeLost    Outcome = "lost"
	OutcomeUnknown Outcome = "unknown"
	OutcomeRefused Outcome = "refused" // by an argument or the handle's own state: no request was sent
)

// Stamp is an instant on the one monotonic clock of a History. Stamps of the same
// reading of the clock, as in virtual time, are told apart by Seq: it rises with every
// stamp.
type Stamp struct {
	At  time.Duration `json:"at"`
	Seq int           `json:"seq"`
}

// before reports whether s was taken before t.
func (s Stamp) before(t Stamp) bool {
	return s.At < t.At || s.At == t.At && s.Seq < t.Seq
}

// String prints the instant in milliseconds.
func (s Stamp) String() string { return millis(s.At) }

// millis prints a duration the way all messages of the oracles do: two stamps of
// one message must be comparable at a glance.
func millis(d time.Duration) string {
	return fmt.Sprintf("%.3fms", float64(d)/float64(time.Millisecond))
}

// Event is one operation on a lock and what it answered.
type Event struct {
	Op      Op      `json:"op"`
	Client  string  `json:"client"`
	Name    string  `json:"name"`
	Hold    int     `json:"hold"` // number of the acquisition that the event belongs to
	Call    Stamp   `json:"call"`
	Return  Stamp   `json:"return"`
	Outcome Outcome `json:"outcome"`
	Err     string  `json:"err,omitempty"`

	TTL   time.Duration `json:"ttl,omitempty"`   // asked for, by Lock, TryLock and Extend
	Fixed bool          `json:"fixed,omitempty"` // NoRenewal
	Token int64         `json:"token,omitempty"`

	// Deadline is the lock's, on the clock of the stamps: after the call, except
	// for Unlock, where it was read before.
	Deadline time.Duration `json:"deadline,omitempty"`
}

// String describes the event in one line, for messages and visualisations.
func (e Event) String() string {
	s := fmt.Sprintf("%s %s(%s) [%s, %s]", e.Client, e.Op, Quote(e.Name), e.Call, e.Return)
	if e.TTL > 0 {
		s += fmt.Sprintf(" ttl %v", e.TTL)
	}
	if e.Token != 0 {
		s += fmt.Sprintf(" token %d", e.Token)
	}
	if e.Deadline != 0 {
		s += fmt.Sprintf(" deadline %s", millis(e.Deadline))
	}
	s += " = " + string(e.Outcome)
	if e.Err != "" {
		s += fmt.Sprintf(" (%s)", e.Err)
	}
	return s
}

// Quote quotes a name as messages do: of a long one the beginning and the end.
func Quote(name string) string {
	const head, tail = 40, 12
	if len(name) <= head+tail {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q…%q of %d bytes", name[:head], name[len(name)-tail:], len(name))
}

// acquires reports whether e is an acquisition, of whatever outcome.
func (e Event) acquires() bool { return e.Op == OpLock || e.Op == OpTry }

// foreign reports whether e is none of the operations that the model knows, such as
// one of a child process: it could not follow the lock there.
func (e Event) foreign() bool {
	switch e.Op {
	case OpLock, OpTry, OpExtend, OpUnlock, OpBelief:
		return false
	}
	return true
}

// History is what clients did to locks on one backend, with all that Judge needs
// to know of the backend. It can be saved, and judged again later by newer
// oracles.
type History struct {
	Backend     string        `json:"backend"`
	Seed        uint64        `json:"seed"`
	Granularity time.Duration `json:"granularity"` // TTLs are rounded up to a multiple of it
	MinTTL      time.Duration `json:"min_ttl"`     // and to this at least
	ExpiryLag   time.Duration `json:"expiry_lag"`
	MaxExtend   float64       `json:"max_extend,omitempty"` // how many times its TTL Extend gives a renewed lock at the most; 0 is no bound
	Events      []Event       `json:"events"`
}

// WriteTo writes the history as JSON, one event to a line.
func (h *History) WriteTo(w io.Writer) (int64, error) {
	events := h.Events
	head := *h
	head.Events = nil
	b, err := json.Marshal(head)
	if err != nil {
		return 0, err
	}
	out := append(b, '\n')
	for _, e := range events {
		if b, err = json.Marshal(e); err != nil {
			return 0, err
		}
		out = append(append(out, b...), '\n')
	}
	n, err := w.Write(out)
	return int64(n), err
}

// ReadHistory reads what WriteTo has written.
func ReadHistory(r io.Reader) (*History, error) {
	dec := json.NewDecoder(r)
	h := new(History)
	if err := dec.Decode(h); err != nil {
		return nil, fmt.Errorf("oracle: not the head of a history: %w", err)
	}
	for {
		var e Event
		err := dec.Decode(&e)
		if err == io.EOF {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("oracle: event %d of a history: %w", len(h.Events)+1, err)
		}
		h.Events = append(h.Events, e)
	}
}

// classify sorts the answer of an operation. The rule errs toward unknown: that
// excuses everything that the request could have done.
func classify(op Op, err error) Outcome {
	inTime := !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	switch {
	case err == nil:
		return OutcomeOK
	case errors.Is(err, distlock.ErrInvalid), errors.Is(err, distlock.ErrUnlocked), errors.Is(err, distlock.ErrUnsupported):
		return OutcomeRefused
	case op == OpTry && errors.Is(err, distlock.ErrHeld) && inTime:
		return OutcomeHeld
	case op != OpLock && op != OpTry && errors.Is(err, distlock.ErrLost):
		return OutcomeLost
	}
	return OutcomeUnknown
}

// byName splits the events by the name of the lock, in order of their calls.
func (h *History) byName() map[string][]Event {
	names := make(map[string][]Event)
	for _, e := range h.Events {
		names[e.Name] = append(names[e.Name], e)
	}
	for _, events := range names {
		slices.SortStableFunc(events, func(a, b Event) int {
			if a.Call.before(b.Call) {
				return -1
			}
			if b.Call.before(a.Call) {
				return 1
			}
			return 0
		})
	}
	return names
}

// granted returns what a driver may have made of a TTL that was asked for, at the
// most (E2): more by its granularity.
func (h *History) granted(ttl time.Duration) time.Duration {
	return max(ttl, h.MinTTL) + h.Granularity
}
