package oracle

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model says what answers a lock with leases may give. A model of a mutex without
// time would reject every correct lease: an expiry is a step that no client takes. So
// each operation brings its own stamps along, and the state bounds the end of the
// current lease from both sides:
//
//   - a grant to another is possible if the operation returned at expMin or later,
//     for then it may have taken effect after the expiry;
//   - "held" is possible if the operation was called at expMax or earlier.
//
// Every comparison takes the stamp that favours the lock, so that a slow machine
// can hide a fault but not make one up.

// leaseState is what the store may hold of one name.
type leaseState struct {
	owner    int           // number of the hold; 0 means free
	expMin   time.Duration // the lease does not end before it, unless unlocked
	expMax   time.Duration // and has ended, lag included, after it
	maxToken int64
}

// leaseInput is a call, with what the whole history says of its hold.
type leaseInput struct {
	Event
	ret  time.Duration // forever, if the outcome is unknown
	life lifetime
}

const forever = time.Duration(math.MaxInt64)

// leaseModel steps through one name.
type leaseModel struct {
	h     *History
	steps int
}

// stepLimit bounds the search by work and not by time: the verdict on a history
// is then the same on every machine, and in virtual time, where time does not
// pass while the model thinks. It is about a second's worth; a clean history of
// 4,000 events takes some 10,000 steps.
const stepLimit = 500_000

// step returns the states that may follow, or the reason why there is none.
func (m *leaseModel) step(s leaseState, in leaseInput) ([]leaseState, string) {
	if m.steps++; m.steps > stepLimit {
		return nil, "the search was given up"
	}
	switch in.Op {
	case OpLock, OpTry:
		return m.acquire(s, in)
	case OpExtend:
		return m.extend(s, in)
	}
	return m.unlock(s, in)
}

// The reasons why an acquisition cannot have had its answer.
const (
	tooEarly       = "it was granted before the lease of the holder can have ended"
	tokenFell      = "its token is not above the last one"
	heldThoughFree = "it was told that the name is held, which was free"
	heldTooLong    = "it was told that the name is held, whose lease must have ended"
)

func (m *leaseModel) acquire(s leaseState, in leaseInput) ([]leaseState, string) {
	switch in.Outcome {
	case OutcomeOK:
		if s.owner != 0 && in.ret < s.expMin {
			return nil, tooEarly
		}
		if in.Token <= s.maxToken {
			return nil, tokenFell
		}
		return []leaseState{{in.Hold, m.leaseEnd(in, in.TTL), m.leaseLimit(in), in.Token}}, ""
	case OutcomeHeld:
		if s.owner == 0 {
			return nil, heldThoughFree
		}
		if in.Call.At > s.expMax {
			return nil, heldTooLong
		}
		return []leaseState{s}, ""
	}
	// Unknown: it may have been refused, or granted at any time that the rules
	// allow, to be undone at any time after. It cannot have cut another's lease
	// short, so the bound on that one stays: without it an unknown attempt would
	// excuse any double grant after it.
	won := leaseState{in.Hold, max(in.Call.At, s.expMin), forever, s.maxToken}
	return []leaseState{s, won}, ""
}

func (m *leaseModel) extend(s leaseState, in leaseInput) ([]leaseState, string) {
	mine := s.owner == in.Hold
	switch in.Outcome {
	case OutcomeOK:
		if reason := m.alive(s, in); reason != "" {
			return nil, reason
		}
		ttl := in.TTL
		if m.h.MaxExtend > 0 && in.life.until > 0 {
			ttl = min(ttl, time.Duration(m.h.MaxExtend*float64(in.life.ttl))) // a renewed lock gets the most that there is (E2)
		}
		s.expMin = max(s.expMin, m.leaseEnd(in, ttl))
		s.expMax = max(s.expMax, in.ret+m.h.granted(in.TTL)+m.h.ExpiryLag)
	case OutcomeLost:
		if mine && s.expMax < forever {
			// It may be carried out all the same, be it after the holder has given up and
			// the call has returned, but not after the end of the lease.
			s.expMax += m.h.granted(in.TTL)
		}
		return m.lost(s, in)
	case OutcomeUnknown:
		if mine {
			s.expMax = forever
		}
	}
	return []leaseState{s}, ""
}

