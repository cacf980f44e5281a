// Package turns shares a pool of connections among the statements about names, for a driver of a database in which a
// statement may have to wait for the row of its name. It has a connection meanwhile. If callers give up, the server may
// go on with what they have sent. So a few locked rows could take all connections from other names, and from renewals.
//
// Three bounds keep that from happening:
//
//   - Of each name, one statement that tries is at the server, and one that releases; with OnlyBlocked that holds for
//     names with rows that could not be had.
//   - Those names share half of the pool.
//   - All of these leave one connection to what is not bounded here, such as renewals. Of a pool of two they leave none, or
//     one locked row would keep all other names waiting: but none queues for a connection before a renewal.
//
// The server ends each statement that waits for a row after a while. A statement has its turn, and its slot of the half, for
// so long after it was sent, and no longer: its caller may wait for an answer that was lost. What waits for a connection of
// the pool counts as sent.
//
// The engine's limit of claims for each name is not enough: with that alone, four locked rows of MySQL make other names wait
// for 3 to 11 s.
package turns

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock/driver"
)

// Kind is what a statement does about its name.
type Kind int

// The kinds of statements. Those of one kind about one name follow each other.
const (
	Trying Kind = iota
	Releasing
	Renewing // of one lock alone; has no turn, and may use the whole pool but for what locked rows share
)

// blockedFor is for how long a locked row is remembered. One that is not may take a
// connection from other names for as long as the server waits for a row.
const blockedFor = 10 * time.Second

// maxLinger bounds for how long a statement that was given up keeps its turn, where the server waits for a row for longer.
const maxLinger = 3 * time.Second

// unlimited is what a pool without a limit counts as, when its half is asked for.
const unlimited = 16

// Turns are those of the statements over one pool. It is safe for concurrent use.
//
//	caller                     Turns                        server
//	  try ───── Run ──────────▶  turn of tries ─────────────▶ waits for the row
//	  gives up                  stays taken                  waits on, alone
//	  try ───── Run ──────────▶  waits …
//	                            … a release is answered, ◀── the row is free again
//	                              or wait has passed         the server has given up
//	                            taken by the next ─────────▶
type Turns struct {
	// OnlyBlocked is for a server that soon gives up to wait for a row: names have turns only once theirs could not be had. It is
	// set before the first Run.
	OnlyBlocked bool

	wait   time.Duration
	locked func(error) bool

	blocked Marks         // names with rows that could not be had
	slow    chan struct{} // one element per statement about one of them
	claims  chan struct{} // one per statement that tries or releases; nil for a pool without a limit

	mu    sync.Mutex
	names map[string]*turn // of the names with a statement under way, or given up
}

// turn has those of the statements about one name. Turns.mu guards users and abandoned.
type turn struct {
	users     int              // statements that are queued, under way or given up
	taken     [2]chan struct{} // one element each while the turn is
	abandoned []*statement     // were given up, and have their turn
}

// statement is one call to Run. Turns.mu guards timer and over.
type statement struct {
	turns *Turns
	name  string
	kind  Kind
	turn  *turn       // nil if it needs none
	slow  bool        // it is about a row that could not be had
	timer *time.Timer // gives back what it has, when the server must have ended it
	ends  time.Time   // when that is
	over  bool        // it has given back its turn, and its slot of the half
}

// New returns the turns of a pool of conns connections, 0 if it has no limit. The server has a statement wait for a row for
// so long, at the most. locked says of its errors whether it has waited for a row in vain.
func New(conns int, wait time.Duration, locked func(error) bool) *Turns {
	t := &Turns{wait: wait, locked: locked, names: make(map[string]*turn)}
	if conns > 0 {
		t.claims = make(chan struct{}, max(conns-1, min(conns, 2)))
	} else {
		conns = unlimited
	}
	t.slow = make(chan struct{}, max(conns/2, 1))
	return t
}

// Run calls send, which sends a statement about a name, when it is its turn. If ctx ends before that, it returns a
// driver.Fault that says that nothing was sent. The turn of the name comes first, and the bound for all last: what waits for
// a locked row takes nothing from other names meanwhile.
func (t *Turns) Run(ctx context.Context, name string, kind Kind, send func() error) (err error) {
	s := &statement{turns: t, name: name, kind: kind, slow: t.blocked.Has(name)}
	if ctx.Err() != nil || !s.begin(ctx) {
		return notSent(ctx)
	}
	if t.claims != nil && kind != Renewing {
		if !acquire(ctx, t.claims) {
			s.giveBack()
			return notSent(ctx)
		}
		defer func() { <-t.claims }()
	}
	s.send()
	err = errPanicked // if send panics: it may have been sent
	defer func() { s.end(err) }()
	return send()
}

var errPanicked error = &driver.Fault{Fate: driver.Unknown, Err: errors.New("the client library has panicked")}

// begin waits for the turn of the name, and for a slot of the half if its row could not be had. It reports false if ctx ends
// before.
func (s *statement) begin(ctx context.Context) bool {
	t := s.turns
	if s.kind != Renewing && (s.slow || !t.OnlyBlocked) {
		n := t.join(s.name)
		if !acquire(ctx, n.taken[s.kind]) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.leave(s.name, n)
			return false
		}
		s.turn = n
		s.slow = t.blocked.Has(s.name) // the one before may have found that out
	}
	if s.slow && !acquire(ctx, t.slow) {
		s.slow = false
		s.giveBack()
		return false
	}
	return true
}

// send starts the timer: the statement goes to the server.
func (s *statement) send() {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	s.timer, s.ends = time.AfterFunc(s.turns.wait, s.giveBack), time.Now().Add(s.turns.wait)
}

// end notes what became of the row, and gives back what the statement has, unless the server may go on with it: then the
// timer does, or the next answer about the name. That shows that nothing waits for the row.
func (s *statement) end(err error) {
	t := s.turns
	fate := driver.FateOf(err)
	switch {
	case err == nil:
		t.blocked.Remove(s.name)
	case fate == driver.Unknown || t.locked(err):
		t.blocked.Set(s.name, blockedFor)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && s.turn != nil {
		for _, given := range slices.Clone(s.turn.abandoned) {
			given.ended()
		}
	}
	switch {
	case fate != driver.Unknown:
		s.ended()
	case !s.over && s.timer.Stop(): // else it is about to give back
		s.timer.Reset(min(time.Until(s.ends), maxLinger))
		if s.turn != nil {
			s.turn.abandoned = append(s.turn.abandoned, s)
		}
	}
}

// giveBack gives back the turn, and the slot of the half, once.
func (s *statement) giveBack() {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	s.ended()
}

// ended is giveBack; Turns.mu is held.
func (s *statement) ended() {
	if s.over {
		return
	}
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.slow {
		<-s.turns.slow
	}
	if n := s.turn; n != nil {
		<-n.taken[s.kind]
		if i := slices.Index(n.abandoned, s); i >= 0 {
			n.abandoned = slices.Delete(n.abandoned, i, i+1)
		}
		s.turns.leave(s.name, n)
	}
}

func (t *Turns) join(name string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.names[name]
	if n == nil {
		n = &turn{taken: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}
		t.names[name] = n
	}
	n.users++
	return n
}

// leave ends what join has begun; t.mu is held.
func (t *Turns) leave(name string, n *turn) {
	if n.users--; n.users == 0 {
		delete(t.names, name)
	}
}

func acquire(ctx context.Context, semaphore chan struct{}) bool {
	select {
	case semaphore <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func notSent(ctx context.Context) error {
	return &driver.Fault{Fate: driver.NotSent, Err: ctx.Err()}
}
