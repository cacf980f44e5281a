package zklock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
)

// leftovers are the claims of a session with nodes that may still be there although nobody
// wants them: their release has failed. The engine repeats a release for the TTL and
// the lag. A node ends with its session alone, and that may outlast every outage: a
// server that restarts gives each session its full timeout, and without a quorum none
// expires. So the session goes on deleting, also after the end of a Locker made by New:
//
//	Release fails     addLeftover: a goroutine, unless one runs
//	every second      delete what is due, some side by side
//	Release succeeds  drop
//	nothing is left, or the connection was closed: the goroutine ends
type leftovers struct {
	mu      sync.Mutex
	claims  map[string]leftover // by their stems, as these have the owners in them
	running bool
}

// leftover is a copy of a claim. The engine may still call Release of the claim itself.
type leftover struct {
	claim
	due time.Time // not to be deleted before

	tried bool // a request to delete it may have been sent
}

// leftoverPause is how long after a failure the next attempt comes.
const leftoverPause = time.Second

// copyOf returns what it takes to delete the node of a claim.
func copyOf(c *claim) claim {
	return claim{class: c.class, session: c.session, stem: c.stem, ttl: c.ttl, path: c.path, id: c.id,
		bare: c.bare, creation: c.creation}
}

// addLeftover has the node of a claim deleted, from due on.
func (s *session) addLeftover(c claim, due time.Time) {
	l := &s.leftovers
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.claims[c.stem]; !known {
		l.claims[c.stem] = leftover{claim: c, due: due}
	}
	if !l.running {
		l.running = true
		go s.deleteLeftovers()
	}
}

// drop reports whether the claim was one of those that are left, and whether all is as it
// was when it became one.
func (l *leftovers) drop(stem string) (there, untouched bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left, there := l.claims[stem]
	delete(l.claims, stem)
	return there, there && !left.tried
}

func (l *leftovers) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.claims)
	l.running = false
}

// some returns a few that are due, in any order, and whether there is nothing left at
// all. Then the goroutine that asks has to end.
func (l *leftovers) some() (due []claim, none bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for stem, left := range l.claims {
		if len(due) == atOnce {
			break
		}
		if !time.Now().Before(left.due) {
			left.tried = true
			l.claims[stem] = left
			due = append(due, left.claim)
		}
	}
	l.running = len(l.claims) > 0
	return due, !l.running
}

func (s *session) deleteLeftovers() {
	pause := time.NewTicker(leftoverPause)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-s.conn.Closed:
			s.leftovers.clear() // the session ends, and with it all its nodes
			return
		}
		for progress := true; progress; {
			due, none := s.leftovers.some()
			if none {
				return
			}
			progress = s.deleteSome(due)
		}
	}
}

// deleteSome deletes the nodes of claims, side by side, and reports whether one is gone.
// After an error it is gone if its session is, and all are if the connection was closed.
func (s *session) deleteSome(due []claim) (progress bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var gone atomic.Bool
	each(due, func(c claim) {
		_, err := c.remove(ctx)
		if err == nil || errors.Is(err, distlock.ErrClosed) || c.path != "" && !s.lives(c.id) {
			gone.Store(true)
			if there, _ := s.leftovers.drop(c.stem); there {
				c.class.leave(c.bytes())
			}
		}
	})
	return gone.Load()
}