func (m *leaseModel) unlock(s leaseState, in leaseInput) ([]leaseState, string) {
	mine := s.owner == in.Hold
	switch in.Outcome {
	case OutcomeOK:
		if reason := m.alive(s, in); reason != "" {
			return nil, reason
		}
		s.owner, s.expMin, s.expMax = 0, 0, 0
	case OutcomeLost:
		return m.lost(s, in)
	case OutcomeUnknown:
		// The release goes on in the background, so the name may be free from
		// the call on, or stay held until the lease ends.
		if mine {
			s.expMin = min(s.expMin, in.Call.At)
		}
	}
	return []leaseState{s}, ""
}

// alive says why an operation of the holder cannot have succeeded.
func (m *leaseModel) alive(s leaseState, in leaseInput) string {
	switch {
	case s.owner == 0:
		return "it succeeded on a lock that had been released"
	case s.owner != in.Hold:
		return "it succeeded on a lock that somebody else had taken over"
	case in.Call.At > s.expMax:
		return "it succeeded on a lock whose lease must have ended"
	}
	return ""
}

// lost steps over an ErrLost. A holder may also say so because it has given up by
// itself, at its deadline at the latest but out of caution also some time before; and
// what was given up may be freed. In the first half of its lease, however, a lock held
// in the store, and held for its holder right before the call, cannot turn out to be
// lost.
func (m *leaseModel) lost(s leaseState, in leaseInput) ([]leaseState, string) {
	if s.owner != in.Hold {
		return []leaseState{s}, ""
	}
	if in.ret < min(s.expMin, in.Deadline-in.life.ttl/2) {
		return nil, "it was told that the lock is lost, which it still had"
	}
	s.expMin = min(s.expMin, in.Call.At)
	return []leaseState{s}, ""
}

// leaseEnd returns the earliest instant for the store to drop the lease: a TTL after
// the call (E1), and not before the deadline that the holder was told (H3). A loss
// that the holder saw before that ends the promise.
func (m *leaseModel) leaseEnd(in leaseInput, ttl time.Duration) time.Duration {
	end := max(in.Call.At+ttl, in.Deadline, in.life.until)
	if in.life.given >= 0 {
		end = min(end, in.life.given)
	}
	return end
}

// leaseLimit returns the latest instant for the store to say "held" if the holder does
// nothing more.
func (m *leaseModel) leaseLimit(in leaseInput) time.Duration {
	if !in.Fixed {
		return forever // renewed in the background, unseen
	}
	// More may have been granted than what rounding explains. The deadline shows it,
	// less a safety margin, taken for a tenth here (package driver has a hundredth).
	seen := (in.Deadline - in.Call.At) * 10 / 9
	return in.ret + max(m.h.granted(in.TTL), seen) + m.h.ExpiryLag
}

// porcupine returns the model as the checker wants it.
func (m *leaseModel) porcupine() porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{leaseState{}} },
		Step: func(state, input, _ any) []any {
			var out []any
			states, _ := m.step(state.(leaseState), input.(leaseInput))
			for _, s := range states {
				out = append(out, s)
			}
			return out
		},
		Hash: func(state any) uint64 {
			s := state.(leaseState)
			return uint64(s.owner)*0x9e3779b97f4a7c15 ^ uint64(s.expMin)*0xbf58476d1ce4e5b9 ^
				uint64(s.expMax)*0x94d049bb133111eb ^ uint64(s.maxToken)
		},
		DescribeOperation: func(input, _ any) string { return input.(leaseInput).Event.String() },
		DescribeState:     func(state any) string { return state.(leaseState).String() },
	}
	return nm.ToModel()
}

// String says in words what the store may hold.
func (s leaseState) String() string {
	if s.owner == 0 {
		return fmt.Sprintf("free, last token %d", s.maxToken)
	}
	limit := "open"
	if s.expMax != forever {
		limit = millis(s.expMax)
	}
	return fmt.Sprintf("held by acquisition %d, its lease ends between %s and %s, last token %d",
		s.owner, millis(s.expMin), limit, s.maxToken)
}
