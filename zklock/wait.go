package zklock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// A claim waits for the node ahead of its own alone, so a release wakes up one waiter. Wait
// arms a watch on that node, and where it is the only one ahead, at once one on our own.
//
// No release is missed: if the node goes before it is watched, the watch says that there is
// no such node. Nobody comes in between: a later node is behind ours. So if it was
// the only one ahead, ours is first, as long as it is there itself, and Try needs no request.
// The second watch tells that. It stays for as long as the lock is held, and tells the renewals
// whether somebody has deleted the node: see session.renew.
type waiting struct {
	ahead string // the path of the node ahead; "" if it is not known
	next  bool   // it was the only one ahead
	first bool   // and it has gone since
	watch *watch // on it; nil before the first Wait
}

// Wait implements driver.Claim. A claim with more than one ahead needs no watch on its
// own node: its next Try reads the queue, and the queue shows whether the node is
// there.
func (c *claim) Wait(ctx context.Context) error {
	s, w := c.session, c.waiting
	if w == nil || w.ahead == "" {
		<-ctx.Done() // no server could be asked
		return ctx.Err()
	}
	refused := w.watch.refused()
	ahead, own := s.watchOf(w.ahead, c.id), new(watch)
	w.watch = ahead
	var err error
	if w.next {
		own = c.watchNode()
		if err = own.wait(ctx); own.refused() {
			err = nil // the node ahead tells, and the next Try reads the queue
		}
	}
	if err == nil {
		err = ahead.wait(ctx)
	}
	if err == nil {
		select {
		case e := <-ahead.events:
			ahead.note(e)
		case e := <-own.events:
			own.note(e)
		case <-s.conn.Closed:
			return s.fault(zk.ErrClosing)
		case <-ctx.Done():
		}
	} else if refused && ahead.refused() {
		<-ctx.Done() // Try has said so, and nothing has changed
	}
	w.first = w.next && ahead.deleted.Load()
	return ctx.Err() // or nil, if the node is gone or the connection broke: Try will see
}

// refusal is what Try returns behind another claim. Data and number of the node ahead
// came with the watch.
func (w *waiting) refusal() *driver.Held {
	switch {
	case w.watch.refused():
		return &driver.Held{NoWake: true}
	case !w.watch.answered() || w.watch.err != nil:
	case w.next:
		return &driver.Held{HeldError: *w.watch.held} // a copy, as many waiters share the watch
	}
	return new(driver.Held)
}

// nextWatch makes c.watch a valid one. For a new one, it returns the function to arm
// it. That function uses nothing of the claim.
func (c *claim) nextWatch() (arm func()) {
	if c.watch.valid() {
		return nil
	}
	w, s, path, id := newWatch(), c.session, c.path, c.id
	c.watch = w
	return func() { w.arm(s, path, id) }
}

// watchNode returns a watch on our node. It arms the watch without waiting for that.
func (c *claim) watchNode() *watch {
	if arm := c.nextWatch(); arm != nil {
		go arm()
	}
	return c.watch
}

// watch is the subscription to one node. All claims behind the node share it. It fires
// once: when the node changes or goes away, or when its session has expired.
//
// The library sets its watches again after a reconnection, and the servers then tell what
// has changed meanwhile. So a watch outlives connections, but not its session.
type watch struct {
	ready chan struct{} // closed when the servers have answered; the fields below are set then

	err  error               // why there is no subscription: zk.ErrNoNode if there is no such node
	held *distlock.HeldError // what a waiter behind the node is told
	// events gets one element and is then closed, both by the library, so it wakes up any
	// number of readers. A reader passes what it gets to note.
	events <-chan zk.Event

	lives   func() bool // whether the session of the watch does
	deleted atomic.Bool // the node is gone for good: its path is never used again
}

func newWatch() *watch { return &watch{ready: make(chan struct{})} }

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// dropWaiterData frees what only waiters need of an answered watch, because each held lock has
// one. Nobody else may use it.
func (w *watch) dropWaiterData() { w.ready, w.held = closed, nil }

// arm makes the subscription for a claim that lives by session. An answer or an event in another
// session says nothing: its first server may be behind, and not know the node yet.
func (w *watch) arm(s *session, path string, session int64) {
	defer close(w.ready)
	w.lives = func() bool { return s.lives(session) }
	// GetW and not ExistsW: if the node is gone, ExistsW would watch for its creation,
	// and so for ever.
	_, w.err = again(context.Background(), s, func() (struct{}, error) {
		data, stat, events, err := s.conn.GetW(path)
		if err == nil {
			w.held, w.events = &distlock.HeldError{Holder: string(data), Token: stat.Czxid}, events
		}
		return struct{}{}, err
	})
	if !w.lives() {
		w.err = zk.ErrSessionExpired
	}
	w.deleted.Store(errors.Is(w.err, zk.ErrNoNode))
}

func (w *watch) note(e zk.Event) {
	if e.Type == zk.EventNodeDeleted && w.lives() {
		w.deleted.Store(true)
	}
}

// wait blocks until the servers have answered, and returns why there is no subscription.
func (w *watch) wait(ctx context.Context) error {
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answered reports whether wait does not block. There may be no watch.
func (w *watch) answered() bool {
	if w == nil {
		return false
	}
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// fired reports whether the watch has nothing more to tell.
func (w *watch) fired() bool {
	if !w.answered() {
		return false
	}
	if w.err != nil || w.deleted.Load() {
		return true
	}
	select {
	case e := <-w.events:
		w.note(e)
		return true
	default:
		return false
	}
}

// valid reports whether no other watch is needed: it can still fire, or has told that the
// node is gone. There may be no watch.
func (w *watch) valid() bool { return w != nil && (!w.fired() || w.deleted.Load()) }

// refused reports whether the servers allow no subscription, although the node is there as
// far as this client knows.
func (w *watch) refused() bool {
	return w.answered() && w.err != nil && !w.deleted.Load() && !errors.Is(w.err, zk.ErrSessionExpired)
}

// armed reports whether there is a subscription without an event so far. Then the node
// is there, as far as this client can know.
func (w *watch) armed() bool { return w.answered() && !w.fired() }

// watches are the subscriptions to nodes of other claims, one for each node however
// often it is asked for. The library cannot take a watch back, and keeps one more
// channel for every call. With a watch for each call, channels would stay behind for as
// long as the holder: one for each look of a waiter, and one for each waiter that gave
// up.
type watches struct {
	mu      sync.Mutex
	byPath  map[string]*watch
	sweepAt int
}

// watchOf returns the watch of a node, a new one unless the present one is valid.
func (s *session) watchOf(path string, session int64) *watch {
	ws := &s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byPath[path]; w.valid() {
		return w
	}
	ws.sweep()
	w := newWatch()
	ws.byPath[path] = w
	go w.arm(s, path, session)
	return w
}

// sweep removes the watches that have fired, each time the number has doubled. Most of
// them fire when no claim waits any more. ws.mu is held.
func (ws *watches) sweep() {
	if len(ws.byPath) < ws.sweepAt {
		return
	}
	for path, w := range ws.byPath {
		if w.fired() {
			delete(ws.byPath, path)
		}
	}
	ws.sweepAt = max(2*len(ws.byPath), 64)
}
