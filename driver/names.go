package driver

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

const (
	// maxPending is how many claims of one name may be pending. Callers that keep trying a
	// stuck name would otherwise pile up requests and clean-ups, until they have taken the
	// connections of all other names.
	maxPending = 8

	// freshRefusal is for how long a TryLock believes what the store has told a waiter of this
	// process.
	freshRefusal = 100 * time.Millisecond
)

// names has a record of each name that a call is about, or the clean-up behind one.
type names struct {
	mu      sync.Mutex
	records map[string]*record
}

// record is what the calls about one name have in common; names.mu guards all but the channels,
// which serve blocked senders in their order.
//
// The goroutines of this process queue for the turn, first come, first served. Only the first,
// which has it, makes a claim, so a process has one waiter per name in the store. It leaves the queue
// with the lock, and the next one makes its claim and waits in the store, behind the holder.
//
// Its slots bound the pending claims: from the first Try until the call has returned, and if
// it has failed, until it is undone. A waiting claim counts. A claim too many waits for as long as
// earlier ones are answered.
type record struct {
	name  string
	users int // attempts, and clean-ups behind them

	turn        chan struct{} // one element, of the first waiter; free if there is none
	waiting     int           // the first, and those behind it
	refusal     error         // what the store has told a first waiter last; nil until it has refused one
	refused     time.Time     // when
	failure     error         // why a look of the first waiter has failed since; nil if none has
	notNowSince time.Time     // since then the store says "not now"; zero if it does not
	stale       bool          // the refused waiter has left
	silence     silence       // that the look of the last first waiter has met, if nothing was heard since

	slots    chan struct{} // one element for each claim that counts
	answered time.Time     // when the store has answered a claim last
	told     error         // the ErrHeld that a TryLock was told last; nil if there is none
	toldOf   time.Time     // when its request was sent
}

// silence is a Try of the first in the queue that timed out. The next one will, too, most likely.
type silence struct {
	err   error         // nil if there is none
	began time.Time     // the look
	limit time.Duration // that it had
	again bool          // the look before had none either, for as long
}

// join returns the record of a name, and keeps it until leave.
func (ns *names) join(name string) *record {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.records == nil {
		ns.records = make(map[string]*record)
	}
	n := ns.records[name]
	if n == nil {
		n = &record{name: name, turn: make(chan struct{}, 1), slots: make(chan struct{}, maxPending)}
		ns.records[name] = n
	}
	n.users++
	return n
}

// leave ends what join has begun.
func (ns *names) leave(n *record) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(ns.records, n.name)
	}
}

// begin waits for a slot and takes it. It returns what is left of patience, the time in which the
// store may answer none. It has taken none, and returns 0, if that was over, ctx has ended or quit was closed before.
func (ns *names) begin(n *record, ctx context.Context, quit <-chan struct{}, patience time.Duration) (left time.Duration) {
	select {
	case n.slots <- struct{}{}:
		return patience
	default:
	}
	began := time.Now()
	patient := func() time.Duration {
		ns.mu.Lock()
		defer ns.mu.Unlock()
		return patience - min(time.Since(began), time.Since(n.answered))
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for left = patience; left > 0; {
		select {
		case n.slots <- struct{}{}:
			if left = patient(); left <= 0 {
				<-n.slots
			}
			return left
		case <-ctx.Done():
			return 0
		case <-quit:
			return 0
		case <-timer.C:
			left = patient()
			timer.Reset(left)
		}
	}
	return 0
}

// end ends what begin has counted, and leaves the record; answered says whether the store has
// answered the claim.
func (ns *names) end(n *record, answered bool) {
	if answered {
		ns.mu.Lock()
		n.answered = time.Now()
		ns.mu.Unlock()
	}
	<-n.slots
	ns.leave(n)
}

// noteTold notes that the store has told a TryLock, by a request sent then, that the name is held.
func (ns *names) noteTold(n *record, err error, sent time.Time) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if sent.After(n.toldOf) {
		n.told, n.toldOf = err, sent
	}
}

// toldSince returns the ErrHeld that a TryLock was told by a request sent after since, or nil. A call that began then and waits for
// a slot may end with it: it is as fresh as an answer to its own. Else callers that come faster than the store answers would wait
// longer and longer, in a call that never waits.
func (ns *names) toldSince(n *record, since time.Time) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n.told == nil || !n.toldOf.After(since) {
		return nil
	}
	held := heldSince(n.told, n.toldOf)
	return &held
}

