package mysqllock

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"
)

// sharedConn has the named locks of claims that took their names at once, and so have no
// connection of their own.
//
//	claim                sharedConn                        server
//	granted ───────────▶ toBeTaken; timer of takeDelay
//	                     timer: take ────────────────────▶ GET_LOCK without a wait
//	                     taken; waiters may queue now
//	Release ───────────▶ notTaken; in the background ────▶ RELEASE_LOCK: the next wakes up
//
// A claim costs no request if it is released before its timer fires.
type sharedConn struct {
	db  *sql.DB
	sql *statements

	mu     sync.Mutex
	taken  int // named locks that conn has, or had when it broke
	closed bool
	idle   sync.WaitGroup // what runs in the background

	line sync.Mutex // held for a request on conn, which carries one at a time
	conn *sql.Conn  // nil if it is not needed

	breaks atomic.Int64 // how often conn was lost
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
		c.timer = time.AfterFunc(takeDelay, func() { s.take(c) })
	}
}

// take takes the named lock of a claim unless another has it. If that fails, waiters for
// it will not be woken up, and poll.
func (s *sharedConn) take(c *claim) {
	s.mu.Lock()
	c.timer = nil // it has fired, and a held lock is to be small
	// The claim may have been released after the timer fired.
	if s.closed || c.onShared != toBeTaken || s.taken >= maxTaken {
		s.mu.Unlock()
		return
	}
	// Under the mutex: close sets closed first, and then waits for idle.
	s.idle.Add(1)
	s.mu.Unlock()
	defer s.idle.Done()

	got, late := false, false
	s.send(true, func(ctx context.Context, conn *sql.Conn) error {
		err := conn.QueryRowContext(ctx, s.sql.fill("take-lock", s.sql.namedLock(c.request.Name))).Scan(&got)
		s.mu.Lock()
		defer s.mu.Unlock()
		if got {
			s.taken++
			// A release during the request did not see the named lock, so it is given
			// back below.
			if late = c.onShared != toBeTaken; !late {
				c.onShared = taken
			}
		}
		return err
	})
	switch {
	case !got:
		s.rest()
	case late: // the claim has been released meanwhile
		s.release(c.request.Name)
	}
}

// leave has the named lock of a claim released, if it was taken.
func (s *sharedConn) leave(c *claim) {
	s.mu.Lock()
	was := c.onShared
	if c.onShared = notTaken; c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	s.mu.Unlock()
	if was == taken {
		s.background(func() { s.release(c.request.Name) })
	}
}

// release gives back a named lock of the shared connection.
func (s *sharedConn) release(name string) {
	s.send(false, func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, s.sql.fill("release-lock", s.sql.namedLock(name)))
		return err
	})
	s.mu.Lock()
	// Also after an error: the connection is closed then, and its named locks have ended with
	// it.
	s.taken--
	s.mu.Unlock()
	s.rest()
}

// rest gives the connection back to its pool if it has no named lock.
func (s *sharedConn) rest() {
	s.line.Lock()
	defer s.line.Unlock()
	// line is held as well, so that no request begins between this check and Close.
	s.mu.Lock()
	busy := s.taken > 0
	s.mu.Unlock()
	if !busy && s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// send makes a request on the shared connection, and closes that if it fails. If there
// is none it opens one only where dial says so: what it had has been released. A server
// that hangs is waited for once: requests that have queued meanwhile give up.
func (s *sharedConn) send(dial bool, f func(context.Context, *sql.Conn) error) {
	breaks := s.breaks.Load()
	s.line.Lock()
	defer s.line.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	var err error
	if s.conn == nil && dial && breaks == s.breaks.Load() {
		s.conn, err = s.db.Conn(ctx)
	}
	if s.conn != nil {
		if err = f(ctx, s.conn); err != nil {
			discard(s.conn)
			s.conn = nil
		}
	}
	if err != nil {
		s.breaks.Add(1)
	}
}

// background runs f in a goroutine that close waits for. A name is free already when its
// named lock is released, and its former holder must not wait for that.
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
	s.line.Lock()
	defer s.line.Unlock()
	if s.conn != nil {
		discard(s.conn)
		s.conn = nil
	}
}
