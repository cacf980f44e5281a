package oracle

import "time"

// lifetime is what the events of one hold say of how long the store must keep it.
type lifetime struct {
	// until is the end of the latest lease confirmed in the background, for a lock
	// with renewal. It is zero for a fixed term: the history tells its end step by
	// step.
	until time.Duration
	// given is the last instant before the holder was seen to have given up early,
	// because of a loss or of a Close: from then on the store may have dropped the
	// entry. -1 if nothing of the kind was seen.
	given time.Duration
	// closed says that Close has freed the lock.
	closed bool
	// ttl is what was asked for when the lock was acquired.
	ttl time.Duration
}

// lifetimes collects them by number of the hold. The events are those of one name,
// in order of their calls.
func lifetimes(events []Event) map[int]lifetime {
	alive := make(map[int]time.Duration)
	unlocking := make(map[int]bool)
	lives := make(map[int]lifetime)
	for _, e := range events {
		l, ok := lives[e.Hold]
		if !ok {
			l.given = -1
		}
		switch {
		case e.acquires() && e.Outcome == OutcomeOK:
			alive[e.Hold], l.ttl = e.Return.At, e.TTL
			if !e.Fixed {
				l.until = e.Deadline
			}
		case e.Op == OpUnlock:
			unlocking[e.Hold] = true
		case e.Op != OpBelief || l.given >= 0:
		case e.Outcome == OutcomeOK:
			alive[e.Hold] = e.Call.At
			if l.until > 0 {
				l.until = max(l.until, e.Deadline)
			}
		case e.Outcome == OutcomeRefused && !unlocking[e.Hold]:
			l.given, l.closed = alive[e.Hold], true
		case e.Outcome == OutcomeLost && e.Return.At < e.Deadline:
			l.given = alive[e.Hold]
		}
		lives[e.Hold] = l
	}
	return lives
}