// enqueue waits for the turn, until ctx has ended or quit was closed. Whatever it returns, and also if ctx panics, dequeue
// has to follow.
func (ns *names) enqueue(n *record, ctx context.Context, quit <-chan struct{}) error {
	ns.mu.Lock()
	n.waiting++
	ns.mu.Unlock()
	select {
	case n.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case n.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-quit:
		return distlock.ErrClosed
	}
}

// dequeue ends what enqueue has begun. If the caller was the first, the turn passes to the next waiter. A grant ends what
// has failed.
func (ns *names) dequeue(n *record, first, granted bool) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n.waiting--
	if granted {
		n.failure, n.silence = nil, silence{}
	}
	if first {
		// What the store told it may no longer be so.
		n.stale = true
		<-n.turn
	}
	if n.waiting == 0 {
		n.refusal, n.failure, n.silence = nil, nil, silence{}
	}
}

// noteHeld notes that the store has told the first of the queue that the name is held.
func (ns *names) noteHeld(n *record, err error) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n.refusal, n.refused, n.failure, n.stale, n.silence = err, time.Now(), nil, false, silence{}
}

// noteFailure notes that a look of the first of the queue has failed, which may go on, and returns since when the store says
// "not now". A silence before that does not count: a store that comes back needs time to load its data.
func (ns *names) noteFailure(n *record, err error) time.Time {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n.failure == nil {
		n.notNowSince = time.Time{}
	}
	if n.notNowSince.IsZero() && FateOf(err) == NotNow {
		n.notNowSince = time.Now()
	}
	n.failure, n.silence = err, silence{}
	return n.notNowSince
}

// noteSilence notes what the last look of the first of the queue has met, which gives up by it.
func (ns *names) noteSilence(n *record, met silence) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	met.again = n.silence.err != nil && n.silence.limit >= met.limit
	n.silence = met
}

// silent returns an error if the last two looks timed out, the last in no less time than limit, and began after start.
// Otherwise the callers in a queue would wait for one timeout each. One look is not enough: only its connection may hang.
func (ns *names) silent(n *record, start time.Time, limit time.Duration) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if s := n.silence; s.again && start.Before(s.began) && limit <= s.limit {
		return s.err
	}
	return nil
}

// refusal returns the ErrHeld that the first in the queue was told a moment ago, or
// nil. Then it is not known whether the name is held, however long the queue: the backend
// may be down, and only the store may say ErrHeld.
func (ns *names) refusal(n *record) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n.refusal == nil || n.failure != nil || n.stale || time.Since(n.refused) > freshRefusal {
		return nil
	}
	return n.heldError()
}

// seen returns the ErrHeld that the queue was told after since, and why a look has failed
// since then, or nil; own is why the caller's own has. What a first waiter was told before counts while
// that waiter is there.
func (ns *names) seen(n *record, since time.Time, own error) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	failure := cmp.Or(own, n.failure, n.silence.err)
	switch {
	case n.refusal == nil || n.stale && n.refused.Before(since):
		return failure
	case failure != nil:
		return fmt.Errorf("%w: since then: %w", n.heldBefore(), failure)
	}
	return n.heldBefore()
}

// heldBefore is heldError with a text that says what the store has told of the holder, and how long ago.
func (n *record) heldBefore() error {
	if told := heldOf(n.refusal); told.Holder != "" || told.Token != 0 {
		return &toldBefore{n.heldError(), fmt.Sprintf("%v %v ago", &told.HeldError, time.Since(n.refused).Round(time.Millisecond))}
	}
	return n.heldError()
}

// toldBefore is an error with another text.
type toldBefore struct {
	error
	text string
}

func (t *toldBefore) Error() string { return t.text }
func (t *toldBefore) Unwrap() error { return t.error }

// heldError is the refusal with what is left of the lease by now. The name may have passed to
// another since, which a waiter further back in the queue of the store is not told: so it names
// no holder.
func (n *record) heldError() error {
	held := heldSince(n.refusal, n.refused)
	held.Holder, held.Token = "", 0
	return &held
}

// heldSince is a refusal of that time, with what is left of the lease by now.
func heldSince(refusal error, told time.Time) Held {
	held := heldOf(refusal)
	held.Remaining = max(held.Remaining-time.Since(told), 0)
	return held
}
