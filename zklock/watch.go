package zklock

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// watch is the subscription to one node, shared by all who wait for it. It fires
// once: when the node changes or goes away, or when its session has expired.
type watch struct {
	ready chan struct{} // closed when the servers have answered; the fields below are set then
	err   error         // zk.ErrNoNode if there is no such node
	czxid int64         // of the node
	// events gets one element and is then closed, both by the library, so that
	// it wakes any number of readers. Whoever reads it hands it to note.
	events  <-chan zk.Event
	deleted atomic.Bool // by what was noted; such a node never comes back, its number is taken
}

func newWatch() *watch { return &watch{ready: make(chan struct{})} }

// set makes the subscription.
func (w *watch) set(conn *zk.Conn, path string) {
	defer close(w.ready)
	// getData and not exists, which would watch for the creation of a node that
	// is gone, and so for ever.
	w.err = again(context.Background(), func() (err error) {
		var stat *zk.Stat
		_, stat, w.events, err = conn.GetW(path)
		if err == nil {
			w.czxid = stat.Czxid
		}
		return err
	})
}

func (w *watch) note(e zk.Event) {
	if e.Type == zk.EventNodeDeleted {
		w.deleted.Store(true)
	}
}

// await blocks until the subscription is made, and returns zk.ErrNoNode if the node
// is known to be gone.
func (w *watch) await(ctx context.Context) error {
	select {
	case <-w.ready:
		if w.deleted.Load() {
			return zk.ErrNoNode
		}
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fired reports whether the watch has nothing more to tell.
func (w *watch) fired() bool {
	select {
	case <-w.ready:
	default:
		return false
	}
	if w.err != nil {
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

// watches are the subscriptions of a driver, one per node however often it is
// asked for. The library cannot take a watch back and keeps one more channel for
// every call, so a waiter that looked again and again, or a hundred that gave up,
// would leave as many behind for as long as the holder stays.
type watches struct {
	conn *zk.Conn

	mu      sync.Mutex
	byPath  map[string]*watch
	sweepAt int
}

// on returns the watch of a node, which is made if there is none that has yet to
// fire, or has told that the node is gone. Whoever makes it returns when it is ready,
// others at once.
func (ws *watches) on(path string) *watch {
	w, made := ws.enter(path)
	if made {
		w.set(ws.conn, path)
	}
	return w
}

func (ws *watches) enter(path string) (w *watch, made bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byPath[path]; w != nil && (!w.fired() || w.deleted.Load()) {
		return w, false
	}
	w = newWatch()
	ws.sweep()
	ws.byPath[path] = w
	return w, true
}

// fired reports whether a watch on the node was made and has fired.
func (ws *watches) fired(path string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byPath[path]
	return w != nil && w.fired()
}

// sweep removes the watches that have fired, each time the number has doubled: most
// of them fire when nobody waits any more, such as those on nodes that were
// released. ws.mu is held.
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
