package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

// manner is a way to hold a name that makes no difference to the contract, and may to a driver.
type manner struct {
	what    string // ", of a lock that is renewed"
	renewed bool   // not a fixed term
	extends bool   // A's lock was extended before
	waited  bool   // A's lock was waited for; or others wait for what A breaks
	failed  bool   // a renewal, or an Unlock, has failed before
	beside  bool   // A holds others, which are renewed along with it
	again   bool   // A had the name before, and has it with a text of its own; in virtual time for minutes
	freed   bool   // B has unlocked the name when A goes on
	called  func(base string) string
}

// manners are those in which an operation is examined: all of them in virtual time, else one of them, by the seed. A driver
// that looks and then acts in each of them is seen in any. Renewals that go along with others are often another way of the driver:
// one of those, by the seed, is examined in addition, as the request that is stopped may be that of another lock. So is what shows
// the token alone.
func (c *C) manners(op pairing) []manner {
	all := []manner{{}, {what: ", of a long name,", called: fullLength}}
	switch {
	case op.sweeps, op.broken:
		return all[:1]
	case op.id == "break":
		all = append(all, manner{what: ", of a name that another waits for,", waited: true})
	case op.id == "renewal":
		all = append(all, manner{what: ", along with others of its client,", beside: true})
	default:
		all = append(all, manner{what: ", of a lock that is to be renewed,", renewed: true})
	}
	takes := strings.HasPrefix(op.id, "try-") || strings.HasPrefix(op.id, "lock-")
	if c.samples() { // what a token is drawn for does not depend on what was there before
		takes = op.id == "try-free" || op.id == "lock-free"
	}
	if takes && !op.lapses {
		all = append(all, manner{what: ", B letting go of it in time,", freed: true})
	}
	if op.id == "unlock" || op.id == "extend" || op.id == "close" {
		all = append(all, manner{what: ", of a lock that was waited for,", waited: true})
	}
	if op.id == "unlock" || op.id == "hand-over" || op.id == "close" {
		all = append(all, manner{what: ", of a lock that was extended,", extends: true})
	}
	if op.id == "renewal" || op.id == "unlock" && c.Virtual() { // else what repeats an Unlock may be over before it can be stopped
		if _, ok := can[Proxy](c, capProxy); ok {
			all = append(all, manner{what: ", after one that has failed,", failed: true})
			if op.id == "renewal" {
				all = append(all, manner{what: ", along with others, after one that has failed,", beside: true, failed: true})
			}
		}
	}
	if op.id == "unlock" || op.id == "extend" {
		all = append(all, manner{what: ", of a lock with a text of its own and a long TTL, which its client had before,", again: true})
	}
	if !c.samples() {
		return all
	}
	var sample []manner
	for _, kind := range []manner{{beside: true}, {freed: true}, {}} {
		some := slices.DeleteFunc(slices.Clone(all), func(m manner) bool { return m.beside != kind.beside || m.freed != kind.freed })
		if len(some) > 0 {
			sample = append(sample, some[c.Rand().IntN(len(some))])
		}
	}
	return sample
}

// in tells what was examined: the operation, and its manner if there was one only.
func (op pairing) in(ways []manner) string {
	if len(ways) > 1 {
		return op.what
	}
	return op.what + strings.TrimSuffix(ways[0].what, ",")
}

// after is the TTL of B: shorter than that of A where others are renewed along with it, so that a lease is seen that A has made
// longer, and else longer.
func (s *pairScene) after() time.Duration {
	if s.manner.beside {
		return s.c.ending(s.c.Unit() / 2)
	}
	return s.c.long()
}

// opts are those of what A holds or asks for.
func (s *pairScene) opts() []distlock.Option {
	opts := []distlock.Option{distlock.TTL(s.ttl)}
	if !s.manner.renewed {
		opts = append(opts, distlock.NoRenewal())
	}
	if s.manner.again {
		opts = append(opts, distlock.Holder("a text of its own")) // not that of what others take
	}
	return opts
}
