// Package turns shares a pool of connections among the statements about names, for a driver of a database in which a
// statement may have to wait for the row of its name. It has a connection meanwhile. If callers give up, the server may
// go on with what they have sent. So a few locked rows could take all connections from other names, and from renewals.
//
// Three bounds keep that from happening:
//
//   - Of each name, one statement that tries is under way, and one that releases. One that was given up counts until
//     the server must have ended it.
//   - Names with rows that could not be had share half of the pool.
//   - All of these leave one connection to what is not bounded here, such as renewals. Of a pool of two they leave none, or
//     one locked row would keep all other names waiting: but none queues for a connection before a renewal.
//
// The engine's limit of claims for each name is not enough: with that alone, four locked rows of MySQL make other names wait
// for 3 to 11 s.
package turns

import (
	"context"
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

// unlimited is what a pool without a limit counts as, when its half is asked for.
const unlimited = 16

// Turns are those of the statements over one pool. It is safe for concurrent use.
//
//	caller                     Turns                        server
//	  try ───── Run ──────────▶  turn of tries ─────────────▶ waits for the row
//	  gives up                  stays taken                  waits on, alone
//	  try ───── Run ──────────▶  waits …
//	                            … a release is answered, ◀── the row is free again
//	                              or linger has passed       the server has given up
//	                            taken by the next ─────────▶
type Turns struct {
	linger time.Duration
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
	abandoned [2]*time.Timer   // ends the turn of a statement that was given up
}

// New returns the turns of a pool of conns connections, 0 if it has no limit. The server goes on for linger, at the most,
// with a statement that was given up. locked says of its errors whether it has waited for a row in vain.
func New(conns int, linger time.Duration, locked func(error) bool) *Turns {
	t := &Turns{linger: linger, locked: locked, names: make(map[string]*turn)}
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
func (t *Turns) Run(ctx context.Context, name string, kind Kind, send func() error) error {
	if kind == Renewing {
		return t.share(ctx, name, kind, send)
	}
	n := t.join(name)
	if ctx.Err() != nil || !acquire(ctx, n.taken[kind]) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.leave(name, n)
		return notSent(ctx)
	}
	began := time.Now()
	err := t.share(ctx, name, kind, func() error {
		began = time.Now()
		return send()
	})
	t.end(name, n, kind, err, time.Since(began))
	return err
}

// share calls send when there is a connection for it, and notes what became of it.
func (t *Turns) share(ctx context.Context, name string, kind Kind, send func() error) error {
	if t.blocked.Has(name) {
		if !acquire(ctx, t.slow) {
			return notSent(ctx)
		}
		defer func() { <-t.slow }()
	}
	if t.claims != nil && kind != Renewing {
		if !acquire(ctx, t.claims) {
			return notSent(ctx)
		}
		defer func() { <-t.claims }()
	}
	err := send()
	switch {
	case err == nil:
		t.blocked.Remove(name)
	case driver.FateOf(err) == driver.Unknown || t.locked(err):
		t.blocked.Set(name, blockedFor)
	}
	return err
}

// end ends a turn. If the server may go on with its statement, that is linger after it was sent, or when an answer
// shows that the row can be had: nothing waits for it then.
func (t *Turns) end(name string, n *turn, kind Kind, err error, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		for k, timer := range n.abandoned {
			if timer != nil && timer.Stop() { // else it has fired already, and gives the turn back
				t.giveBack(name, n, Kind(k))
			}
		}
	}
	if driver.FateOf(err) != driver.Unknown {
		t.giveBack(name, n, kind)
		return
	}
	n.abandoned[kind] = time.AfterFunc(t.linger-took, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.giveBack(name, n, kind)
	})
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

// leave ends what join has begun, and giveBack a turn as well; t.mu is held.
func (t *Turns) leave(name string, n *turn) {
	if n.users--; n.users == 0 {
		delete(t.names, name)
	}
}

func (t *Turns) giveBack(name string, n *turn, kind Kind) {
	<-n.taken[kind]
	t.leave(name, n)
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
