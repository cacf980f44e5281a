package mysqllock

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// sharedConn has the named locks of claims that took their names at once, and so have no
// connection of their own.
//
//	claim                sharedConn                        server
//	granted ───────────▶ toBeTaken; timer of takeDelay
//	                     timer: queue ─▶ worker ─────────▶ GET_LOCK without a wait
//	                     taken; waiters may queue now
//	Release ───────────▶ notTaken; queue ─▶ worker ──────▶ RELEASE_LOCK: the next wakes up
//
// A claim costs no request if it is released before its timer fires. The connection carries one
// request at a time, so one goroutine sends them all, and ends when there is none to send.
type sharedConn struct {
	db  *sql.DB
	sql *statements

	mu     sync.Mutex
	taken  int // named locks that conn has, or had when it broke
	queue  []lockStep
	works  bool // a goroutine works the queue off; it alone uses conn
	conn   *sql.Conn
	closed bool
	idle   sync.WaitGroup // what runs in the background
}

// lockStep is one request of sharedConn: the named lock of a claim is taken, or if that is nil,
// the named lock of a name is released.
type lockStep struct {
	claim *claim
	name  string
}

const (
	// maxTaken bounds the named locks of the connection.
	// A claim beyond it has no named lock, and its waiters poll.
	maxTaken = 1000

	// lockTimeout bounds a request about named locks that does not wait for one. Then
	// the connection is closed, and what it has on the server ends.
	lockTimeout = 2 * time.Second
)

// sharedState says what the shared connection has of a claim.
type sharedState int

const (
	notTaken sharedState = iota
	toBeTaken
	taken
)

// takeLater has the named lock of a claim taken if that still holds its name after
// takeDelay.
func (s *sharedConn) takeLater(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && c.onShared == notTaken {
		c.onShared = toBeTaken
		c.timer = time.AfterFunc(takeDelay, func() { s.enqueueTake(c) })
	}
}

func (s *sharedConn) enqueueTake(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.timer = nil // it has fired, and a held lock is to be small
	// The claim may have been released after the timer fired.
	if c.onShared == toBeTaken && s.taken < maxTaken {
		s.enqueue(lockStep{claim: c, name: c.request.Name})
	}
}

// leave has the named lock of a claim released, if it was taken. A name is free already when its
// named lock is released, and its former holder does not wait for that.
func (s *sharedConn) leave(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.onShared == taken {
		s.enqueue(lockStep{name: c.request.Name})
	}
	if c.onShared = notTaken; c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// enqueue adds a request; s.mu is held.
func (s *sharedConn) enqueue(step lockStep) {
	if s.closed {
		return // close ends what the connection has
	}
	s.queue = append(s.queue, step)
	if !s.works {
		s.works = true
		s.idle.Go(s.work)
	}
}

// work sends the requests of the queue. Then it gives the connection back to its pool if that
// has no named lock.
func (s *sharedConn) work() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		step := s.queue[0]
		s.queue = s.queue[1:]
		switch {
		case step.claim == nil:
			// Without a connection it has ended already: it is closed after an error.
			if s.conn != nil {
				s.send(func(ctx context.Context) error {
					_, err := s.conn.ExecContext(ctx, s.sql.fill("release-lock", s.sql.namedLock(step.name)))
					return err
				})
			}
			s.taken--
		case step.claim.onShared == toBeTaken && s.taken < maxTaken:
			s.take(step)
		}
	}
	s.queue, s.works = nil, false
	if s.taken == 0 && s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// take takes the named lock of a claim unless another has it. If that fails, waiters for
// it will not be woken up, and poll. s.mu is held.
func (s *sharedConn) take(step lockStep) {
	var got bool
	s.send(func(ctx context.Context) (err error) {
		if s.conn == nil {
			if s.conn, err = s.db.Conn(ctx); err != nil {
				return err
			}
		}
		return s.conn.QueryRowContext(ctx, s.sql.fill("take-lock", s.sql.namedLock(step.name))).Scan(&got)
	})
	if !got {
		return
	}
	s.taken++
	if step.claim.onShared == toBeTaken {
		step.claim.onShared = taken
	} else { // the claim was released during the request, and did not see the named lock
		s.queue = append(s.queue, lockStep{name: step.name})
	}
}

// send makes a request on the shared connection, and closes that if it fails. A server that hangs
// is waited for once: named locks that were to be taken meanwhile are not. s.mu is held, but not
// during the request.
func (s *sharedConn) send(f func(context.Context) error) {
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	err := f(ctx)
	cancel()
	if err != nil && s.conn != nil {
		discard(s.conn)
		s.conn = nil
	}
	s.mu.Lock()
	if err == nil {
		return
	}
	rest := s.queue[:0]
	for _, step := range s.queue {
		if step.claim == nil {
			rest = append(rest, step)
		}
	}
	s.queue = rest
}

// background runs f in a goroutine that close waits for.
func (s *sharedConn) background(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		go f() // close does not wait any more
	} else {
		s.idle.Go(f)
	}
}

// close waits for the goroutines, and closes the connection: if the release of a claim has
// never returned, its named lock ends with that, although the pool may live on.
func (s *sharedConn) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.idle.Wait()
	if s.conn != nil {
		discard(s.conn)
		s.conn = nil
	}
}
