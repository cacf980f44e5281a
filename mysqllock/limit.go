package mysqllock

import (
	"context"
	"sync"
	"time"

	"github.com/distlock-go/distlock/driver"
)

// limiter bounds the statements that one name can have under way: one that tries and
// one that releases or undoes. If cancelling a statement ended it on the server, too, it
// would not be needed. But that closes the socket alone: the statement goes on to wait
// for its row. So callers that give up on a locked row would each leave two statements
// behind, each with a connection, until no other name gets one. The engine's limit of claims
// for each name is not enough: with that alone, a few locked rows make other names wait for 3 to
// 11 s (TestBlockedNames).
//
//	caller                     limiter                      server
//	  try ───── acquire ─────▶  turn of tries ─────────────▶ waits for the row
//	  gives up                  stays taken                  waits on, alone
//	  try ───── acquire ─────▶  waits …
//	                            … a release is answered, ◀── the row is free again
//	                              or linger has passed       the server has given up
//	                            taken by the next ─────────▶
type limiter struct {
	linger time.Duration // how long the server may go on with a statement that was given up
	slow   chan struct{} // one element per statement about a name of blocked

	blocked marks // names whose row could not be had

	mu    sync.Mutex
	names map[string]*turns // of the names with a statement under way, or given up
}

// turns are those of the statements about one name, first come, first served. limiter.mu guards users
// and abandoned.
type turns struct {
	users     int              // statements that are queued, under way or given up
	taken     [2]chan struct{} // one element each while the turn is
	abandoned [2]*time.Timer   // ends the turn of a statement that was given up
}

// The kinds of statements about a name.
const (
	trying = iota
	releasing
)

const (
	// maxLinger bounds linger where the sessions of a user's pool wait for a row for longer.
	maxLinger = 3 * time.Second

	// blockedFor is for how long a locked row is remembered. One that is not may take a
	// connection from other names for a second.
	blockedFor = 10 * time.Second
)

// newLimiter returns a limiter for a pool with this limit, 0 for none. All names with
// locked rows together use half of the pool at the most.
func newLimiter(conns int, rowWait time.Duration) *limiter {
	if conns <= 0 {
		conns = defaultConns
	}
	return &limiter{linger: min(rowWait, maxLinger), slow: make(chan struct{}, max(conns/2, 1)), names: make(map[string]*turns)}
}

// run has a statement about a name sent when it is its turn. The turn of the name comes first: so one
// try and one release of a blocked name, at the most, want the common one.
func (l *limiter) run(ctx context.Context, name string, kind int, send func() error) error {
	n := l.join(name)
	if ctx.Err() != nil || !acquire(ctx, n.taken[kind]) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leave(name, n)
		return notSent(ctx)
	}
	var err error
	slow := l.blocked.has(name)
	if slow && !acquire(ctx, l.slow) {
		err = notSent(ctx)
		l.observe(name, n, kind, err, 0)
		return err
	}
	sent := time.Now()
	err = send()
	if slow {
		<-l.slow
	}
	l.observe(name, n, kind, err, time.Since(sent))
	return err
}

func (l *limiter) join(name string) *turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[name]
	if n == nil {
		n = &turns{taken: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}
		l.names[name] = n
	}
	n.users++
	return n
}

// leave ends what join has begun, and end a turn as well; l.mu is held.
func (l *limiter) leave(name string, n *turns) {
	if n.users--; n.users == 0 {
		delete(l.names, name)
	}
}

func (l *limiter) end(name string, n *turns, kind int) {
	<-n.taken[kind]
	l.leave(name, n)
}

// observe ends the turn of a statement that has ended with err. If the server may go on with it, that
// is linger after it was sent, or when an answer shows that the row can be had: nothing waits for it
// then.
func (l *limiter) observe(name string, n *turns, kind int, err error, took time.Duration) {
	unknown := driver.FateOf(err) == driver.Unknown
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.blocked.remove(name)
		for k, timer := range n.abandoned {
			if timer != nil && timer.Stop() { // else it has fired already, and ends the turn
				l.end(name, n, k)
			}
		}
	case unknown || hasNumber(err, errLockWait):
		l.blocked.set(name, blockedFor)
	}
	if !unknown {
		l.end(name, n, kind)
		return
	}
	n.abandoned[kind] = time.AfterFunc(l.linger-took, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end(name, n, kind)
	})
}

func acquire(ctx context.Context, semaphore chan struct{}) bool {
	select {
	case semaphore <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
