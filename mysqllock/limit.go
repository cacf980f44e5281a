package mysqllock

import (
	"context"
	"database/sql"
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
//	  try ───── acquire ─────▶  semaphore of tries ────────▶ waits for the row
//	  gives up                  stays taken                  waits on, alone
//	  try ───── acquire ─────▶  waits …
//	                            … a release is answered, ◀── the row is free again
//	                              or linger has passed       the server has given up
//	                            taken by the next ─────────▶
type limiter struct {
	linger time.Duration // how long the server may go on with a statement that was given up
	slow   chan struct{} // one element per statement about a name of blocked

	mu      sync.Mutex
	names   map[string]*nameLimit // of the names with a statement under way, or given up
	blocked map[string]time.Time  // the row of the name could not be had; until when that is remembered
}

// nameLimit is for the statements about one name; limiter.mu guards users and abandoned.
type nameLimit struct {
	users      int              // statements that are queued, under way or given up
	semaphores [2]chan struct{} // first come, first served; one element if taken
	abandoned  [2]*time.Timer   // taken by a statement that was given up, until this fires
}

// The semaphores of a name.
const (
	trying = iota
	releasing
)

const (
	// maxLinger bounds linger where the sessions of a user's pool wait for a row for longer.
	maxLinger = 3 * time.Second

	// blockedFor is for how long a locked row is remembered, and maxBlocked how many are.
	// One more may take a connection from other names for a second.
	blockedFor = 10 * time.Second
	maxBlocked = 4096
)

// newLimiter returns a limiter for a pool with this limit, 0 for none. All names with
// locked rows together use half of the pool at the most.
func newLimiter(conns int, rowWait time.Duration) *limiter {
	if conns <= 0 {
		conns = defaultConns
	}
	return &limiter{
		linger:  min(rowWait, maxLinger),
		slow:    make(chan struct{}, max(conns/2, 1)),
		names:   make(map[string]*nameLimit),
		blocked: make(map[string]time.Time),
	}
}

// bound is a request that takes a semaphore of its name each time that it is sent.
func (l *limiter) bound(name string, kind int, send request) request {
	return func(ctx context.Context) (sql.Result, error) {
		n := l.join(name)
		defer l.leave(name, n)
		if ctx.Err() != nil || !acquire(ctx, n.semaphores[kind]) {
			return nil, notSent(ctx)
		}
		// The semaphore of the name comes first. So one try and one release of a blocked
		// name, at the most, want the common one.
		if l.isBlocked(name) {
			if !acquire(ctx, l.slow) {
				<-n.semaphores[kind]
				return nil, notSent(ctx)
			}
			defer func() { <-l.slow }()
		}
		result, err := send(ctx)
		err = fault(err)
		l.observe(name, n, kind, err)
		return result, err
	}
}

func (l *limiter) join(name string) *nameLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[name]
	if n == nil {
		n = &nameLimit{semaphores: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}
		l.names[name] = n
	}
	n.users++
	return n
}

func (l *limiter) isBlocked(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.blocked[name])
}

func (l *limiter) leave(name string, n *nameLimit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(l.names, name)
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

// observe releases the semaphore of a statement that has ended with err, unless the
// server may go on with it. An answer shows that the row can be had, and so that nothing
// waits for it any more.
func (l *limiter) observe(name string, n *nameLimit, kind int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		delete(l.blocked, name)
		for k, timer := range n.abandoned {
			if timer != nil {
				timer.Stop()
				l.forget(name, n, k)
			}
		}
	} else if gone := driver.FateOf(err) != driver.Unknown; !gone || hasNumber(err, errLockWait) {
		if len(l.blocked) >= maxBlocked {
			// A name that is still blocked is noticed again. To forget all is simpler
			// than to find the oldest.
			clear(l.blocked)
		}
		l.blocked[name] = time.Now().Add(blockedFor)
		if !gone {
			l.abandon(name, n, kind)
			return
		}
	}
	<-n.semaphores[kind]
}

// abandon keeps the semaphore of a statement that was given up; l.mu is held.
func (l *limiter) abandon(name string, n *nameLimit, kind int) {
	// The statement still counts as a user, so that its semaphore outlives the call.
	n.users++
	var timer *time.Timer
	timer = time.AfterFunc(l.linger, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		// An answer may have released the semaphore while this timer waited for the
		// mutex. Another statement may have been abandoned since.
		if n.abandoned[kind] == timer {
			l.forget(name, n, kind)
		}
	})
	n.abandoned[kind] = timer
}

// forget releases the semaphore of a statement that was given up; l.mu is held.
func (l *limiter) forget(name string, n *nameLimit, kind int) {
	n.abandoned[kind] = nil
	<-n.semaphores[kind]
	if n.users--; n.users == 0 {
		delete(l.names, name)
	}
}
