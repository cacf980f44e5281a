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
	connect func(context.Context) (*sql.Conn, error)
	sql     *statements

	mu     sync.Mutex
	taken  int      // named locks that conn has, or had when it broke
	takes  []*claim // whose named locks are to be taken
	ends   []string // names whose named locks are to be released
	works  bool     // a goroutine sees to that; it alone uses conn
	conn   *sql.Conn
	moved  bool // conn is to be closed
	closed bool
	idle   sync.WaitGroup // what runs in the background
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
	if c.onShared == notTaken {
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
		s.takes = append(s.takes, c)
		s.start()
	}
}

// leave has the named lock of a claim released, if it was taken. A name is free already when its
// named lock is released, and its former holder does not wait for that.
func (s *sharedConn) leave(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.onShared == taken {
		s.ends = append(s.ends, c.request.Name)
		s.start()
	}
	if c.onShared = notTaken; c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// start begins to work; s.mu is held. After close there is nothing to do: that ends what the connection has.
func (s *sharedConn) start() {
	if !s.works && !s.closed {
		s.works = true
		s.idle.Go(s.work)
	}
}

// work sends what is to be sent, first the releases, for which others wait. Then it gives the connection back to its
// pool if that has no named lock.
func (s *sharedConn) work() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.moved:
			s.moved = false
			s.discard()
		case len(s.ends) > 0:
			name := s.ends[0]
			s.ends = s.ends[1:]
			s.taken--
			if s.conn != nil { // else it has ended already: the connection is closed after an error
				s.send("release-lock", name, "")
			}
		case len(s.takes) > 0:
			c := s.takes[0]
			s.takes = s.takes[1:]
			if c.onShared == toBeTaken && s.taken < maxTaken && s.send("take-lock", c.request.Name, c.request.Owner) {
				s.taken++
				if c.onShared == toBeTaken {
					c.onShared = taken
				} else { // released during the request, when it had no named lock yet
					s.ends = append(s.ends, c.request.Name)
				}
			}
		default:
			s.takes, s.ends, s.works = nil, nil, false
			if s.taken == 0 && s.conn != nil {
				_ = s.conn.Close()
				s.conn = nil
			}
			return
		}
	}
}

// send makes a request about the named lock of a name, and of its owner, and reports whether the server says that the
// connection has it, or had it. If the request fails, the connection is closed, and waiters poll. A server
// that hangs is waited for once: named locks that were to be taken meanwhile are not. s.mu is held, but
// not during the request.
func (s *sharedConn) send(statement, name, owner string) bool {
	s.mu.Unlock()
	lock := s.sql.namedLock(name)
	lock.owner = owner
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	var err error
	if s.conn == nil {
		s.conn, err = s.connect(ctx)
	}
	answer := 0
	if err == nil {
		if answer, err = s.sql.ask(ctx, s.conn, statement, lock); err != nil {
			s.discard()
		}
	}
	s.mu.Lock()
	if err != nil {
		s.takes = nil
	}
	return answer > 0
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
	s.discard()
}

// discard closes the connection, if there is one, and with it all that it has.
func (s *sharedConn) discard() {
	if s.conn != nil {
		discard(s.conn)
		s.conn = nil
	}
}

// reconnect has the connection closed: named locks on a server that is a replica now are none that waiters find. Those of
// the locks that are held end with it, and their waiters poll.
func (s *sharedConn) reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = true
	s.start()
}
